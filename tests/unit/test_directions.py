"""Directions of accesses: by what changed, by faults, and by the same launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import spool_factory as factory
from hypothesis import given
from hypothesis import strategies as st
from spool_factory import BASE, MIB, NOW_NS, access

from transit.recorder.directions import READ, WRITTEN, Named, Pieces, judge
from transit.traces.reader import Trace

MS = 1_000_000
UNKNOWN = ("unknown", None)
ITERATION_END, PURPOSE_CHANGED, DIRECTION, AUDIT = 2, 5, 1, 2


def piece(launch_id: int, offset: int, size: int, changed: int) -> dict[str, Any]:
    return {
        "launch_id": launch_id,
        "address": BASE + offset,
        "bytes": size,
        "is_changed": changed,
    }


def block(action: int, ms: float, offset: int, size: int = MIB) -> dict[str, Any]:
    return {
        "action": action,
        "host_ns": NOW_NS + int(ms * MS),
        "address": BASE + offset,
        "bytes": size,
    }


def parameter(launch_id: int, offset: int, slot: int = 0) -> dict[str, Any]:
    return access(launch_id, offset, param_offset=8 * slot)


def marks(
    length: int, launches: int, *purposes: int, start: int = 0
) -> list[dict[str, Any]]:
    """Return marks of iterations of `length` launches, one of them for each purpose."""
    rows = [{"kind": 1, "host_ns": NOW_NS}]
    for step, first in enumerate(range(start, launches + 1, length)):
        rows.append({"kind": ITERATION_END, "launch_id": first, "value": step + 1})
        if step < len(purposes):
            value = purposes[step]
            row = {"kind": PURPOSE_CHANGED, "launch_id": first, "value": value}
            rows.append(row)
    return rows


def record(path: Path, launches: int, **files: Any) -> Trace:
    names = [
        *factory.name_pieces(0, "Test GPU"),
        *factory.name_pieces(2, "libcudart.so.13"),
        *factory.name_pieces(1, "kernel"),
        *factory.name_pieces(3, "other"),
    ]
    common = {
        "launch": [factory.launch(index) for index in range(launches)],
        "activity": [factory.activity(index) for index in range(launches)],
        "name": names,
    }
    return factory.trace(path, **(common | files))


def directions(trace: Trace) -> dict[tuple[int, int], tuple[str, str | None]]:
    rows = trace.table(0, "accesses").to_pylist()
    return {
        (row["launch_id"], row["offset"]): (row["direction"], row["direction_source"])
        for row in rows
    }


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


def test_the_first_access_of_a_new_block_that_changes_it_only_writes(
    tmp_path: Path,
) -> None:
    new, named_before, old, reused, alive = (MIB * index for index in range(5))
    kernels = [factory.launch(index, name_id=1) for index in range(6)]
    trace = record(
        tmp_path,
        6,
        launch=kernels,
        mark=marks(6, 6, DIRECTION),
        block=[
            block(1, 0.5, new),
            block(1, 0.5, named_before),
            block(3, -1, old),
            block(3, -1, reused),
            block(2, 2.5, reused),
            block(1, 2.95, reused),  # the launch at 2 ms was of the one before
            block(1, 5.01, alive),  # after the launch, though the clocks may differ
        ],
        access=[
            *(parameter(1, new), parameter(2, new)),
            access(1, named_before + 8, source=3, direction=2, bytes=64),
            parameter(2, named_before, 1),
            parameter(2, old, 2),
            *(parameter(2, reused, 3), parameter(4, reused, 4)),
            parameter(5, alive, 5),
        ],
        checksum=[piece(launch, 0, 5 * MIB, 1) for launch in range(6)],
    )
    found = {key: value[0] for key, value in directions(trace).items()}
    assert found == {
        (1, new): "write",
        (2, new): "both",
        (1, named_before + 8): "write",  # of the call
        (2, named_before): "both",
        (2, old): "both",
        (2, reused): "both",
        (4, reused): "write",
        (5, alive): "both",
    }


def test_a_block_of_which_no_birth_was_seen_may_have_been_read(tmp_path: Path) -> None:
    begin_ns = NOW_NS + MS // 2
    trace = record(
        tmp_path,
        2,
        mark=marks(2, 2, DIRECTION),
        history=[{"device": 0, "begin_ns": begin_ns, "end_ns": 2 * NOW_NS}],
        block=[block(3, 0.5, 0)],
        access=[parameter(1, 0)],
        checksum=[piece(1, 0, MIB, 1)],
    )
    assert directions(trace) == {(1, 0): ("both", "checksum")}


def test_of_two_places_of_one_parameter_both_must_be_known(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        1,
        mark=marks(1, 1, DIRECTION),
        access=[parameter(0, 0), parameter(0, 8 * MIB)],
        checksum=[piece(0, 0, 8 * MIB, 0)],
    )
    assert directions(trace) == {(0, 0): UNKNOWN, (0, 8 * MIB): UNKNOWN}


def test_directions_are_those_of_the_same_launches_of_other_iterations(
    tmp_path: Path,
) -> None:
    # Two iterations of A A B, one of A B A A, the inspected one, and an end.
    names = [1, 1, 3, 1, 1, 3, 1, 3, 1, 1, 1, 1, 3, 1]
    starts = [0, 3, 6, 10, 13]
    ends = [
        {"kind": ITERATION_END, "launch_id": first, "value": step + 1}
        for step, first in enumerate(starts)
    ]
    inspect = {"kind": PURPOSE_CHANGED, "launch_id": 10, "value": DIRECTION}
    at = [MIB * (index % 4) for index in range(len(names))]  # memory moves
    trace = record(
        tmp_path,
        len(names),
        launch=[factory.launch(i, name_id=name) for i, name in enumerate(names)],
        mark=[{"kind": 1, "host_ns": NOW_NS}, *ends[:4], inspect, ends[4]],
        access=[parameter(index, at[index], index % 2) for index in range(3)]
        + [parameter(index, at[index], (index - 3) % 2) for index in range(3, 6)]
        + [parameter(index, at[index]) for index in range(6, 10)]
        + [parameter(index, at[index], (index - 10) % 2) for index in range(10, 14)],
        checksum=[
            piece(10, at[10], 16 * MIB, 0),
            piece(11, at[11], 16 * MIB, 1),
            piece(12, at[12], 16 * MIB, 0),
        ],
    )
    found = {launch: value for (launch, _), value in directions(trace).items()}
    read, both = ("read", "checksum"), ("both", "checksum")
    assert [found[index] for index in range(6)] == [read, both, read] * 2
    assert found[6] == UNKNOWN  # three of A there, not two
    assert found[7] == read  # one of B in both
    assert [found[index] for index in (8, 9)] == [UNKNOWN] * 2
    assert [found[index] for index in (10, 11, 12)] == [read, both, read]
    assert found[13] == UNKNOWN  # not a whole iteration


def test_nodes_of_a_graph_share_what_changed(tmp_path: Path) -> None:
    read, alone, shared = 0, 4 * MIB, 8 * MIB
    key = (5 << 32) + np.arange(3)
    trace = record(
        tmp_path,
        2,
        launch=[factory.launch(0), factory.launch(1, kind=4)],
        graph_launch=[{"launch_id": 1, "graph": 5}],
        graph_node=[
            {"graph": 5, "node": node, "kind": 1, "name_id": 1 if node else 3}
            for node in range(3)
        ],
        graph_access=[
            access(key[0], read, param_offset=0),
            access(key[1], read, param_offset=8),
            access(key[0], alone, param_offset=16),
            access(key[1], shared, param_offset=24),
            access(key[2], shared, param_offset=32),
        ],
        access=[],
        block=[block(1, 0.5, alone, 4 * MIB)],
        mark=marks(2, 2, DIRECTION),
        checksum=[piece(1, 0, 4 * MIB, 0), piece(1, alone, 12 * MIB, 1)],
    )
    rows = trace.table(0, "accesses").to_pylist()
    found = {(r["graph_node"], r["offset"]): r["direction"] for r in rows}
    assert found == {
        (0, read): "read",
        (1, read): "read",
        (0, alone): "both",  # each launch of the graph uses it again
        (1, shared): "unknown",
        (2, shared): "unknown",
    }


def fault(launch_id: int, offset: int, access: int) -> dict[str, Any]:
    time_ns = NOW_NS + launch_id * MS + 6_000
    return {
        "start_ns": time_ns,
        "end_ns": time_ns + 10,
        "address": BASE + offset,
        "value": 1,
        "counter_kind": 4,
        "flags": access,
        "src_id": 0,
    }


READ_FAULT, WRITE_FAULT, ATOMIC_FAULT = 1, 2, 3


def test_faults_tell_of_writes_that_change_nothing(tmp_path: Path) -> None:
    """In the audit iteration, the second here; the first was hashed."""
    loaded, stored, added, mixed = (4 * MIB * index for index in range(4))
    places = (loaded, stored, added, mixed, mixed + 512)
    trace = record(
        tmp_path,
        2,
        mark=marks(1, 2, DIRECTION, AUDIT),
        allocation=[factory.allocation(0, api=7)],
        access=[
            parameter(launch, offset, slot)
            for launch in (0, 1)
            for slot, offset in enumerate(places)
        ],
        checksum=[piece(0, 0, 16 * MIB, 0)],
        uvm=[
            fault(1, loaded, READ_FAULT),
            fault(1, stored + 8192, WRITE_FAULT),
            fault(1, added, ATOMIC_FAULT),
            fault(1, mixed, WRITE_FAULT),  # one of the two in the page
        ],
    )
    read = ("read", "checksum")
    both = ("both", "fault")
    for launch in (0, 1):
        found = directions(trace)
        assert [found[launch, offset] for offset in places] == [
            *(read, both, both),
            *(UNKNOWN, UNKNOWN),
        ]


def test_an_audit_alone_tells_what_is_written(tmp_path: Path) -> None:
    trace = record(
        tmp_path,
        2,
        mark=marks(1, 2, 0, AUDIT),
        allocation=[factory.allocation(0, api=7)],
        access=[parameter(i, 8 * MIB * slot, slot) for i in (0, 1) for slot in (0, 1)],
        uvm=[fault(1, 0, READ_FAULT), fault(1, 8 * MIB, WRITE_FAULT)],
    )
    found = directions(trace)
    for launch in (0, 1):
        assert found[launch, 0] == UNKNOWN
        assert found[launch, 8 * MIB] == ("both", "fault")


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
    found = judge(named, Pieces(*looked_at, changed), outside >= 0)

    for (launch_id, start, length), verdict in zip(places, found, strict=True):
        own = set(range(start, start + length))
        seen: dict[bool, set[int]] = {False: set(), True: set()}
        for (piece_launch, begin, piece_length), is_changed in pieces:
            if piece_launch == launch_id:
                seen[is_changed] |= set(range(begin, begin + piece_length))
        assert (verdict == WRITTEN) == bool(own & seen[True])
        assert (verdict == READ) == (not own & seen[True] and own <= seen[False])
