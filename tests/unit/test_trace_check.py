from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trace_factory as factory

from transit.errors import TraceError
from transit.traces import schema
from transit.traces.check import refuse_contradictions
from transit.traces.reader import Trace


def _check(path: Path, table: str = "launches", **cell: Any) -> None:
    """Check a trace in which one cell of the table's second row is replaced."""
    tables = factory.LayeredLoop(host_bytes=1 << 20).tables()
    rows = tables[table].to_pylist()
    rows[1] |= cell
    tables[table] = pa.Table.from_pylist(rows, schema=schema.TABLES[table])
    trace = Trace.open(factory.write_tables(path / "trace", {2: tables}))
    refuse_contradictions(trace, 2)


def test_a_sound_trace_passes(tmp_path: Path) -> None:
    _check(tmp_path)


@pytest.mark.parametrize(
    ("table", "cell", "message"),
    [
        ("graph_nodes", {"launch_id": 48}, "is of no launch"),
        ("graph_nodes", {"graph_node": -1}, "has no place"),
        ("graph_nodes", {"graph_node": 0}, "are not in order"),
        ("accesses", {"graph_node": 3}, "is of no node"),
    ],
)
def test_contradictions_about_graphs_are_refused(
    tmp_path: Path, table: str, cell: dict[str, int], message: str
) -> None:
    tables = factory.LayeredLoop(host_bytes=1 << 20).tables()
    rows = {name: tables[name].to_pylist() for name in ("graph_nodes", "accesses")}
    launch = tables["launches"].slice(0, 1).to_pylist()[0]
    rows["graph_nodes"] = [launch | {"graph_node": node} for node in range(2)]
    rows["accesses"][1]["launch_id"], rows["accesses"][1]["graph_node"] = 0, 1

    def check(name: str) -> None:
        for key, table in rows.items():
            tables[key] = pa.Table.from_pylist(table, schema=schema.TABLES[key])
        trace = Trace.open(factory.write_tables(tmp_path / name, {2: tables}))
        refuse_contradictions(trace, 2)

    check("sound")
    rows[table][1] |= cell
    with pytest.raises(TraceError, match=message):
        check("damaged")


def test_an_empty_trace_passes(tmp_path: Path) -> None:
    tables = {name: kind.empty_table() for name, kind in schema.TABLES.items()}
    trace = Trace.open(factory.write_tables(tmp_path / "trace", {0: tables}))
    refuse_contradictions(trace, 0)


@pytest.mark.parametrize(
    ("table", "cell", "message"),
    [
        ("launches", {"launch_id": 0}, "launches are not in order"),
        ("launches", {"launch_id": 7}, "launches are not in order"),
        ("allocations", {"allocation_id": 0}, "allocations are not in order"),
        ("allocations", {"bytes": -1}, "impossible size"),
        ("allocations", {"bytes": 1 << 48}, "impossible size"),
        ("allocations", {"ordinal": 0}, "has an ordinal twice"),
        ("accesses", {"launch_id": 48}, "is of no launch"),
        ("accesses", {"allocation_id": 999}, "is to no allocation"),
        ("accesses", {"offset": -1}, "outside its allocation"),
        ("accesses", {"offset": 8 << 20}, "outside its allocation"),
        ("accesses", {"bytes": (8 << 20) + 1}, "outside its allocation"),
        ("accesses", {"bytes": -1}, "outside its allocation"),
        ("iterations", {"last_launch_id": 11}, "ends before it starts"),
        ("iterations", {"first_launch_id": 11}, "iterations overlap"),
        ("iterations", {"last_launch_id": 24}, "iterations overlap"),
    ],
)
def test_contradictions_are_refused(
    tmp_path: Path, table: str, cell: dict[str, int], message: str
) -> None:
    with pytest.raises(TraceError, match=message) as raised:
        _check(tmp_path, table, **cell)
    assert f"{tmp_path / 'trace'}, rank 2, contradicts itself" in str(raised.value)
