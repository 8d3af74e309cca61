from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from trace_factory import LayeredLoop, write_tables, write_trace
from typer.testing import CliRunner

from transit.cli import app
from transit.commands.describe import describe_trace
from transit.traces import schema
from transit.traces.coverage import (
    Recall,
    groups_alike,
    recall_of_allocations,
    shares_of_bytes,
)
from transit.traces.reader import Trace


def test_ranks_with_the_same_iteration_are_alike(tmp_path: Path) -> None:
    usual = LayeredLoop(layers=2).tables()
    longer = LayeredLoop(layers=2, iterations=6).tables()
    other = LayeredLoop(layers=3).tables()
    ranks = {0: usual, 1: longer, 2: other, 3: usual}
    trace = Trace.open(write_tables(tmp_path / "trace", ranks))
    assert groups_alike(trace) == [[0, 1, 3], [2]]
    assert describe_trace(trace)["ranks_alike"] == "no: (0, 1, 3), (2)"


def test_all_alike_is_said(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", ranks=3, marked=False))
    assert describe_trace(trace)["ranks_alike"] == "all 3"


def test_one_rank_is_not_compared(tmp_path: Path) -> None:
    assert "ranks_alike" not in describe_trace(
        Trace.open(write_trace(tmp_path / "trace"))
    )


def test_shares_are_of_bytes(tmp_path: Path) -> None:
    tables = LayeredLoop(layers=1, iterations=1).tables()
    accesses = [
        row | {"bytes": size, "extent": extent, "direction": direction}
        for row, size, extent, direction in zip(
            tables["accesses"].to_pylist(),
            [700, 200, 100, *[None] * 99],
            ["block", "exact", "gap", *[None] * 99],
            ["read", "unknown", "both", *["unknown"] * 99],
            strict=False,
        )
    ]
    tables["accesses"] = pa.Table.from_pylist(accesses, schema=schema.ACCESSES)
    trace = Trace.open(write_tables(tmp_path / "trace", {0: tables}))
    extents = {"block": 0.7, "exact": 0.2, "gap": 0.1}
    directions = {"read": 0.7, "unknown": 0.2, "both": 0.1}
    assert shares_of_bytes(trace, 0, "extent") == pytest.approx(extents)
    assert shares_of_bytes(trace, 0, "direction") == pytest.approx(directions)
    (rank,) = describe_trace(trace)["ranks"]
    assert rank["accessed_extent"] == "block 70.0%, exact 20.0%, gap 10.0%"


def test_who_touched_the_unexplained_is_named(tmp_path: Path) -> None:
    tables = LayeredLoop(layers=1).tables()
    names = tables["launches"]["name"].to_pylist()
    rows = [
        (1, 4096 * 996, True, 0),
        (1, 4096, False, 0),
        (1, 4096 * 3, False, 1),
        (2, 4096, False, None),
        (3, 4096, True, None),
    ]
    audit = [
        {"allocation_id": allocation, "offset": 0, "bytes": size, "access": "read"}
        | {"is_explained": explained, "launch_id": launch}
        for allocation, size, explained, launch in rows
    ]
    tables["audit"] = pa.Table.from_pylist(audit, schema=schema.AUDIT)
    path = write_tables(tmp_path / "trace", {0: tables})
    assert names[0] != names[1]
    assert recall_of_allocations(Trace.open(path), 0) == {
        1: Recall(4096 * 1000, 4096 * 996, [names[1], names[0]]),
        2: Recall(4096, 0, []),
        3: Recall(4096, 4096, []),
    }
    first, *_ = describe_trace(Trace.open(path))["audit"]
    assert first["unexplained_bytes"] == 4 * 4096
    assert first["unexplained_by"] == f"{names[1]}; {names[0]}"
    shown = CliRunner().invoke(app, ["show", str(path)]).output
    assert "99.6%" in shown


def test_what_lives_in_an_allocation_is_named(tmp_path: Path) -> None:
    tables = LayeredLoop(layers=1).tables()
    blocks = tables["blocks"].to_pylist()
    blocks[0]["label"] = "layer.weight"
    tables["blocks"] = pa.Table.from_pylist(blocks, schema=schema.BLOCKS)
    trace = Trace.open(write_tables(tmp_path / "trace", {0: tables}))
    holds = {
        row["ordinal"]: row["holds"] for row in describe_trace(trace)["allocations"]
    }
    assert (holds[0], holds[1]) == ("layer.weight", "")
