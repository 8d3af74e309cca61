"""Directions by what changed: which places of a launch were read, which written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import spool_factory as factory
from hypothesis import given
from hypothesis import strategies as st
from inspected_spools import (
    DIRECTION,
    UNKNOWN,
    directions,
    marks,
    parameter,
    piece,
    record,
)
from spool_factory import MIB, access

from transit.recorder.directions import READ, WRITTEN, Named, Pieces, judge


def test_what_changed_was_written_and_the_rest_read(tmp_path: Path) -> None:
    read, written, partly, missing, call = (MIB * index for index in range(5))
    places = (read, written, partly, missing)
    trace = record(
        tmp_path,
        1,
        mark=marks(1, 1, DIRECTION),
        access=[
            *(parameter(0, offset, slot) for slot, offset in enumerate(places)),
            access(0, call, source=2, direction=1, bytes=MIB),
        ],
        checksum=[
            piece(0, read, MIB // 2, 0),
            piece(0, read + MIB // 2, MIB // 2, 0),
            piece(0, written, MIB, 1),
            piece(0, partly, MIB // 2, 0),
            piece(0, partly + MIB // 2, MIB // 4, 1),
            piece(0, missing, MIB // 2, 0),
            piece(0, missing + MIB // 2 + 1, MIB // 2 - 1, 0),
        ],
    )
    assert directions(trace) == {
        (0, read): ("read", "checksum"),
        (0, written): ("both", "checksum"),
        (0, partly): ("both", "checksum"),
        (0, missing): UNKNOWN,
        (0, call): ("read", "call"),
    }


def test_pieces_belong_to_their_launch(tmp_path: Path) -> None:
    kernels = [factory.launch(0), factory.launch(1, name_id=3)]
    trace = record(
        tmp_path,
        2,
        launch=kernels,
        mark=marks(2, 2, DIRECTION),
        access=[parameter(0, 0), parameter(1, 0)],
        checksum=[piece(1, 0, 16 * MIB, 1), piece(0, 0, 16 * MIB, 0)],
    )
    assert directions(trace) == {
        (0, 0): ("read", "checksum"),
        (1, 0): ("both", "checksum"),
    }


def test_a_parameter_that_changes_elsewhere_is_not_trusted_to_be_read(
    tmp_path: Path,
) -> None:
    trace = record(
        tmp_path,
        3,
        launch=[factory.launch(0), factory.launch(1), factory.launch(2, name_id=3)],
        mark=marks(3, 3, DIRECTION),
        access=[
            *(parameter(0, 0, 0), parameter(0, 8 * MIB, 1)),
            *(parameter(1, 0, 0), parameter(1, 8 * MIB, 1)),
            *(parameter(2, 0, 0), parameter(2, 8 * MIB, 1)),
        ],
        checksum=[piece(launch, 0, 16 * MIB, 0) for launch in (0, 2)]
        + [piece(1, 0, 8 * MIB, 1), piece(1, 8 * MIB, 8 * MIB, 0)],
    )
    found = directions(trace)
    assert found[0, 0] == ("both", "checksum")  # multiplied by one, perhaps
    assert found[0, 8 * MIB] == ("read", "checksum")
    assert found[2, 0] == ("read", "checksum")  # another kernel


def in_place(tmp_path: Path, *, also_elsewhere: bool) -> dict[tuple[int, int], str]:
    """Record a kernel of an output and an input that are the same, and not.

    Of the second launch nothing changes, whether it writes or not.
    """
    both, x, out, other = (8 * MIB * index for index in range(4))
    places = {0: (both, both), 1: (x, x), 2: (out, other)}
    launches = (0, 1, 2) if also_elsewhere else (0, 1)
    trace = record(
        tmp_path,
        len(launches),
        allocation=[factory.allocation(0, bytes=32 * MIB)],
        mark=marks(len(launches), len(launches), DIRECTION),
        access=[
            parameter(launch, offset, slot) | {"bytes": 8 * MIB}
            for launch in launches
            for slot, offset in enumerate(places[launch])
        ],
        checksum=[
            piece(0, both, 8 * MIB, 1),
            piece(1, x, 8 * MIB, 0),
            piece(2, out, 8 * MIB, 1),
            piece(2, other, 8 * MIB, 0),
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    return {(row["launch_id"], row["offset"]): row["direction"] for row in rows}


def test_the_input_of_a_kernel_in_place_is_not_taken_for_its_output(
    tmp_path: Path,
) -> None:
    known = in_place(tmp_path / "known", also_elsewhere=True)
    assert known[0, 0] == "both"
    assert known[2, 24 * MIB] == "read"


def test_of_a_kernel_always_in_place_either_parameter_may_write(
    tmp_path: Path,
) -> None:
    assert set(in_place(tmp_path, also_elsewhere=False).values()) == {"both"}


def test_of_two_places_of_one_parameter_both_must_be_known(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        1,
        mark=marks(1, 1, DIRECTION),
        access=[parameter(0, 0), parameter(0, 8 * MIB)],
        checksum=[piece(0, 0, 8 * MIB, 0)],
    )
    assert directions(trace) == {(0, 0): UNKNOWN, (0, 8 * MIB): UNKNOWN}


def test_the_summary_says_for_how_much_directions_are_known(tmp_path: Path) -> None:
    factory.small_spool(
        tmp_path / "spool-1",
        mark=marks(2, 2, DIRECTION),
        access=[
            *(parameter(0, 0, 0), parameter(0, 8 * MIB, 1)),
            access(1, 0, source=2, direction=1, bytes=2 * MIB),
        ],
        checksum=[piece(0, 0, 8 * MIB, 0)],
    )
    line = factory.convert_spools(tmp_path).directions
    assert line == (
        "direction known for 55.5 % of the accessed bytes"
        " (checksum 44.4 %, call 11.1 %)"
    )


def test_nothing_is_said_without_an_inspected_iteration(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        1,
        mark=marks(1, 1),
        access=[parameter(0, 0)],
        checksum=[piece(0, 0, 16 * MIB, 1)],
    )
    assert directions(trace) == {(0, 0): UNKNOWN}


_RANGES = st.tuples(st.integers(0, 3), st.integers(0, 24), st.integers(1, 12))


@given(
    st.lists(st.tuples(_RANGES, st.booleans()), max_size=12),
    st.lists(_RANGES, max_size=8),
)
def test_only_what_is_covered_and_unchanged_is_read(
    pieces: list[tuple[tuple[int, int, int], bool]], places: list[tuple[int, int, int]]
) -> None:
    looked_at = np.array([place for place, _ in pieces], np.int64).reshape(-1, 3).T
    changed = np.array([changed for _, changed in pieces], np.bool_)
    launch, address, size = np.array(places, np.int64).reshape(-1, 3).T
    outside = np.full(len(launch), -1)
    named = Named(launch, outside, outside, address, size)
    found, _ = judge(named, Pieces(*looked_at, changed))

    for (launch_id, start, length), verdict in zip(places, found, strict=True):
        own = set(range(start, start + length))
        seen: dict[bool, set[int]] = {False: set(), True: set()}
        for (piece_launch, begin, piece_length), is_changed in pieces:
            if piece_launch == launch_id:
                seen[is_changed] |= set(range(begin, begin + piece_length))
        assert (verdict == WRITTEN) == bool(own & seen[True])
        assert (verdict == READ) == (not own & seen[True] and own <= seen[False])
