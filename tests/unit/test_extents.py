from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.recorder.extents import (
    CLOCK_TOLERANCE_NS,
    Lifetimes,
    bytes_to_next_base,
)

# Times lie further apart than clocks may differ.
STEP_NS = 3 * CLOCK_TOLERANCE_NS


@st.composite
def _tenants(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Address ranges with lives, as an allocator hands them out: never two at once."""
    ranges: list[tuple[int, int, int, int]] = []
    for _ in range(draw(st.integers(0, 12))):
        address = draw(st.integers(0, 30))
        end = address + draw(st.integers(1, 10))
        born = draw(st.integers(0, 10))
        died = born + draw(st.integers(1, 5))
        if all(
            end <= a or address >= a + n or died <= b or born >= d
            for a, n, b, d in ranges
        ):
            ranges.append((address, end - address, born, died))
    return ranges


@settings(deadline=None)
@given(
    _tenants(),
    st.lists(st.tuples(st.integers(0, 45), st.integers(0, 20)), max_size=20),
)
def test_find_agrees_with_looking_at_every_range(
    ranges: list[tuple[int, int, int, int]], queries: list[tuple[int, int]]
) -> None:
    address, size, born, died = np.array(ranges, np.int64).reshape(-1, 4).T
    lifetimes = Lifetimes(
        address,
        size,
        born * STEP_NS,
        died * STEP_NS - STEP_NS // 2,
        seen_ns=born * STEP_NS,
        birth_seen=np.ones(len(size), np.bool_),
    )
    expected = [
        next(
            (
                row
                for row, (start, length, birth, death) in enumerate(ranges)
                if start <= place < start + length and birth <= time < death
            ),
            -1,
        )
        for place, time in queries
    ]
    places, times = np.array(queries, np.int64).reshape(-1, 2).T
    assert lifetimes.find(places, times * STEP_NS).tolist() == expected


def test_the_nearest_life_is_taken_when_clocks_differ() -> None:
    same = np.zeros(2, np.int64)
    born = np.array([0, 10 * STEP_NS])
    died = np.array([5 * STEP_NS, 20 * STEP_NS])
    lifetimes = Lifetimes(same, same + 8, born, died, born, same == same)
    near = CLOCK_TOLERANCE_NS
    times = np.array(
        [
            died[0] + near,
            died[0] + near + 1,
            born[1] - near - 1,
            born[1] - near,
            died[1] + near,
            died[1] + near + 1,
        ]
    )
    found = lifetimes.find(np.full(len(times), 3), times)
    assert found.tolist() == [0, -1, -1, 1, 1, -1]


@settings(deadline=None)
@given(st.lists(st.integers(0, 99), min_size=1))
def test_bytes_to_next_base_agrees_with_looking_at_every_base(bases: list[int]) -> None:
    # Allocations of 50 bytes in a line.
    places = np.array(bases, np.int64)
    ends = (places // 50 + 1) * 50
    expected = [
        min([base for base in bases if base > place] + [place // 50 * 50 + 50]) - place
        for place in bases
    ]
    assert bytes_to_next_base(np.unique(places), places, ends).tolist() == expected
