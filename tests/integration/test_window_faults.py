"""Windows when the driver says no: the right numbers all the same, and words."""

from __future__ import annotations

from pathlib import Path

import pytest
from shim_job import PIECE, Job
from windowed_plans import (
    LOADS,
    WRITES_BACK,
    Window,
    WindowedJob,
    laps,
    scale,
)

LAPS = 8
DIRTY = LOADS | WRITES_BACK
A, B, C = ((buffer, 0, 2) for buffer in range(3))
ITERATION = [
    scale(A, A),
    scale(B, A),
    scale(C, C),
    scale(C, B),
    scale(B, B),
    scale(C, B),
]
# A is written early and used at home later; B is clean in its second window.
JOB = WindowedJob(
    (2, 2, 2),
    ITERATION,
    {
        A: [Window(5, 0, 1, 0, DIRTY)],
        B: [Window(0, 1, 1, 1, WRITES_BACK, home=3), Window(4, 4, 5, 4, DIRTY)],
    },
)
# When moves call it. Memory of the GPU that was created once is used again and again.
MOVING = {
    "cuMemCreate": (4,),
    "cuMemMap": (8, 11, 15),
    "cuMemSetAccess": (8, 11, 15),
    "cuMemUnmap": (1, 4, 8),
    "cuMemcpyDtoDAsync": (4, 7, 11),
}


@pytest.mark.parametrize(
    ("symbol", "count"),
    [(symbol, count) for symbol, counts in MOVING.items() for count in counts],
)
def test_a_move_that_fails_is_said_and_loses_nothing(
    job: Job, tmp_path: Path, symbol: str, count: int
) -> None:
    env = {"TRANSIT_SIM_FAIL": f"{symbol}:{count}=2"}
    status = JOB.run(job, tmp_path, laps(ITERATION, LAPS), env)
    assert status.transfer_failures == 1
    assert "a window" in status.message
    assert symbol in status.message
    assert "CUDA_ERROR_OUT_OF_MEMORY" in status.message


@pytest.mark.parametrize("symbol", ["cuEventRecord", "cuEventCreate"])
@pytest.mark.parametrize("count", ["*", "1", "7"])
def test_without_events_work_is_waited_for(
    job: Job, tmp_path: Path, symbol: str, count: str
) -> None:
    env = {
        "TRANSIT_SIM_FAIL": f"{symbol}:{count}=2",
        "TRANSIT_SIM_SLOW_COPY_US": "2000",
    }
    status = JOB.run(job, tmp_path, laps(ITERATION, LAPS), env)
    assert status.h2d_bytes > 0
    assert status.transfer_failures == 0


@pytest.mark.parametrize("count", ["*", "2"])
def test_a_stream_that_cannot_wait_is_waited_for(
    job: Job, tmp_path: Path, count: str
) -> None:
    env = {
        "TRANSIT_SIM_FAIL": f"cuStreamWaitValue32:{count}=2",
        "TRANSIT_SIM_SLOW_COPY_US": "2000",
    }
    status = JOB.run(job, tmp_path, laps(ITERATION, LAPS), env)
    assert status.h2d_bytes > 0
    assert status.gates > 0


def test_without_room_a_chunk_stays_at_home(job: Job, tmp_path: Path) -> None:
    # B and C are resident and leave A one piece of the two that it takes.
    windowed = WindowedJob(
        (2, 2, 2), ITERATION, {A: [Window(5, 0, 1, 1, DIRTY)]}, 5 * PIECE
    )
    status = windowed.run(job, tmp_path, laps(ITERATION, 3))
    assert status.loads_without_room >= 1
    assert status.resident_peak_bytes <= 5 * PIECE
    assert status.h2d_bytes == 0


def test_a_gpu_as_large_as_the_budget_is_enough(job: Job, tmp_path: Path) -> None:
    """What leaves one chunk and is of no use to the next goes back to the driver."""
    large = (1, 0, 3)
    iteration = [scale(A, A), scale(C, C), scale(large, large), scale(C, C)]
    windows = {A: [Window(3, 0, 0, 0, DIRTY)], large: [Window(1, 2, 2, 2, DIRTY)]}
    budget_bytes = 5 * PIECE
    windowed = WindowedJob((2, 3, 2), iteration, windows, budget_bytes)
    env = {"TRANSIT_SIM_GPU_MEMORY": str(budget_bytes)}
    status = windowed.run(job, tmp_path, laps(iteration, LAPS), env)
    assert status.message == ""
    assert status.locks == 1
    assert status.transfer_failures == status.loads_without_room == 0
    assert status.h2d_bytes > LAPS * PIECE
