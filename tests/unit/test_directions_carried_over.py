"""Directions of launches that were not looked into, and of the nodes of graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import spool_factory as factory
from inspected_spools import (
    DIRECTION,
    ITERATION_END,
    PURPOSE_CHANGED,
    UNKNOWN,
    block,
    directions,
    marks,
    parameter,
    piece,
    record,
)
from spool_factory import MIB, NOW_NS, access


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
