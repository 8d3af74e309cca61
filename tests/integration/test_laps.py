"""What the status says of the job's laps around the plan's iteration."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from shim_job import PIECE, Job
from windowed_plans import (
    LOADS,
    WRITES_BACK,
    Step,
    Window,
    WindowedJob,
    copy,
    laps,
    scale,
    zero,
)

SLOW_NS = 4_000_000
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": str(SLOW_NS // 1000)}
SYNCHRONIZE: Step = {"op": "synchronize"}
A, B, C = ((buffer, 0, 2) for buffer in range(3))
LAP = [scale(A, A), scale(A, A), scale(B, C), scale(C, C)]
WINDOWS = {A: [Window(0, 0, 1, 1, LOADS | WRITES_BACK)]}
JOB = WindowedJob((2, 2, 2), [*LAP, SYNCHRONIZE], WINDOWS)
ELSEWHERE = [zero(B), zero(C)] * 150  # more than the aligner passes over


def test_laps_are_counted_from_first_launch_to_first_launch(
    job: Job, tmp_path: Path
) -> None:
    status = JOB.run(job, tmp_path, laps(JOB.iteration, 40))
    # In the first one the job is found, and the last one's end is not seen; that of the
    # one before may be.
    assert status.laps in (37, 38)
    assert len(status.lap_ns) == 32
    assert min(status.lap_ns) > 0
    assert status.unlocked_copied_bytes == 0


def test_a_lap_that_was_left_does_not_count(job: Job, tmp_path: Path) -> None:
    steps = laps(JOB.iteration, 20)
    within = 10 * len(JOB.iteration) + 2
    # A comes once, and may not have gone before.
    left = [*steps[:within], *ELSEWHERE, scale(A, A), SYNCHRONIZE, *steps[within:]]
    status = JOB.run(job, tmp_path, left)
    assert status.locks == 2
    assert status.launches_unlocked > 0
    assert status.unlocked_copied_bytes in (2 * PIECE, 4 * PIECE)
    # Nor does the one in which the job is found again.
    assert status.laps in (15, 16)


def test_a_host_that_is_ahead_does_not_make_laps_short(
    job: Job, tmp_path: Path
) -> None:
    ahead = WindowedJob((2, 2, 2), LAP, WINDOWS)
    last = [SYNCHRONIZE, *laps(LAP, 2)]
    status = ahead.run(job, tmp_path, [*laps(LAP, 20), *last], SLOW)
    assert status.laps >= 18
    # Each waits for a copy to the GPU.
    assert median(status.lap_ns) >= SLOW_NS


def test_waiting_for_chunks_is_counted(job: Job, tmp_path: Path) -> None:
    # A copy looks up where memory is when it is submitted: it waits for the load.
    copying = [copy(B, A), scale(B, B), scale(C, C)]
    waiting = WindowedJob((2, 2, 2), copying, {A: [Window(0, 0, 0, 0, LOADS)]})
    status = waiting.run(job, tmp_path, laps(copying, 6), SLOW)
    assert status.held_back_ns > SLOW_NS
