"""The budget and the bound on host memory, and what a job is told of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from paged_jobs import paging
from shim_job import (
    MIB,
    NEVER,
    PIECE,
    PRELUDE,
    RESIDENT,
    WINDOWED,
    ZERO_COPY,
    Job,
    flat_plan,
    script,
)
from shim_job import whole as allocation

OUT = "cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY"
HOST = "TRANSIT_HOST_MEMORY_BYTES"


def bounded(budget_pieces: int, host_pieces: int) -> dict[str, str]:
    """Return the variables of a paged job with so much host memory."""
    return paging(budget_pieces, ahead=False) | {HOST: str(host_pieces * PIECE)}


def test_a_paged_job_sees_host_memory_as_its_card(job: Job) -> None:
    _, [status] = job(
        *script(f"""
start()
assert call(cu.cuMemGetInfo) == [{8 * PIECE}, {8 * PIECE}]
first = call(cu.cuMemAlloc, {5 * PIECE})
assert call(cu.cuMemGetInfo) == [{3 * PIECE}, {8 * PIECE}]
assert cu.cuMemAlloc({4 * PIECE})[0] == {OUT}
assert call(cu.cuMemGetInfo) == [{3 * PIECE}, {8 * PIECE}]
second = call(cu.cuMemAlloc, {3 * PIECE})
assert call(cu.cuMemGetInfo)[0] == 0
roundtrip(second, {3 * PIECE})
call(cu.cuMemFree, first)
assert call(cu.cuMemGetInfo)[0] == {5 * PIECE}
call(cu.cuMemFree, second)
"""),
        env=bounded(2, 8),
    )
    assert (status.host_bytes, status.host_peak_bytes) == (0, 8 * PIECE)
    assert (status.host_limit_bytes, status.host_refusals) == (8 * PIECE, 1)
    assert status.budget_excesses == 0
    for word in (str(4 * PIECE), str(8 * PIECE), "--host-memory"):
        assert word in status.message


def test_a_refusal_is_one_line(job: Job) -> None:
    done, [status] = job(
        *script(f"""
start()
for _ in range(3):
    assert cu.cuMemAlloc({4 * PIECE})[0] == {OUT}
"""),
        env=bounded(2, 3),
    )
    assert status.host_refusals == 3
    assert status.placement_failures == 0
    assert done.stderr.count("refused as out of memory") == 1


@pytest.mark.parametrize(
    "env",
    [
        {"TRANSIT_SIM_HOST_MEMORY": "8MiB"},
        {"TRANSIT_SIM_FAIL": "cuMemHostAlloc:*=2"},
    ],
    ids=["chunks", "counters"],
)
def test_a_machine_without_host_memory_refuses_too(
    env: dict[str, str], job: Job
) -> None:
    """Left to the driver, the allocation would be above the budget."""
    _, [status] = job(
        *script(f"start(); assert cu.cuMemAlloc({6 * PIECE})[0] == {OUT}"),
        env=paging(2, ahead=False) | env,
    )
    assert status.host_refusals == 1
    assert status.host_bytes == status.windowed_bytes == status.gpu_bytes == 0
    assert "no pinned" in status.message


def test_processes_share_the_host(job: Job) -> None:
    """Also after one of them was killed, whose memory is free again."""
    child = PRELUDE + (
        f"start(); call(cu.cuMemAlloc, {3 * PIECE}); print('ready', flush=True); "
        "sys.stdin.read()"
    )
    _, statuses = job(
        *script(f"""
import subprocess
child = subprocess.Popen([sys.executable, "-c", {child!r}],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert child.stdout.readline() == b"ready\\n"
start()
assert call(cu.cuMemGetInfo)[0] == {2 * PIECE}
assert cu.cuMemAlloc({3 * PIECE})[0] == {OUT}
child.kill()
child.wait()
call(cu.cuMemAlloc, {3 * PIECE})
"""),
        env=bounded(2, 5),
    )
    assert sorted(status.host_refusals for status in statuses) == [0, 1]


def test_a_replayed_job_sees_budget_and_planned_host_memory(job: Job) -> None:
    plan = flat_plan(
        [
            allocation(0, 4 * PIECE, RESIDENT),
            allocation(1, 6 * PIECE, ZERO_COPY),
        ],
        gpu_memory_bytes=5 * PIECE,
    )
    _, [status] = job(
        *script(f"""
start()
assert call(cu.cuMemGetInfo) == [{11 * PIECE}, {11 * PIECE}]
call(cu.cuMemAlloc, {4 * PIECE})
assert call(cu.cuMemGetInfo) == [{7 * PIECE}, {11 * PIECE}]
call(cu.cuMemAlloc, {6 * PIECE})
assert call(cu.cuMemGetInfo) == [{PIECE}, {11 * PIECE}]
call(cu.cuMemAlloc, {2 * PIECE})
assert call(cu.cuMemGetInfo) == [0, {11 * PIECE}]
"""),
        plan=plan,
    )
    assert status.host_peak_bytes == 6 * PIECE
    assert status.budget_bytes == 5 * PIECE
    assert status.budget_excesses == 1
    assert status.budget_excess_peak_bytes == PIECE


def test_a_plan_may_not_take_more_host_memory_than_allowed(job: Job) -> None:
    plan = flat_plan([allocation(0, 6 * PIECE, ZERO_COPY)])
    _, [status] = job(
        *script(f"""
start()
assert cu.cuMemAlloc({6 * PIECE})[0] == {OUT}
call(cu.cuMemAlloc, {PIECE})
"""),
        plan=plan,
        env={HOST: str(5 * PIECE)},
    )
    assert status.host_refusals == 1
    assert status.zero_copy_peak_bytes == 0


def test_a_planned_allocation_that_was_refused_can_be_tried_again(job: Job) -> None:
    _, [status] = job(
        *script(f"""
start()
assert cu.cuMemAlloc({PIECE})[0] == {OUT}
call(cu.cuMemAlloc, {PIECE})
"""),
        plan=flat_plan([allocation(0, PIECE, ZERO_COPY)]),
        env={"TRANSIT_SIM_FAIL": "cuMemCreate:1=2"},
    )
    assert (status.host_refusals, status.placement_failures) == (1, 0)
    assert status.allocations_matched == 1
    assert status.zero_copy_bytes == status.host_bytes == PIECE


def test_windows_without_pinned_memory_are_refused(job: Job) -> None:
    plan = flat_plan(
        [allocation(0, PIECE, WINDOWED)],
        addresses={0: 0},
        windows=[(0, 1, 1, 3, 3, 0, NEVER)],
        launches=[(1, ())] * 8,
    )
    _, [status] = job(
        *script(f"start(); assert cu.cuMemAlloc({PIECE})[0] == {OUT}"),
        plan=plan,
        env={"TRANSIT_SIM_FAIL": "cuMemHostAlloc:*=2"},
    )
    assert (status.host_refusals, status.host_bytes) == (1, 0)
    assert "cuMemHostAlloc" in status.message


def test_without_a_budget_the_driver_answers(job: Job) -> None:
    _, [status] = job(
        *script("start(); assert call(cu.cuMemGetInfo) == [32 << 20, 32 << 20]"),
        env={"TRANSIT_SIM_GPU_MEMORY": "32MiB"},
    )
    assert status.card_bytes == 0


def test_memory_between_chunks_is_given_up_for_libraries(job: Job) -> None:
    """On a card that has no more than the budget the driver finds room."""
    _, [status] = job(
        *script("""
start()
first = call(cu.cuMemAlloc, 8 << 20)
roundtrip(first, 8 << 20)
small = [call(cu.cuMemAlloc, 1 << 20) for _ in range(3)]
pooled = call(cu.cuMemAllocAsync, 2 << 20, 0)
roundtrip(first, 8 << 20, 5)
"""),
        env=paging(4, ahead=False) | {"TRANSIT_SIM_GPU_MEMORY": "8MiB"},
    )
    assert status.passed_peak_bytes == 5 * MIB
    assert status.budget_excesses == 0
    assert status.gpu_peak_bytes <= 4 * PIECE


def test_each_gpu_has_its_own_budget(job: Job) -> None:
    _, [status] = job(
        *script(f"""
call(cu.cuInit, 0)
for device in range(2):
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, device))
    call(cu.cuMemAlloc, {3 * PIECE})
"""),
        plan=flat_plan([], gpu_memory_bytes=4 * PIECE),
        env={"TRANSIT_SIM_GPU_COUNT": "2"},
    )
    assert status.gpu_peak_bytes == 6 * PIECE
    assert status.budget_excesses == 0


def test_what_contexts_take_is_measured_and_beside_the_budget(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "status.json"
    script_text = PRELUDE + f"start(); call(cu.cuMemAlloc, {2 * PIECE})"
    env = {
        "TRANSIT_SIM_GPU_MEMORY": "32MiB",
        "TRANSIT_SIM_CONTEXT_MEMORY": "6MiB",
    }

    def run(*options: str) -> tuple[dict[str, Any], list[str], str]:
        arguments = ["run", "--status", path, "-f", "--simulated-gpu", *options]
        command = [sys.executable, "-c", script_text]
        done = run_transit([*arguments, "--", *command], env=simgpu_env | env)
        assert done.returncode == 0, done.stderr
        report = json.loads(path.read_text())
        return report["processes"][0], report["problems"], done.stderr

    process, problems, said = run("--gpu-memory", "30MiB")
    assert (process["card_bytes"], process["card_taken_bytes"]) == (32 * MIB, 6 * MIB)
    assert "6.00 MiB of the GPU taken before" in said
    assert any("does not fit" in problem for problem in problems)
    process, problems, _ = run("--gpu-memory", "30MiB", "--headroom", "6MiB")
    assert process["budget_bytes"] == 24 * MIB
    assert problems == []


def test_host_memory_of_the_command_reaches_the_job(
    run_transit: RunTransit, tmp_path: Path
) -> None:
    path = tmp_path / "status.json"
    script_text = PRELUDE + f"start(); assert cu.cuMemAlloc({3 * PIECE})[0] == {OUT}"
    options = ["--gpu-memory", "8MiB", "--host-memory", "4MiB", "--status", path]
    command = [sys.executable, "-c", script_text]
    done = run_transit(["run", *options, "--simulated-gpu", "--", *command])
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    assert report["processes"][0]["host_limit_bytes"] == 4 * MIB
    assert any("lack of host memory" in problem for problem in report["problems"])
