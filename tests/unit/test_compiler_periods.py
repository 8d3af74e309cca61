"""Iterations are found in launch sequences, and only where there are some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.compiler.arrays import Hashes, SegmentHasher
from transit.compiler.periods import (
    MIN_CONFIDENCE,
    Repeats,
    find_repeats,
    join,
    most_common,
)


def launches(text: str) -> Hashes:
    """One letter, one launch."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.uint64)


def found(text: str) -> Repeats:
    repeats = find_repeats(launches(text))
    assert repeats is not None
    assert repeats.confidence >= MIN_CONFIDENCE
    return repeats


def stretches(text: str, repeats: Repeats) -> set[str]:
    return {text[i : i + repeats.launches] for i in repeats.starts.tolist()}


LAYERS = "e" + "fgh" * 12 + "l" + "cbac" * 12 + "uvw"  # forward, loss, backward, update


@pytest.mark.parametrize(
    ("text", "period"),
    [
        (LAYERS * 5, len(LAYERS)),
        ("xyzzy" + LAYERS * 5, len(LAYERS)),  # warm-up
        (LAYERS * 5 + LAYERS[:30], len(LAYERS)),  # not completed
        ("xxyx" * 9 + LAYERS * 5 + LAYERS[:70], len(LAYERS)),
        ("ab" * 10, 2),
        ("aaaaaaaa", 1),
        ("ababb" * 6, 5),  # no launch happens once per iteration
        (("fb" * 8 + "u") * 6, 17),  # gradient accumulation
        (("fb" * 32 + "u") * 6, 65),  # the same, where "fb" alone explains much
    ],
)
def test_the_period_is_found(text: str, period: int) -> None:
    repeats = found(text)
    assert repeats.launches == period
    assert len(stretches(text, repeats)) == 1


def test_a_warm_up_is_not_in_the_iterations() -> None:
    text = "xyzzy" + LAYERS * 5
    assert found(text).starts.min() >= len("xyzzy")


def test_an_evaluation_in_between_is_left_out() -> None:
    text = LAYERS * 7 + "e" + "fgh" * 12 + "l" + LAYERS * 7
    repeats = found(text)
    assert repeats.launches == len(LAYERS)
    assert len(stretches(text, repeats)) == 1
    assert repeats.confidence < 1


def test_a_sequence_without_iterations_has_none() -> None:
    rng = np.random.default_rng(7)
    assert find_repeats(rng.integers(0, 40, 3000).astype(np.uint64)) is None


def test_two_repeats_are_too_few() -> None:
    text = "abcdefghij"
    assert find_repeats(launches(text * 2)) is None


def test_a_loop_in_a_part_of_the_recording_is_no_iteration() -> None:
    rng = np.random.default_rng(7)
    noise = rng.integers(1000, 9000, 400).astype(np.uint64)
    assert find_repeats(np.concatenate([noise, launches("ab" * 20)])) is None


@settings(deadline=None)
@given(
    st.text("abcd", min_size=1, max_size=30),
    st.integers(5, 8),
    st.text("wxyz", max_size=20),
    st.integers(0, 29),
)
def test_any_repeated_sequence_is_found(
    body: str, times: int, warm_up: str, tail: int
) -> None:
    text = warm_up + "*" + (body + "*") * times + body[:tail]
    repeats = find_repeats(launches(text))
    # A long warm-up leaves too little that repeats.
    if repeats is None:
        assert len(warm_up) > len(text) // 5
        return
    assert len(stretches(text, repeats)) == 1
    assert len(repeats.starts) * repeats.launches >= len(text) // 2


@settings(deadline=None)
@given(st.text("abc", min_size=2, max_size=40), st.data())
def test_equal_stretches_hash_alike_wherever_they_are(
    text: str, data: st.DataObject
) -> None:
    hasher = SegmentHasher(launches(text))
    bounds = st.integers(0, len(text) - 1)
    i, j = data.draw(bounds), data.draw(bounds)
    length = data.draw(st.integers(1, len(text) - max(i, j)))
    starts = np.array([i, j])
    first, second = hasher(starts, starts + length)
    assert (first == second) == (text[i : i + length] == text[j : j + length])


def test_most_common_keeps_what_is_equal() -> None:
    text = "abc" + "abc" + "abxc" + "abc"
    starts, stops = np.array([0, 3, 6, 10]), np.array([3, 6, 10, 13])
    repeats = most_common(launches(text), starts, stops)
    assert repeats.starts.tolist() == [0, 3, 10]
    assert (repeats.launches, repeats.confidence) == (3, 0.75)


@pytest.mark.parametrize(
    ("odd", "confidence"),
    [
        (LAYERS * 3 + "x", 1.0),  # one launch more, at the end
        (LAYERS + "xx" + LAYERS * 2, 1.0),
        (LAYERS * 2 + LAYERS[:-1], 1.0),  # one launch less
        (LAYERS + "x" * 30 + LAYERS * 2, 0.75),
        (LAYERS * 2, 0.75),
        ("x" + LAYERS + "x" + LAYERS * 2 + "x", 0.75),  # in several places
    ],
)
def test_a_few_launches_more_or_less_do_not_make_an_iteration_odd(
    odd: str, confidence: float
) -> None:
    usual = LAYERS * 3
    bounds = np.cumsum([0, len(usual), len(odd), len(usual), len(usual)])
    repeats = most_common(
        launches(usual + odd + usual + usual), bounds[:-1], bounds[1:]
    )
    assert repeats.confidence == confidence
    assert repeats.starts.tolist() == [bounds[0], bounds[2], bounds[3]]
    assert repeats.launches == len(usual)


@given(
    gaps=st.lists(st.sampled_from([0, 0, 0, 1, 10, 30]), max_size=20),
    count=st.integers(1, 4),
)
def test_joined_stretches_are_of_whole_ones_side_by_side(
    gaps: list[int], count: int
) -> None:
    starts = np.cumsum(np.array([5, *gaps]) + 10)
    joined = join(Repeats(starts, 10, 1.0, len(starts)), count)
    parts = {
        first
        for first in starts.tolist()
        if {first + 10 * k for k in range(count)} <= set(starts.tolist())
    }
    assert (joined is None) == (not parts)
    if joined:
        kept = joined.starts.tolist()
        assert kept[-1] == max(parts)
        assert set(kept) == {at for at in parts if (kept[-1] - at) % (10 * count) == 0}
        assert joined.launches == 10 * count
