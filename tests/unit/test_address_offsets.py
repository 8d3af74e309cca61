"""Where allocations lie in replay: in order, apart, and not where numbers point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transit.compiler.placements import address_offsets
from transit.compiler.plan import PIECE_BYTES

FOUR_GIB = 1 << 32
places = st.lists(
    st.tuples(st.integers(0, 8000), st.integers(1, 120), st.booleans()),
    min_size=1,
    max_size=12,
)


def offsets_of(rows: list[tuple[int, int, bool]]) -> list[int]:
    address = [7 * FOUR_GIB + at * PIECE_BYTES + shares * 512 for at, _, shares in rows]
    found = address_offsets(np.array(address), np.array([size for _, size, _ in rows]))
    assert None not in found
    return [offset or 0 for offset in found]


@given(places)
def test_order_and_distance_stay(rows: list[tuple[int, int, bool]]) -> None:
    offsets = offsets_of(rows)
    for (at, size, shares), offset in zip(rows, offsets, strict=True):
        assert offset % PIECE_BYTES == 0
        for (other_at, _, other_shares), other in zip(rows, offsets, strict=True):
            if shares or other_shares:
                continue
            distance = (other_at - at) * PIECE_BYTES
            if 0 <= distance < size * PIECE_BYTES:
                assert other - offset == distance
            elif distance > 0:
                assert other - offset >= distance


@given(places)
def test_nothing_lies_where_a_number_with_half_an_address_points(
    rows: list[tuple[int, int, bool]],
) -> None:
    if any(shares for *_, shares in rows):
        rows = [(at * 301, size, shares) for at, size, shares in rows]
    for (_, size, _), offset in zip(rows, offsets_of(rows), strict=True):
        begin, end = offset % FOUR_GIB, offset % FOUR_GIB + size * PIECE_BYTES
        assert begin >= 100_000_000
        assert end <= FOUR_GIB - PIECE_BYTES


@given(places)
def test_what_shared_a_piece_has_pieces_of_its_own(
    rows: list[tuple[int, int, bool]],
) -> None:
    offsets = offsets_of(rows)
    taken = [
        (offset, offset + size * PIECE_BYTES, shares)
        for (_, size, shares), offset in zip(rows, offsets, strict=True)
    ]
    for index, (begin, end, shares) in enumerate(taken):
        for other_begin, other_end, _ in taken[:index] + taken[index + 1 :]:
            assert not shares or end <= other_begin or other_end <= begin


def test_what_is_larger_than_all_there_is_between_goes_across() -> None:
    pieces = FOUR_GIB // PIECE_BYTES
    offsets = address_offsets(np.array([0, FOUR_GIB]), np.array([pieces, 1]))
    assert offsets == [offsets[0], pytest.approx(FOUR_GIB, abs=FOUR_GIB)]
    assert (offsets[1] or 0) >= (offsets[0] or 0) + FOUR_GIB
