"""What blocks hold, and how long they are known to live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spool_factory as factory
from spool_factory import BASE, MIB, NOW_NS, Rows

ALLOC, FREE, ALIVE = 1, 2, 3
NAMES = ("Test GPU", "kernel", "libcudart.so.13", "weight", "weight, gradient", "bias")
LAUNCHES = [factory.launch(index) for index in range(8)]  # one each ms


def event(action: int, ms: float, offset: int, size: int = 1000) -> dict[str, Any]:
    host_ns = NOW_NS + int(ms * 1e6)
    address = BASE + offset
    return {"action": action, "host_ns": host_ns, "address": address, "bytes": size}


def label(name: str, ms: float, offset: int) -> dict[str, Any]:
    host_ns, name_id = NOW_NS + int(ms * 1e6), NAMES.index(name)
    return {"name_id": name_id, "host_ns": host_ns, "address": BASE + offset}


def history(begin_ms: float, end_ms: float) -> dict[str, Any]:
    begin_ns, end_ns = (NOW_NS + int(ms * 1e6) for ms in (begin_ms, end_ms))
    return {"begin_ns": begin_ns, "end_ns": end_ns}


def names() -> Rows:
    return [p for i, name in enumerate(NAMES) for p in factory.name_pieces(i, name)]


def lives(trace: Any) -> list[tuple[Any, ...]]:
    columns = ("offset", "bytes", "alloc_launch_id", "free_launch_id")
    rows = trace.table(0, "blocks", columns).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_a_label_is_for_the_block_alive_then(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=LAUNCHES,
        name=names(),
        block=[
            event(ALIVE, -0.01, 0),
            event(ALLOC, 1.5, MIB),
            event(FREE, 3.5, MIB),
            event(ALLOC, 4.5, MIB),
        ],
        label=[
            label("weight", 7, 0),
            label("weight, gradient", 2.5, MIB),
            label("weight, gradient", 3.0, MIB),  # the same, seen again
            label("bias", 2.5, 2 * MIB),  # in no block
        ],
    )
    labels = factory.column(trace, "blocks", "label")
    assert labels == ["weight", "weight, gradient", None]


def test_of_several_in_one_block_the_first_is_named(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        name=names(),
        block=[event(ALIVE, -0.01, 0), event(ALIVE, -0.01, MIB)],
        label=[
            label("bias", 1, 600),
            label("weight, gradient", 1, 500),
            label("weight", 1, 0),
            label("bias", 1, MIB),
        ],
    )
    assert factory.column(trace, "blocks", "label") == ["weight and 2 more", "bias"]


def test_before_a_wrapped_history_nothing_is_known(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=LAUNCHES,
        block=[
            event(ALIVE, -0.01, 0),  # its fate until 3 ms is not known
            event(ALIVE, -0.01, MIB),
            event(FREE, 4.5, 0, 500),
            event(ALLOC, 5.5, 2 * MIB),
            event(ALIVE, 9, MIB, 700),
            event(ALIVE, 9, 2 * MIB),
        ],
        history=[history(3.5, 9)],
        access=[factory.access(1), factory.access(4), factory.access(2, MIB)],
    )
    assert lives(trace) == [
        (0, 500, 4, 5),
        (MIB, 700, 4, None),
        (2 * MIB, 1000, 6, None),
    ]
    extents = trace.table(0, "accesses", ["launch_id", "extent"]).to_pylist()
    found = {row["launch_id"]: row["extent"] for row in extents}
    assert found == {1: "gap", 2: "gap", 4: "block"}
    assert factory.losses(trace) == {"unknown_blocks": 2}


def test_a_history_passed_on_in_parts_is_one(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=LAUNCHES,
        block=[event(ALIVE, -0.01, 0), event(ALIVE, 4, 0), event(FREE, 5.5, 0)],
        history=[history(3.9, 9), history(-1, 4)],
    )
    assert lives(trace) == [(0, 1000, None, 6)]
    assert factory.losses(trace) == {}


def test_a_gap_in_a_history_cuts_lives(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=LAUNCHES,
        block=[event(ALIVE, -0.01, 0), event(ALIVE, 2.5, 0), event(ALIVE, 9, 0)],
        history=[history(-1, 2.5), history(4.5, 9)],
    )
    assert lives(trace) == [(0, 1000, None, 3), (0, 1000, 5, None)]


def test_a_job_that_was_killed_passed_no_history_on(tmp_path: Path) -> None:
    block = [event(ALIVE, -0.01, 0)]
    trace = factory.trace(tmp_path, launch=LAUNCHES, block=block, history=[])
    assert trace.table(0, "blocks").num_rows == 0
    assert factory.column(trace, "accesses", "extent") == ["gap", "gap"]
    assert factory.losses(trace) == {"unknown_blocks": 1}


def test_a_missing_free_leaves_the_earlier_life_unknown(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=LAUNCHES,
        block=[event(ALLOC, 0.5, 0), event(ALLOC, 5.5, 0, 500)],
        access=[factory.access(3), factory.access(6)],
    )
    assert factory.column(trace, "accesses", "extent") == ["gap", "block"]
