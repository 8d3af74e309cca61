"""Paging on managed memory: the paper's policies, without a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from conftest import RunTransit
from paged_jobs import (
    CHUNK_PIECES,
    COUNT,
    CYCLE,
    FOUR,
    GATHERING_JOB,
    SLOW,
    UPPER_A,
    A,
    B,
    C,
    D,
    PagedJob,
    any_steps,
    counters_of,
    managed,
)
from shim_job import PIECE, Job, script
from simulated_job import layers, parameter_hash, plain_hash
from windowed_plans import Step, alloc, copy, free, laps, scale, upload, zero

from transit.runtime.status import BackendKind, ShimState

POLICIES = ["base", "prefetch", "advise"]
MOVING = ["base", "prefetch"]


@pytest.mark.parametrize("graph", [False, True], ids=["launches", "a graph"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_training_loop_keeps_its_numbers(
    policy: str, graph: bool, job: Job, simgpu_env: Mapping[str, str]
) -> None:
    command = layers(steps=5) + (["--graph"] if graph else [])
    done, [status] = job(*command[1:], env=managed(4, policy))
    assert parameter_hash(done.stdout) == plain_hash(command, simgpu_env)
    assert (status.state, status.backend) == (ShimState.PAGING, BackendKind.UVM)
    # Advice takes nothing back for what the driver is asked for later.
    later = status.passed_peak_bytes if policy == "advise" else 0
    assert status.gpu_peak_bytes <= 4 * PIECE + later
    assert status.windowed_peak_bytes + status.zero_copy_peak_bytes > 4 * PIECE
    assert status.resident_bytes == status.zero_copy_bytes == 0
    assert status.windowed_bytes == status.passed_bytes == 0
    assert status.transfer_failures == status.placement_failures == 0
    assert status.message == ""


def test_base_comes_by_faults_and_leaves_by_prefetches(
    job: Job, tmp_path: Path
) -> None:
    steps = [COUNT, *laps(CYCLE, 3)]
    status, [before, after] = FOUR.run_managed(job, tmp_path, steps, 4, "base")
    assert after.fault_count > before.fault_count
    assert after.migrated_in_bytes - before.migrated_in_bytes >= 3 * 8 * PIECE
    assert after.migrated_out_bytes <= status.d2h_bytes
    assert after.most_used_bytes <= status.gpu_peak_bytes == 4 * PIECE
    assert status.h2d_bytes == after.evicted_bytes == 0


def test_prefetch_leaves_nothing_to_faults(job: Job, tmp_path: Path) -> None:
    status, [counted] = FOUR.run_managed(job, tmp_path, laps(CYCLE, 3), 4, "prefetch")
    assert counted.fault_count == counted.evicted_bytes == 0
    assert counted.link_read_bytes == counted.link_written_bytes == 0
    assert 3 * 8 * PIECE <= counted.migrated_in_bytes <= status.h2d_bytes
    assert counted.migrated_out_bytes <= status.d2h_bytes
    assert counted.most_used_bytes <= status.gpu_peak_bytes == 4 * PIECE


def test_advice_moves_nothing(job: Job, tmp_path: Path) -> None:
    steps = [COUNT, *laps(CYCLE, 3)]
    status, [before, after] = FOUR.run_managed(job, tmp_path, steps, 5, "advise")
    assert after.migrated_in_bytes == after.migrated_out_bytes == 0
    assert after.fault_count == before.fault_count
    # C is beyond the budget, and D.
    assert after.link_written_bytes - before.link_written_bytes == 3 * 2 * 2 * PIECE
    assert after.most_used_bytes == status.gpu_peak_bytes == 4 * PIECE
    assert status.zero_copy_peak_bytes == 4 * PIECE
    assert status.h2d_bytes == status.d2h_bytes == status.windowed_bytes == 0


def test_memory_beyond_the_budget_is_the_gpus_once_there_is_room(
    job: Job, tmp_path: Path
) -> None:
    steps = [free(0), free(2), alloc(2)]
    status, _ = FOUR.run_managed(job, tmp_path, steps, 4, "advise")
    assert status.resident_peak_bytes == 4 * PIECE
    assert status.resident_bytes == 4 * PIECE
    assert status.zero_copy_bytes == 2 * PIECE


@pytest.mark.parametrize("policy", MOVING)
def test_while_there_is_room_nothing_leaves(
    policy: str, job: Job, tmp_path: Path
) -> None:
    status, [counted] = FOUR.run_managed(job, tmp_path, laps(CYCLE, 3), 8, policy)
    assert counted.migrated_in_bytes == counted.migrated_out_bytes == 0
    assert status.d2h_bytes == status.loads_without_room == 0
    assert status.resident_peak_bytes == counted.most_used_bytes == 8 * PIECE


@pytest.mark.parametrize("policy", MOVING)
def test_what_was_used_least_recently_goes(
    policy: str, job: Job, tmp_path: Path
) -> None:
    steps = [COUNT, scale(A, A), scale(B, B), scale(C, C), COUNT, scale(D, D)]
    steps += [scale(C, D), COUNT, scale(B, B), COUNT, scale(A, A)]
    _, counts = FOUR.run_managed(job, tmp_path, steps, 6, policy)
    came = [counted.migrated_in_bytes // PIECE for counted in counts]
    # There is room for three: each of the first goes for the next one, then A for D.
    assert came == [0, 6, 8, 8, 10]


@pytest.mark.parametrize("policy", MOVING)
def test_more_than_the_budget_is_used_in_place(
    policy: str, job: Job, tmp_path: Path
) -> None:
    steps = laps([scale(A, B), scale(C, D), scale(B, B)], 3)
    status, [counted] = FOUR.run_managed(job, tmp_path, steps, 3, policy)
    assert status.loads_without_room > 0
    assert counted.link_read_bytes + counted.link_written_bytes > 0
    assert counted.most_used_bytes <= status.gpu_peak_bytes <= 3 * PIECE


def test_what_lies_together_moves_in_one_call(job: Job, tmp_path: Path) -> None:
    large = PagedJob((3 * CHUNK_PIECES, 3 * CHUNK_PIECES))
    first, second = ((buffer, 0, 3 * CHUNK_PIECES) for buffer in range(2))
    steps = laps([scale(first, first), scale(second, second)], 2)
    # The third prefetch fails, which is half of the memory: three parts.
    env = {"TRANSIT_SIM_FAIL": "cuMemPrefetchAsync_v2:3=2"}
    budget = 3 * CHUNK_PIECES
    status, [counted] = large.run_managed(
        job, tmp_path, steps, budget, "prefetch", env=env
    )
    assert status.transfer_failures == 1
    assert status.h2d_bytes > 0
    assert status.h2d_bytes % (3 * CHUNK_PIECES * PIECE) == 0
    assert status.d2h_bytes % (3 * CHUNK_PIECES * PIECE) == 0
    assert counted.most_used_bytes <= budget * PIECE


@pytest.mark.parametrize("policy", MOVING)
def test_two_streams(policy: str, job: Job, tmp_path: Path) -> None:
    cycle = [
        scale(A, A),
        scale(B, B, stream=1),
        copy(C, A),
        upload(B, 3, stream=1),
        scale(D, D, stream=1),
        zero(UPPER_A),
    ]
    status, [counted] = FOUR.run_managed(
        job, tmp_path, laps(cycle, 6), 4, policy, env=SLOW
    )
    assert counted.migrated_in_bytes > 0
    assert counted.most_used_bytes <= status.gpu_peak_bytes <= 4 * PIECE


@pytest.mark.parametrize("policy", POLICIES)
def test_two_threads(policy: str, job: Job, tmp_path: Path) -> None:
    threads = [
        laps([scale(A, A), scale(B, A), {"op": "download", "source": B}], 1),
        laps([scale(C, C, stream=1), scale(D, C, stream=1)], 6),
    ]
    steps: list[Step] = [{"op": "together", "threads": threads}]
    FOUR.run_managed(job, tmp_path, steps * 4, 4, policy, env=SLOW)


@pytest.mark.parametrize("policy", POLICIES)
def test_memory_is_freed_while_it_is_moved(
    policy: str, job: Job, tmp_path: Path
) -> None:
    cycle = [scale(A, A), scale(C, C), scale(B, B), free(1), alloc(1), scale(D, B)]
    cycle += [scale(A, C, stream=1), free(3), alloc(3)]
    status, [counted] = FOUR.run_managed(
        job, tmp_path, laps(cycle, 5), 4, policy, env=SLOW
    )
    assert counted.most_used_bytes <= status.gpu_peak_bytes <= 4 * PIECE


@pytest.mark.parametrize("policy", POLICIES)
def test_captures_and_streams_that_go(policy: str, job: Job, tmp_path: Path) -> None:
    cycle: list[Step] = [
        scale(A, A),
        scale(B, B, stream=1),
        {"op": "capture", "steps": [scale(C, A), copy(A, C), zero(UPPER_A)]},
        scale(D, B, stream=1),
        {"op": "renew_stream"},
        free(3),  # waits for the stream that is gone, too
        alloc(3),
        {"op": "synchronize"},
    ]
    status, _ = FOUR.run_managed(job, tmp_path, laps(cycle, 5), 4, policy, env=SLOW)
    assert status.transfer_failures == status.placement_failures == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", POLICIES)
def test_any_job(policy: str, seed: int, job: Job, tmp_path: Path) -> None:
    random = Random(seed)
    pieces = [random.randint(1, 4) for _ in range(6)]
    steps = any_steps(random, pieces, 100)
    budget = random.randint(max(pieces), sum(pieces))
    slow = {"TRANSIT_SIM_SLOW_COPY_US": random.choice(["0", "1500"])}
    status, [counted] = PagedJob(pieces).run_managed(
        job, tmp_path, steps, budget, policy, env=slow
    )
    assert status.gpu_peak_bytes <= budget * PIECE
    # What graphs use comes by faults, and in no account.
    if policy != "base":
        assert counted.most_used_bytes <= budget * PIECE


@pytest.mark.parametrize("which", ["*", "2", "3"])
@pytest.mark.parametrize("symbol", ["cuMemAdvise_v2", "cuMemPrefetchAsync_v2"])
@pytest.mark.parametrize("policy", POLICIES)
def test_calls_that_fail_are_said_and_lose_nothing(
    policy: str, symbol: str, which: str, job: Job, tmp_path: Path
) -> None:
    env = {"TRANSIT_SIM_FAIL": f"{symbol}:{which}=2"}
    steps = laps([*CYCLE, scale(A, B)], 3)
    status, _ = FOUR.run_managed(job, tmp_path, steps, 3, policy, env=env)
    assert status.transfer_failures + status.placement_failures > 0
    assert symbol.removesuffix("_v2") in status.message


@pytest.mark.parametrize(
    "fault", ["cuEventRecord:*=2", "cuStreamWaitEvent:*=2", "cuStreamCreate:3=2"]
)
@pytest.mark.parametrize("policy", MOVING)
def test_without_order_the_numbers_are_right(
    policy: str, fault: str, job: Job, tmp_path: Path
) -> None:
    env = SLOW | {"TRANSIT_SIM_FAIL": fault}
    FOUR.run_managed(job, tmp_path, laps(CYCLE, 3), 4, policy, env=env)


@pytest.mark.parametrize("policy", POLICIES)
def test_kernels_may_follow_pointers(policy: str, job: Job) -> None:
    job(str(GATHERING_JOB), env=managed(5, policy) | SLOW)


@pytest.mark.parametrize("policy", MOVING)
def test_libraries_get_room(policy: str, job: Job) -> None:
    done, [status] = job(
        *script("""
start()
first = call(cu.cuMemAlloc, 8 << 20)
roundtrip(first, 8 << 20)
small = [call(cu.cuMemAlloc, 1 << 20) for _ in range(4)]
for address in small:
    roundtrip(address, 1 << 20, 3)
counters = (ctypes.c_uint64 * 16)()
ctypes.CDLL("libcuda.so.1").simgpu_get_counters(counters)
print("counters:", *counters, file=sys.stderr)
"""),
        env=managed(4, policy),
    )
    assert status.passed_peak_bytes == 4 << 20
    assert status.gpu_peak_bytes == status.resident_peak_bytes == 4 * PIECE
    (counted,) = counters_of(done.stderr)
    assert counted.migrated_out_bytes == status.d2h_bytes == 8 << 20


def test_base_never_fills_the_card(job: Job, tmp_path: Path) -> None:
    """With a graph that uses all there is, the driver would have to evict."""
    inside = [scale(B, A), scale(C, B), scale(D, C)]
    steps: list[Step] = [{"op": "capture", "steps": inside}]
    env = {"TRANSIT_SIM_GPU_MEMORY": str(5 * PIECE)}
    _, [counted] = FOUR.run_managed(job, tmp_path, laps(steps, 2), 3, "base", env=env)
    assert counted.evicted_bytes == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_without_concurrent_access_the_driver_serves_the_job(
    policy: str, job: Job
) -> None:
    _, [status] = job(
        *script("start(); roundtrip(call(cu.cuMemAlloc, 8 << 20), 8 << 20)"),
        env=managed(2, policy) | {"TRANSIT_SIM_FAIL": "cuDeviceGetAttribute:*=801"},
    )
    assert status.placement_failures == 1
    assert "concurrent managed access" in status.message
    assert status.passed_peak_bytes == 8 << 20


def test_a_policy_that_is_none_is_said(job: Job) -> None:
    _, [status] = job(*script("start()"), env=managed(2, "best"))
    assert status.state is ShimState.PASS_THROUGH
    assert "TRANSIT_PAGING_POLICY" in status.message


@pytest.mark.parametrize(
    ("policy", "words"),
    [("base", "by faults"), ("prefetch", "asked"), ("advise", "in place")],
)
def test_the_command_says_what_was_done(
    policy: str,
    words: str,
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    command = layers(steps=3)
    report = tmp_path / "status.json"
    options = ["--backend", "uvm", "--policy", policy, "--gpu-memory", "12MiB"]
    options += ["--simulated-gpu", "--status", str(report)]
    done = run_transit(["run", *options, "--", *command])
    assert done.returncode == 0, done.stderr
    assert parameter_hash(done.stdout) == plain_hash(command, simgpu_env)
    assert words in done.stderr
    assert "driver" in done.stderr
    told = json.loads(report.read_text())
    assert told["policy"] == policy
    is_as_asked = all("left to the driver" in problem for problem in told["problems"])
    assert is_as_asked if policy == "advise" else not told["problems"]
    assert told["processes"][0]["backend"] == "uvm"
