"""A job that does what its plan does not know, while memory comes and goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from shim_job import PIECE, Job
from windowed_plans import (
    LOADS,
    WRITES_BACK,
    Step,
    Window,
    WindowedJob,
    alloc,
    copy,
    free,
    laps,
    scale,
    upload,
    zero,
)

SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "3000"}
DIRTY = LOADS | WRITES_BACK
A, B, C, D = ((buffer, 0, 2) for buffer in range(4))
UPPER_A = (0, 1, 1)
SYNCHRONIZE: Step = {"op": "synchronize"}

# A is on the GPU for the first two launches, B for the fourth and fifth.
ITERATION = [
    scale(A, A),
    scale(C, A),
    scale(C, C),
    scale(B, C),
    scale(B, B),
    scale(D, D),
    zero(C),
]
JOB = WindowedJob(
    (2, 2, 2, 2),
    ITERATION,
    {A: [Window(6, 0, 1, 1, DIRTY)], B: [Window(2, 3, 4, 4, DIRTY)]},
)
INSERTED = {
    "a write": [scale(A, A, 3.0)],
    "a write within": [scale(UPPER_A, UPPER_A, 3.0)],
    "a read": [copy(D, A)],
    "an upload": [upload(A, 77)],
    "a set": [zero(UPPER_A)],
    "a download": [{"op": "download", "source": A}],
    "a graph": [{"op": "capture", "steps": [scale(A, A, 5.0), copy(D, B)]}],
}


def inserted(steps: list[Step], num_laps: int) -> list[Step]:
    """Do laps, each with some steps before one of its launches."""
    found = laps(ITERATION, 2)
    for lap in range(num_laps):
        own = laps(ITERATION, 3 + lap)[-len(ITERATION) :]
        at = lap % len(own)
        found += [*own[:at], *steps, *own[at:]]
    return found


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("kind", INSERTED)
def test_what_comes_in_between_finds_its_data(
    job: Job, tmp_path: Path, kind: str, copies: str
) -> None:
    steps = inserted(INSERTED[kind], len(ITERATION))
    status = JOB.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.locks >= 1
    assert status.launches_inserted > 0
    assert status.h2d_bytes > 0


LEAVING = {
    "evaluation of the same": [copy(D, A), scale(D, B), scale(D, A)] * 100,
    "evaluation of others": [scale(C, D), scale(D, D, 1 / 1.25), zero(C)] * 100,
    "other order": [*reversed(ITERATION)] * 3,
    "a part again and again": ITERATION[:3] * 5,
    "every other launch": ITERATION[::2] * 4,
    "without what is written first": ITERATION[1:] * 2,
}


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("kind", LEAVING)
def test_what_the_job_does_instead_finds_its_data(
    job: Job, tmp_path: Path, kind: str, copies: str
) -> None:
    steps = [*laps(ITERATION, 4), *LEAVING[kind], *laps(ITERATION, 4)]
    status = JOB.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.launches_planned > 4 * len(ITERATION)


def test_what_is_not_overwritten_after_all_is_loaded(job: Job, tmp_path: Path) -> None:
    # A's window begins with an upload, and its data stays good at home.
    iteration = [upload(A, 5), scale(B, A), scale(A, A), scale(C, C), scale(C, B)]
    windowed = WindowedJob((2, 2, 2), iteration, {A: [Window(0, 0, 2, 2, WRITES_BACK)]})
    without = [*laps(iteration, 4)[-5:]][1:]
    elsewhere = [upload(C, 9), *without]
    steps = [*laps(iteration, 4), *without, *laps(iteration, 2), *elsewhere] * 2
    status = windowed.run(job, tmp_path, steps, SLOW)
    assert status.message == ""
    assert status.launches_skipped > 0
    assert status.launches_elsewhere > 0


@pytest.mark.parametrize("copies", ["quick", "slow"])
def test_what_is_dead_is_dropped_only_after_its_last_launch(
    job: Job, tmp_path: Path, copies: str
) -> None:
    # A is dead after the third launch. Then comes one that is the last one again.
    iteration = [scale(A, C), scale(B, A), scale(D, A), copy(C, B), copy(B, D)]
    windowed = WindowedJob((2, 2, 2, 2), iteration, {A: [Window(0, 0, 2, 0, 0)]})
    steps = laps(iteration, 4)
    for lap in range(4, 8):
        first, *rest = laps(iteration, lap + 1)[-len(iteration) :]
        steps += [first, rest[-1], *rest]
    status = windowed.run(
        job, tmp_path, [*steps, free(0)], SLOW if copies == "slow" else None
    )
    assert status.message == ""
    assert status.launches_skipped > 0


def test_room_that_nobody_takes_is_not_waited_for(job: Job, tmp_path: Path) -> None:
    # By the plan D leaves when A comes, but it is not there.
    iteration = [scale(B, A), scale(C, B), scale(B, C)]
    windows = {A: [Window(2, 0, 0, 0, DIRTY)], D: [Window(1, 1, 2, 2, DIRTY)]}
    windowed = WindowedJob((2, 2, 2, 2), iteration, windows, 6 * PIECE, 3)
    status = windowed.run(job, tmp_path, laps(iteration, 6))
    assert status.loads_without_room == 0
    assert status.h2d_bytes > 0


def test_two_streams_use_one_range(job: Job, tmp_path: Path) -> None:
    iteration = [
        scale(A, A),
        SYNCHRONIZE,
        scale(B, A, stream=1),
        *[scale(C, A), scale(C, C)] * 2,
        scale(D, A, stream=1),
        SYNCHRONIZE,
        scale(D, D),
        scale(C, C),
    ]
    windowed = WindowedJob((2, 2, 2, 2), iteration, {A: [Window(0, 0, 6, 0, DIRTY)]})
    steps = laps(iteration, 8)
    # Reads that nobody waits for before the range is released.
    late = [copy(D, A, stream=1), SYNCHRONIZE]
    for lap in range(3, 8):
        at = lap * len(iteration) + 6 + lap % 3
        steps[at:at] = [step for step in late if lap % 2 or step["op"] == "copy"]
    status = windowed.run(job, tmp_path, [*steps, SYNCHRONIZE], SLOW)
    assert status.message == ""
    assert status.locks == 1


def test_two_threads_submit_at_once(job: Job, tmp_path: Path) -> None:
    iteration = [scale(B, A), scale(B, B), scale(C, B), scale(C, C)]
    windows = {A: [Window(0, 0, 0, 0, LOADS)], B: [Window(0, 0, 2, 1, DIRTY)]}
    windowed = WindowedJob((2, 2, 2, 2), iteration, windows)
    other = [copy(D, A, stream=1), scale(D, D, stream=1)] * 40
    threads = [laps(iteration, 30), other]
    steps = [*laps(iteration, 3), {"op": "together", "threads": threads}]
    status = windowed.run(job, tmp_path, [*steps, *laps(iteration, 3)], SLOW)
    assert status.message == ""


@pytest.mark.parametrize("at", range(4))
def test_memory_is_freed_while_it_is_moved(job: Job, tmp_path: Path, at: int) -> None:
    iteration = [scale(A, A), scale(B, A), scale(B, B), scale(C, C)]
    windows = {A: [Window(3, 0, 1, 0, DIRTY)], D: [Window(1, 2, 3, 3, DIRTY)]}
    windowed = WindowedJob((2, 2, 2, 2), iteration, windows, num_allocated=3)
    steps = [*laps(iteration, 4), *iteration[:at], free(0)]
    steps += [scale(C, B), alloc(3), scale(D, C), scale(D, D), zero(C)]
    status = windowed.run(job, tmp_path, steps, SLOW)
    assert status.message == ""
    assert status.allocations_matched == 4


def test_a_stream_is_destroyed_with_work_on_the_way(job: Job, tmp_path: Path) -> None:
    iteration = [scale(A, A), SYNCHRONIZE, scale(B, B), scale(C, B), scale(C, C)]
    windowed = WindowedJob((2, 2, 2, 2), iteration, {A: [Window(0, 0, 0, 0, DIRTY)]})
    reads = [scale(D, A, stream=1), copy(D, A, stream=1), {"op": "renew_stream"}]
    # What the stream does is over before A is written again.
    over = {"op": "download", "source": C}
    rest = [*reads, *iteration[2:], over]
    steps = [*laps(iteration, 3), scale(A, A), SYNCHRONIZE, *rest]
    status = windowed.run(job, tmp_path, [*steps, *laps(iteration, 3)], SLOW)
    assert status.message == ""
