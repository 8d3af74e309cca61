"""Demand paging without a plan: the right numbers, within the budget."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from conftest import RunTransit
from paged_jobs import (
    CHUNK_PIECES,
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
    paging,
)
from shim_job import PIECE, Job, script
from simulated_job import layers, parameter_hash, plain_hash
from windowed_plans import Step, alloc, copy, free, laps, scale, upload, zero


@pytest.fixture(params=[False, True], ids=["between work", "ahead"])
def ahead(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("graph", [False, True], ids=["launches", "a graph"])
@pytest.mark.parametrize("budget_pieces", [4, 10])
def test_a_training_loop_keeps_its_numbers(
    budget_pieces: int,
    graph: bool,
    ahead: bool,
    job: Job,
    simgpu_env: Mapping[str, str],
) -> None:
    command = layers(steps=5) + (["--graph"] if graph else [])
    variables = paging(budget_pieces, ahead=ahead)
    done, [status] = job(*command[1:], env=variables)
    assert parameter_hash(done.stdout) == plain_hash(command, simgpu_env)
    assert status.gpu_peak_bytes <= budget_pieces * PIECE
    assert status.windowed_peak_bytes > budget_pieces * PIECE
    assert status.resident_bytes == status.windowed_bytes == status.passed_bytes == 0
    assert status.transfer_failures == status.placement_failures == 0


def test_while_there_is_room_nothing_moves(
    ahead: bool, job: Job, tmp_path: Path
) -> None:
    status = FOUR.run(job, tmp_path, laps(CYCLE, 3), 8, ahead=ahead)
    assert status.h2d_bytes == status.d2h_bytes == status.loads_without_room == 0
    assert status.resident_peak_bytes == 8 * PIECE


def test_what_was_used_least_recently_goes(job: Job, tmp_path: Path) -> None:
    # D is created without room. C is used before it, A and B are not.
    steps = [scale(A, A), scale(B, B), scale(C, C), scale(D, D), scale(C, D)]
    status = FOUR.run(job, tmp_path, steps, 6)
    assert (status.d2h_bytes, status.h2d_bytes) == (2 * PIECE, 2 * PIECE)
    again = [*steps, scale(B, B)]
    status = FOUR.run(job, tmp_path, again, 6)
    assert (status.d2h_bytes, status.h2d_bytes) == (2 * PIECE, 2 * PIECE)


def test_what_is_used_last_of_all_goes_once_the_past_is_known(
    job: Job, tmp_path: Path
) -> None:
    """In a cycle, what was used least recently is what is needed next."""
    cycle = [scale(A, A), scale(B, B), scale(C, C), scale(D, D)]
    few, many = (
        FOUR.run(job, tmp_path, laps(cycle, count), 6, ahead=False) for count in (4, 14)
    )
    # The best that can be done: four buffers, room for three.
    per_lap = (many.h2d_bytes - few.h2d_bytes) / 10
    assert per_lap <= 2 * 2 * PIECE


def test_more_than_the_budget_is_used_in_place(
    ahead: bool, job: Job, tmp_path: Path
) -> None:
    status = FOUR.run(
        job, tmp_path, laps([scale(A, B), scale(C, D)], 3), 3, ahead=ahead
    )
    assert status.loads_without_room > 0


def test_large_allocations_move_in_chunks(
    ahead: bool, job: Job, tmp_path: Path
) -> None:
    large = PagedJob((CHUNK_PIECES + 3, CHUNK_PIECES + 1))
    last_of_first = (0, CHUNK_PIECES + 1, 2)
    second = (1, 0, 2)
    steps = laps([scale(last_of_first, last_of_first), scale(second, second)], 4)
    status = large.run(job, tmp_path, steps, CHUNK_PIECES + 5, ahead=ahead)
    assert status.h2d_bytes > 0


def test_two_streams(ahead: bool, job: Job, tmp_path: Path) -> None:
    cycle = [
        scale(A, A),
        scale(B, B, stream=1),
        copy(C, A),
        upload(B, 3, stream=1),
        scale(D, D, stream=1),
        zero(UPPER_A),
    ]
    steps = laps(cycle, 6)
    status = FOUR.run(job, tmp_path, steps, 4, ahead=ahead, env=SLOW)
    assert status.h2d_bytes > 0


def test_two_threads(ahead: bool, job: Job, tmp_path: Path) -> None:
    threads = [
        laps([scale(A, A), scale(B, A), {"op": "download", "source": B}], 1),
        laps([scale(C, C, stream=1), scale(D, C, stream=1)], 6),
    ]
    steps: list[Step] = [{"op": "together", "threads": threads}]
    FOUR.run(job, tmp_path, steps * 4, 4, ahead=ahead, env=SLOW)


def test_frees_in_the_middle_of_a_move(ahead: bool, job: Job, tmp_path: Path) -> None:
    cycle = [
        scale(A, A),
        scale(C, C),
        scale(B, B),
        free(1),  # waits for all work
        alloc(1),
        scale(D, B),
        scale(A, C, stream=1),
        free(3),
        alloc(3),
    ]
    FOUR.run(job, tmp_path, laps(cycle, 5), 4, ahead=ahead, env=SLOW)


def test_captures_and_streams_that_go(ahead: bool, job: Job, tmp_path: Path) -> None:
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
    FOUR.run(job, tmp_path, laps(cycle, 5), 4, ahead=ahead, env=SLOW)


def test_much_work_behind_what_is_on_its_way(
    ahead: bool, job: Job, tmp_path: Path
) -> None:
    small = PagedJob((1, 1, 1))
    first, second, third = ((buffer, 0, 1) for buffer in range(3))
    steps = [scale(first, first), *laps([scale(second, third)], 2)] * 4
    steps += laps([zero((0, 0, 1)), upload((1, 0, 1), 5)], 160)
    small.run(job, tmp_path, steps, 2, ahead=ahead, env=SLOW)


@pytest.mark.parametrize("seed", range(3))
def test_any_job(seed: int, ahead: bool, job: Job, tmp_path: Path) -> None:
    random = Random(seed)
    pieces = [random.randint(1, 4) for _ in range(6)]
    steps = list(any_steps(random, pieces, 120))
    budget = random.randint(max(pieces), sum(pieces))
    slow = {"TRANSIT_SIM_SLOW_COPY_US": random.choice(["0", "1500"])}
    PagedJob(pieces).run(job, tmp_path, steps, budget, ahead=ahead, env=slow)


# When memory first comes, or the first lap is on its way.
FAILING = {
    "cuMemCreate": 4,
    "cuMemMap": 22,
    "cuMemSetAccess": 23,
    "cuMemUnmap": 9,
    "cuMemcpyDtoDAsync": 4,
}


@pytest.mark.parametrize("symbol", FAILING)
def test_a_move_that_fails_is_said_and_loses_nothing(
    symbol: str, job: Job, tmp_path: Path
) -> None:
    env = {"TRANSIT_SIM_FAIL": f"{symbol}:{FAILING[symbol]}=2"}
    status = FOUR.run(job, tmp_path, laps(CYCLE, 6), 4, env=env)
    assert status.transfer_failures == 1
    assert symbol in status.message


@pytest.mark.parametrize(
    "fault",
    ["cuEventRecord:*=2", "cuEventCreate:7=2", "cuStreamWaitValue32:*=2"],
)
def test_without_events_or_gates_work_is_waited_for(
    fault: str, ahead: bool, job: Job, tmp_path: Path
) -> None:
    env = SLOW | {"TRANSIT_SIM_FAIL": fault}
    status = FOUR.run(job, tmp_path, laps(CYCLE, 4), 4, ahead=ahead, env=env)
    assert status.h2d_bytes > 0
    assert status.transfer_failures == 0


def test_kernels_may_follow_pointers(job: Job) -> None:
    """No launch names the rows: they stay where they are, and in reach."""
    _, [status] = job(str(GATHERING_JOB), env=paging(5, ahead=False) | SLOW)
    assert status.h2d_bytes > 0


def test_libraries_get_room(job: Job) -> None:
    """What the driver is asked for takes the place of what is paged."""
    _, [status] = job(
        *script("""
start()
first = call(cu.cuMemAlloc, 8 << 20)
library = ctypes.CDLL("libcuda.so.1")
roundtrip(first, 8 << 20)
small = [call(cu.cuMemAlloc, 1 << 20) for _ in range(4)]
for address in small:
    roundtrip(address, 1 << 20, 3)
roundtrip(first, 8 << 20, 5)
"""),
        env=paging(4, ahead=False),
    )
    assert status.passed_peak_bytes == 4 << 20
    assert status.gpu_peak_bytes == status.resident_peak_bytes == 4 * PIECE
    assert status.d2h_bytes == 8 << 20


def test_what_is_left_to_the_driver_may_be_more_than_the_budget(job: Job) -> None:
    _, [status] = job(
        *script("""
start()
first = call(cu.cuMemAlloc, 8 << 20)
small = [call(cu.cuMemAlloc, 1 << 20) for _ in range(10)]
roundtrip(first, 8 << 20)
"""),
        env=paging(4, ahead=False),
    )
    assert status.resident_bytes == 0
    assert status.gpu_peak_bytes == status.passed_bytes == 10 << 20


def test_addresses_say_whose_they_are(job: Job) -> None:
    job(
        *script("""
start()
size = 3 << 20
address = call(cu.cuMemAlloc, size)
base, length = call(cu.cuMemGetAddressRange, int(address) + 5)
assert (int(base), length) == (int(address), size)
call(cu.cuMemFree, address)
assert cu.cuMemFree(address)[0] != cu.CUresult.CUDA_SUCCESS
again = call(cu.cuMemAlloc, size)
assert int(again) == int(address)
"""),
        env=paging(4, ahead=False),
    )


def test_an_old_driver_serves_the_job_alone(job: Job) -> None:
    _, [status] = job(
        *script("start(); roundtrip(call(cu.cuMemAlloc, 8 << 20), 8 << 20)"),
        env=paging(2, ahead=False) | {"TRANSIT_SIM_FAIL": "cuMemAddressReserve:*=2"},
    )
    assert status.placement_failures == 1
    assert "addresses" in status.message


def test_the_command_says_what_was_done(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    command = layers(steps=3)
    status = tmp_path / "status.json"
    options = ["--gpu-memory", "12MiB", "--status", status, "--strict"]
    done = run_transit(["run", *options, "--simulated-gpu", "--", *command])
    assert done.returncode == 0, done.stderr
    assert parameter_hash(done.stdout) == plain_hash(command, simgpu_env)
    assert "of 12.00 MiB" in done.stderr
    assert "next: " in done.stderr
    report = json.loads(status.read_text())
    assert report["problems"] == []
    (process,) = report["processes"]
    assert process["state"] == "paging"
    assert 0 < process["gpu_peak_bytes"] <= 12 << 20


def test_the_command_returns_the_jobs_exit_code(run_transit: RunTransit) -> None:
    options = ["run", "--gpu-memory", "12MiB", "--simulated-gpu", "--"]
    done = run_transit([*options, sys.executable, "-c", "raise SystemExit(7)"])
    assert done.returncode == 7
