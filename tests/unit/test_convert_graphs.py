"""CUDA graphs in a converted trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spool_factory as factory
from spool_factory import MIB, NOW_NS

from transit.traces.reader import Trace


def test_a_graph_takes_the_time_of_all_its_nodes(tmp_path: Path) -> None:
    nodes = [
        factory.activity(
            0,
            start_ns=NOW_NS + start,
            end_ns=NOW_NS + start + 5,
            graph_id=3,
            graph_node_id=start,
        )
        for start in (20, 10, 40)
    ]
    trace = factory.trace(
        tmp_path,
        launch=[factory.launch(0, kind=4)],
        activity=[*nodes, factory.activity(0, start_ns=5, end_ns=4)],
    )
    (row,) = trace.table(0, "launches").to_pylist()
    assert (row["kind"], row["graph_id"], row["graph_node_id"]) == ("graph", 3, None)
    assert (row["start_ns"], row["end_ns"]) == (NOW_NS + 10, NOW_NS + 45)


def _graph_trace(tmp_path: Path) -> Trace:
    """Two launches of a graph of two kernels, the second after a change; one alone."""

    def node(graph: int, place: int, name_id: int) -> dict[str, Any]:
        return {
            "graph": graph,
            "node": place,
            "node_id": 70 + place,
            "kind": 1,
            "name_id": name_id,
            "grid": (9, 1, 1),
            "block": (32, 1, 1),
        }

    def touch(graph: int, place: int, offset: int) -> dict[str, Any]:
        return factory.access(graph << 32 | place, offset)

    def activity(launch_id: int, place: int, start: int) -> dict[str, Any]:
        start_ns = NOW_NS + launch_id * 1_000_000 + start
        return factory.activity(
            launch_id,
            start_ns=start_ns,
            end_ns=start_ns + 7,
            graph_id=5,
            graph_node_id=70 + place,
        )

    return factory.trace(
        tmp_path,
        launch=[
            factory.launch(0, kind=4),
            factory.launch(1),
            factory.launch(2, kind=4),
        ],
        access=[factory.access(1, 4 * MIB)],
        activity=[
            activity(2, 1, 60),
            activity(0, 0, 10),
            factory.activity(1),
            activity(0, 1, 30),
        ],
        graph_launch=[{"launch_id": 0, "graph": 1}, {"launch_id": 2, "graph": 2}],
        graph_node=[node(1, 1, 0), node(1, 0, 1), node(2, 0, 1), node(2, 1, 0)],
        graph_access=[touch(2, 1, 0), touch(1, 0, MIB), touch(1, 1, MIB)],
    )


def test_nodes_of_graphs_are_listed_by_launch(tmp_path: Path) -> None:
    rows = _graph_trace(tmp_path).table(0, "graph_nodes").to_pylist()
    assert [(r["launch_id"], r["graph_node"], r["name"]) for r in rows] == [
        (0, 0, "kernel"),
        (0, 1, "Test GPU"),
        (2, 0, "kernel"),
        (2, 1, "Test GPU"),
    ]
    assert [r["graph_node_id"] for r in rows] == [70, 71, 70, 71]
    assert {(r["kind"], r["grid_x"], r["block_x"]) for r in rows} == {("kernel", 9, 32)}
    later = NOW_NS + 2_000_000
    assert [(r["start_ns"], r["end_ns"]) for r in rows] == [
        (NOW_NS + 10, NOW_NS + 17),
        (NOW_NS + 30, NOW_NS + 37),
        (None, None),
        (later + 60, later + 67),
    ]


def test_accesses_of_graphs_name_their_node(tmp_path: Path) -> None:
    rows = _graph_trace(tmp_path).table(0, "accesses").to_pylist()
    assert [(r["launch_id"], r["offset"], r["graph_node"]) for r in rows] == [
        (0, MIB, 0),
        (0, MIB, 1),
        (1, 4 * MIB, None),
        (2, 0, 1),
    ]


def test_a_graph_is_signed_with_its_nodes(tmp_path: Path) -> None:
    trace = _graph_trace(tmp_path)
    nodes = trace.table(0, "graph_nodes").to_pylist()
    launches = trace.table(0, "launches").to_pylist()
    assert nodes[0]["signature"] == nodes[2]["signature"] != nodes[1]["signature"]
    assert launches[0]["signature"] == launches[2]["signature"]
    digest = 0xCBF29CE484222325
    for step in [
        *b"kernel",
        4,
        132,
        1,
        1,
        256,
        1,
        1,
        *(n["signature"] for n in nodes[:2]),
    ]:
        digest = (digest ^ step) * 0x100000001B3 % (1 << 64)
    assert launches[0]["signature"] == digest


def test_memory_of_a_graph_is_found_anew_at_each_launch(tmp_path: Path) -> None:
    trace = factory.trace(
        tmp_path,
        launch=[factory.launch(0, kind=4), factory.launch(10, kind=4)],
        allocation=[
            factory.allocation(0),
            factory.allocation(1, address=factory.BASE, host_ns=NOW_NS + 6_000_000),
        ],
        free=[{"allocation_id": 0, "host_ns": NOW_NS + 5_000_000, "launch_id": 1}],
        access=[],
        graph_launch=[{"launch_id": launch_id, "graph": 1} for launch_id in (0, 10)],
        graph_node=[{"graph": 1, "node": 0, "kind": 1}],
        graph_access=[factory.access(1 << 32, MIB)],
    )
    assert factory.column(trace, "accesses", "allocation_id") == [0, 1]
    assert factory.column(trace, "accesses", "offset") == [MIB, MIB]
