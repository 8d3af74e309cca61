"""Memory in a converted trace: accesses, allocations, blocks and managed memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spool_factory as factory
from spool_factory import BASE, MIB, NOW_NS


def test_parameters_reach_to_the_next_base_without_a_history(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        access=[
            factory.access(1, 8 * MIB),
            factory.access(0, 0),
            factory.access(0, 2 * MIB),
            factory.access(1, 2 * MIB),
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    assert [(r["launch_id"], r["offset"], r["bytes"], r["extent"]) for r in rows] == [
        (0, 0, 2 * MIB, "gap"),
        (0, 2 * MIB, 6 * MIB, "gap"),
        (1, 2 * MIB, 6 * MIB, "gap"),
        (1, 8 * MIB, 8 * MIB, "gap"),
    ]
    assert {row["source"] for row in rows} == {"parameter"}
    assert {row["direction"] for row in rows} == {"unknown"}


def test_copies_and_sets_are_exact(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=[factory.launch(0, kind=2), factory.launch(1, kind=3)],
        access=[
            factory.access(0, 4096, bytes=100, source=2, direction=1),
            factory.access(1, 16 * MIB - 8, bytes=9, source=3, direction=2),
            factory.access(1, 0, source=3, direction=2),  # a 2D set: only the start
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    found = [(r["bytes"], r["extent"], r["direction"], r["source"]) for r in rows]
    assert found == [
        (100, "exact", "read", "copy"),
        (4096, "gap", "write", "set"),
        (8, "exact", "write", "set"),  # never beyond the allocation
    ]


def test_parameters_reach_to_the_end_of_the_block_alive_then(tmp_path: Path) -> None:
    def event(action: int, ms: float, offset: int, size: int) -> dict[str, Any]:
        host_ns = NOW_NS + int(ms * 1e6)
        return {
            "action": action,
            "host_ns": host_ns,
            "address": BASE + offset,
            "bytes": size,
        }

    trace = factory.trace(
        tmp_path,
        launch=[factory.launch(index) for index in range(8)],  # one each ms
        block=[
            event(3, -0.1, 0, 1000),  # alive at start, until 1.5 ms
            event(2, 1.5, 0, 1000),
            event(1, 2.5, 0, 5000),  # the same place, larger
            event(2, 4.5, 0, 5000),
            event(2, 3.5, MIB, 700),  # its birth was not seen
            event(1, 6.02, 0, 600),  # clocks differ: the launch at 6 ms uses it
        ],
        access=[
            factory.access(0, 0),
            factory.access(1, 400),
            factory.access(2, 0),  # nothing alive
            factory.access(3, 400),
            factory.access(4, 4999),
            factory.access(0, MIB),
            factory.access(4, MIB),  # freed
            factory.access(6, 0),
            factory.access(7, 599),
            factory.access(7, 600),
        ],
    )
    rows = trace.table(0, "accesses").to_pylist()
    found = [(r["launch_id"], r["offset"], r["bytes"], r["extent"]) for r in rows]
    assert found == [
        (0, 0, 1000, "block"),
        (0, MIB, 700, "block"),
        (1, 400, 600, "block"),
        (2, 0, 400, "gap"),
        (3, 400, 4600, "block"),
        (4, 4999, 1, "block"),
        (4, MIB, 15 * MIB, "gap"),
        (6, 0, 600, "block"),
        (7, 599, 1, "block"),
        (7, 600, 4399, "gap"),
    ]
    blocks = [tuple(row.values()) for row in trace.table(0, "blocks").to_pylist()]
    assert blocks == [
        # allocation, offset, bytes, alloc launch, free launch, label
        (0, 0, 1000, None, 2, None),
        (0, 0, 5000, 3, 5, None),
        (0, 0, 600, 7, None, None),
        (0, MIB, 700, None, 4, None),
    ]


def test_what_is_born_before_the_snapshot_is_one_block(tmp_path: Path) -> None:
    place = {"address": BASE, "bytes": 512}
    trace = factory.trace(
        tmp_path,
        block=[
            {"action": 1, "host_ns": NOW_NS - 2000, **place},
            {"action": 3, "host_ns": NOW_NS - 1000, **place},
        ],
    )
    assert factory.column(trace, "blocks", "alloc_launch_id") == [0]


def test_addresses_used_again_belong_to_the_allocation_of_the_time(
    tmp_path: Path,
) -> None:
    trace = factory.trace(
        tmp_path,
        allocation=[
            factory.allocation(0, bytes=2 * MIB),
            factory.allocation(
                1, address=BASE, bytes=4 * MIB, host_ns=NOW_NS + 600_000, launch_id=1
            ),
        ],
        free=[{"allocation_id": 0, "host_ns": NOW_NS + 500_000, "launch_id": 1}],
        access=[factory.access(0, MIB), factory.access(1, MIB, allocation_id=1)],
        block=[
            {"action": 3, "host_ns": NOW_NS - 10, "address": BASE, "bytes": 256},
            {"action": 1, "host_ns": NOW_NS + 700_000, "address": BASE, "bytes": 512},
            # Beyond its allocation, and in none.
            {"action": 1, "host_ns": NOW_NS, "address": BASE, "bytes": 9 * MIB},
            {"action": 1, "host_ns": NOW_NS, "address": 4096, "bytes": 1},
        ],
    )
    assert factory.column(trace, "accesses", "allocation_id") == [0, 1]
    assert factory.column(trace, "accesses", "bytes") == [MIB, 3 * MIB]
    assert factory.column(trace, "blocks", "allocation_id") == [0, 1]
    assert factory.column(trace, "blocks", "bytes") == [256, 512]
    assert factory.column(trace, "allocations", "free_launch_id") == [1, None]
    assert factory.column(trace, "allocations", "alloc_launch_id") == [0, 1]
    assert factory.losses(trace)["unresolved_blocks"] == 2


def test_accesses_to_nowhere_are_counted(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        access=[
            factory.access(0),
            factory.access(0, 16 * MIB),  # past the end
            factory.access(0, -1),
            factory.access(9),  # no such launch
            factory.access(0, allocation_id=5),
        ],
    )
    assert factory.column(trace, "accesses", "launch_id") == [0]
    assert factory.losses(trace) == {"unresolved_accesses": 4}


def test_allocations_keep_what_the_shim_said(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        allocation=[
            factory.allocation(2, ordinal=-1, api=6, caller_name_id=17, device=1),
            factory.allocation(0),
            factory.allocation(0, bytes=1),  # reported twice
        ],
    )
    first, second = trace.table(0, "allocations").to_pylist()
    assert first["bytes"] == 16 * MIB
    assert (first["ordinal"], first["api"]) == (0, "mem_alloc")
    assert (first["caller"], first["device"]) == ("libcudart.so.13", 0)
    assert (second["allocation_id"], second["ordinal"], second["api"]) == (
        2,
        None,
        "host",
    )
    assert (second["caller"], second["device"]) == ("<unknown>", 1)


def test_unified_memory_records_are_told_apart(tmp_path: Path) -> None:
    def record(kind: int, **fields: int) -> dict[str, int]:
        known = {"start_ns": NOW_NS, "end_ns": NOW_NS + 9, "address": BASE, "value": 7}
        return known | {"counter_kind": kind} | fields

    trace = factory.trace(
        tmp_path,
        uvm=[
            record(2, flags=4),
            record(1, flags=1, start_ns=NOW_NS - 1),
            record(8, flags=77, start_ns=0),
            record(3, flags=2, end_ns=0),
            record(4, flags=1, src_id=1),
            record(5),
            record(6, value=0),
            record(7, flags=3),
            record(99),
        ],
    )
    migrations = trace.table(0, "uvm_migrations").to_pylist()
    assert [(m["direction"], m["cause"], m["start_ns"]) for m in migrations] == [
        ("device to device", "unknown", None),
        ("host to device", "user", NOW_NS - 1),
        ("device to host", "eviction", NOW_NS),
    ]
    faults = trace.table(0, "uvm_faults").to_pylist()
    found = [(f["processor"], f["access"], f["groups"], f["end_ns"]) for f in faults]
    assert found == [("cpu", "write", None, None), ("gpu 1", "read", 7, NOW_NS + 9)]
    events = trace.table(0, "uvm_events").to_pylist()
    assert [(e["kind"], e["bytes"], e["cause"], e["end_ns"]) for e in events] == [
        ("thrashing", 7, None, None),
        ("throttling", None, None, NOW_NS + 9),
        ("remote map", 7, "policy", None),
    ]
    assert factory.losses(trace) == {"untimed_activities": 1}
