"""Iterations of training loops as people write them, found without any mark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.compiler.arrays import Hashes
from transit.compiler.periods import MIN_CONFIDENCE, find_repeats

UPDATE = 1000


@st.composite
def iterations(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Draw a forward pass, and a whole iteration, of micro-batches and an update."""
    layer = draw(st.lists(st.integers(0, 9), min_size=2, max_size=8))
    layers = draw(st.integers(2, 6))
    forward = [100, *layer * layers]
    backward = [200, *(number + 20 for number in layer[::-1] * layers)]
    optimizers = draw(st.integers(1, 3))
    update = [UPDATE + number for number in range(optimizers) for _ in range(layers)]
    micro_batches = draw(st.integers(1, 4))
    return forward, (forward + backward) * micro_batches + update


def steps(period: list[int], draw: st.DataObject) -> list[list[int]]:
    return [period] * draw.draw(st.integers(14, 24))


def disturbed(
    what: str, forward: list[int], period: list[int], data: st.DataObject
) -> list[list[int]]:
    parts = steps(period, data)
    at = data.draw(st.integers(1, len(parts) - 1))
    if what == "a first step that differs":
        parts[0] = [number + 300 for number in period]
    elif what == "an evaluation in between":
        parts.insert(at, forward * data.draw(st.integers(1, 5)))
    elif what == "a step skipped for an overflow":
        parts[at] = [number for number in period if number < UPDATE]
    elif what == "a last batch of another size":
        parts[-1] = [number + 300 for number in period]
    return parts


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "a first step that differs",
        "an evaluation in between",
        "a step skipped for an overflow",
        "a last batch of another size",
    ],
)
@settings(deadline=None, max_examples=40)
@given(iterations(), st.data())
def test_the_iteration_is_found_in_spite_of(
    what: str, loop: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    forward, period = loop
    sequence = joined(disturbed(what, forward, period, data))
    found = find_repeats(sequence)
    assert found is not None
    assert found.confidence >= MIN_CONFIDENCE
    assert found.launches == len(period)
    for start in found.starts.tolist():
        assert is_rotation(sequence[start : start + found.launches], period)


def joined(parts: list[list[int]]) -> Hashes:
    return np.concatenate([np.array(part, np.uint64) for part in parts])


def is_rotation(stretch: Hashes, period: list[int]) -> bool:
    twice = np.array(period * 2, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(twice, len(period))
    return bool((windows == stretch).all(axis=1).any())


def test_a_copy_after_some_steps_is_not_held_against_the_iterations() -> None:
    period = [100, *range(150), UPDATE]
    parts = [period + [7] * (step in (3, 8, 15)) for step in range(20)]
    found = find_repeats(joined(parts))
    assert found is not None
    assert found.launches == len(period)
    assert found.confidence == 1
