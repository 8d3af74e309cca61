"""Launches of the plan that name other addresses than the plan has for them."""

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
    with_stale,
)

LAPS = 12
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "3000"}
A, B, C, D = ((buffer, 0, 2) for buffer in range(4))

FIRST = scale(A, C)
REST = [scale(B, A), scale(C, B), scale(D, C), scale(C, D), copy(D, C)]
# A is dead from the second launch on, and gone in the end; B is kept.
WINDOWS = {
    A: [Window(0, 0, 1, 0, 0)],
    B: [Window(0, 1, 2, 2, LOADS | WRITES_BACK)],
}


def dead_bytes(num_bytes: int) -> int:
    """Return what was copied without B, which moves once a lap."""
    return num_bytes - LAPS * 2 * PIECE


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("stale", [D, B])
def test_a_word_more_does_not_change_what_moves(
    job: Job, tmp_path: Path, stale: tuple[int, int, int], copies: str
) -> None:
    """As a kernel's parameters may hold what was on the stack before."""
    iteration = [FIRST, *REST]
    named = [with_stale(FIRST, stale), *REST]
    windowed = WindowedJob((2, 2, 2, 2), iteration, WINDOWS)
    steps = [*laps(iteration, 2), *laps(named, LAPS), free(0)]
    status = windowed.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.locks == 1
    assert status.launches_elsewhere == LAPS
    # Copied until the iteration is recognised, and for two laps after that.
    assert dead_bytes(status.h2d_bytes) <= LAPS // 2 * 2 * PIECE
    assert dead_bytes(status.d2h_bytes) <= LAPS // 2 * 2 * PIECE


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("stale", [D, B])
def test_a_word_less_is_no_loss(
    job: Job, tmp_path: Path, stale: tuple[int, int, int], copies: str
) -> None:
    """Whether it overwrites what it should is not known then: that is loaded."""
    iteration = [with_stale(FIRST, stale), *REST]
    windowed = WindowedJob((2, 2, 2, 2), iteration, WINDOWS)
    steps = [*laps(iteration, 2), *laps([FIRST, *REST], LAPS), free(0)]
    status = windowed.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.locks == 1
    assert status.launches_elsewhere == LAPS
    assert dead_bytes(status.h2d_bytes) >= (LAPS - 3) * 2 * PIECE


@pytest.mark.parametrize("copies", ["quick", "slow"])
def test_a_launch_that_is_taken_for_another_one_may_write(
    job: Job, tmp_path: Path, copies: str
) -> None:
    # The one after the copy reads A only; the next one, which looks alike, writes it.
    alike = [scale(B, A), scale(A, C)]
    iteration = [copy(C, A), *alike, copy(D, A), scale(C, B)]
    windows = {
        A: [Window(0, 0, 1, 1, LOADS), Window(2, 2, 3, 2, WRITES_BACK)],
        B: [Window(1, 1, 4, 1, WRITES_BACK)],
    }
    windowed = WindowedJob((2, 2, 2, 2), iteration, windows)
    steps: list[Step] = laps(iteration, 4)
    for lap in range(4, 8):
        own = laps(iteration, lap + 1)[-len(iteration) :]
        steps += own[:1] + own[1 + lap % 2 :]
    status = windowed.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.launches_elsewhere >= 2


@pytest.mark.parametrize("copies", ["quick", "slow"])
@pytest.mark.parametrize("stale", [D, B])
def test_words_without_an_address_do_not_count(
    job: Job, tmp_path: Path, stale: tuple[int, int, int], copies: str
) -> None:
    iteration = [FIRST, *REST]
    named = [with_stale(FIRST, stale), *REST]
    windowed = WindowedJob((2, 2, 2, 2), iteration, WINDOWS, words={"scale": [0, 8]})
    steps = [*laps(iteration, 2), *laps(named, LAPS), free(0)]
    status = windowed.run(job, tmp_path, steps, SLOW if copies == "slow" else None)
    assert status.message == ""
    assert status.locks == 1
    assert status.launches_elsewhere == 0


def test_other_launches_may_use_any_word(job: Job, tmp_path: Path) -> None:
    """What a call that the plan does not have names is all it may use."""
    iteration = [FIRST, *REST]
    windowed = WindowedJob((2, 2, 2, 2), iteration, WINDOWS, words={"scale": [8]})
    inserted = [scale(B, D), scale(D, B)]
    steps = [*laps(iteration, 6)]
    for lap in laps(iteration, 3), laps(iteration, 3):
        steps += [*lap, *inserted]
    status = windowed.run(job, tmp_path, steps, SLOW)
    assert status.message == ""
