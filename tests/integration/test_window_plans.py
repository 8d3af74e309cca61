"""What the shim does with windows: the job reads what it would have without."""

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
    copy,
    free,
    laps,
    scale,
    upload,
)

LAPS = 8
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "4000"}
A, B, C = (0, 0, 2), (1, 0, 2), (2, 0, 2)
UPPER_A = (0, 1, 1)
PIECES = (2, 2, 2)

KINDS = {
    # the part's windows, and the iteration
    "dirty": (
        Window(0, 0, 1, 1, LOADS | WRITES_BACK),
        [scale(A, A), scale(A, A), copy(B, C)],
    ),
    "clean": (Window(0, 0, 0, 0, LOADS), [scale(B, A), scale(C, B), scale(B, C)]),
    "dead from its end to its begin": (
        Window(1, 1, 2, 2, 0),
        [scale(B, B), copy(A, B), scale(C, A)],
    ),
    "around the end": (
        Window(2, 2, 0, 0, LOADS | WRITES_BACK),
        [scale(A, A), scale(B, B), scale(A, A), copy(B, A)][:3],
    ),
    "issued before the end": (
        Window(2, 0, 0, 0, LOADS | WRITES_BACK),
        [scale(A, A), scale(B, B), scale(C, B)],
    ),
    "stored early": (
        Window(0, 0, 2, 0, LOADS | WRITES_BACK),
        [scale(A, A), copy(B, A), scale(C, A), scale(C, B)],
    ),
    "written, read at home, and written anew": (
        Window(0, 0, 0, 0, WRITES_BACK, home=2),
        [copy(A, B), scale(C, C), scale(B, A), scale(C, B)],
    ),
    "written at home": (
        Window(2, 2, 3, 3, LOADS, home=0),
        [scale(A, A), scale(C, C), scale(B, A), scale(C, B)],
    ),
    "used at home at once": (
        Window(3, 0, 0, 0, LOADS | WRITES_BACK, home=1),
        [scale(A, A), scale(A, A), copy(B, C), scale(C, B)],
    ),
    "an input": (
        Window(0, 0, 1, 1, 0),
        [upload(A, 1), scale(B, A), scale(C, B), scale(B, C)],
    ),
}


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_in_a_window_is_what_it_was(
    job: Job, tmp_path: Path, kind: str, copies: str
) -> None:
    window, iteration = KINDS[kind]
    windowed = WindowedJob(PIECES, iteration, {A: [window]})
    # What is dead is dropped.
    is_dead = not window.flags
    steps = laps(iteration, LAPS) + [free(0)] * is_dead
    status = windowed.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.locks == 1
    # Found at the end of the first lap, or within the next.
    assert status.launches_planned >= (LAPS - 2) * len(iteration)
    assert status.launches_elsewhere == status.launches_skipped == 0
    assert status.windowed_peak_bytes == 2 * PIECE
    assert status.windowed_bytes == 0 or status.frees_seen == 0
    assert status.resident_peak_bytes <= 6 * PIECE
    loads, stores = bool(window.flags & LOADS), bool(window.flags & WRITES_BACK)
    assert in_laps(status.h2d_bytes, loads)
    assert in_laps(status.d2h_bytes, stores)


def in_laps(num_bytes: int, is_every_lap: bool) -> bool:
    """Whether so much is copied each lap; what is not known is copied in any case."""
    num_copies = num_bytes // (2 * PIECE)
    return LAPS - 2 <= num_copies <= LAPS + 2 if is_every_lap else num_copies <= 3


@pytest.mark.parametrize("in_one_call", [False, True])
def test_an_address_is_the_gpus_while_its_memory_is_nowhere(
    job: Job, tmp_path: Path, in_one_call: bool
) -> None:
    ask: Step = {"op": "ask", "of": A, "in_one_call": in_one_call}
    synchronize: Step = {"op": "synchronize"}
    away = [scale(B, B), synchronize, ask, scale(C, C), synchronize, ask]
    iteration = [scale(A, A), *away, scale(B, C), synchronize, ask]
    windowed = WindowedJob(
        PIECES, iteration, {A: [Window(0, 0, 0, 0, LOADS | WRITES_BACK)]}
    )
    status = windowed.run(job, tmp_path, laps(iteration, 4 * LAPS))
    assert status.message == ""
    assert status.locks == 1


@pytest.mark.parametrize("first", [0, 1])
def test_steps_that_differ_in_their_memory_only_are_told_apart(
    job: Job, tmp_path: Path, first: int
) -> None:
    """An allocator goes back and forth between A and B."""
    steps = [[scale(part, part), scale(C, C), scale(C, part)] for part in (A, B)]
    windows = {
        A: [Window(5, 0, 2, 0, LOADS | WRITES_BACK)],
        B: [Window(2, 3, 5, 3, LOADS | WRITES_BACK)],
    }
    windowed = WindowedJob(PIECES, [*steps[0], *steps[1]], windows, 5 * PIECE, steps=2)
    job_steps = laps([*steps[first], *steps[1 - first]], LAPS)
    status = windowed.run(job, tmp_path, job_steps)
    assert status.locks == 1
    assert status.launches_elsewhere == 0
    assert status.steps_per_lap == 2
    assert status.launches_planned >= (LAPS - 2) * len(windowed.iteration)
    assert status.loads_without_room == 0
