"""Damaged traces end in a clear error or a sound plan, whatever the policy."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trace_factory import MIB, LayeredLoop, Tables, write_tables

from transit.compiler import machine, plan
from transit.compiler.compiler import compile_trace
from transit.errors import BudgetError, TraceError, TransitError
from transit.traces import schema
from transit.traces.reader import Trace

POLICIES = ("auto", "reuse", "advise")
HOSTILE = (-(1 << 63), -1, 0, 1, 1 << 20, 1 << 40, 1 << 47, 1 << 62, (1 << 63) - 1)
COLUMNS = [
    (table, column)
    for table in ("launches", "accesses", "allocations", "blocks", "iterations")
    for column, kind in zip(
        schema.TABLES[table].names, schema.TABLES[table].types, strict=True
    )
    if pa.types.is_signed_integer(kind)
]


def _compile(tables: Tables, folder: Path, policy: str, budget_bytes: int) -> plan.Plan:
    path = write_tables(folder / "trace", {0: tables})
    return compile_trace(
        Trace.open(path),
        gpu_memory_bytes=budget_bytes,
        policy=policy,
        machine=machine.load("h200"),
    )


def _with(tables: Tables, table: str, column: str, values: dict[int, Any]) -> Tables:
    rows = tables[table].to_pylist()
    for row, value in values.items():
        rows[row % len(rows)][column] = value
    return tables | {table: pa.Table.from_pylist(rows, schema=tables[table].schema)}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("table", "column", "value", "fault"),
    [
        ("accesses", "offset", 1 << 40, "outside its allocation"),
        ("accesses", "offset", -1, "outside its allocation"),
        ("accesses", "bytes", (1 << 63) - 1, "outside its allocation"),
        ("allocations", "bytes", 0, "impossible size"),
        ("allocations", "bytes", 1 << 62, "impossible size"),
        ("blocks", "bytes", (1 << 63) - 1, "outside its allocation"),
        ("blocks", "offset", -(1 << 63), "outside its allocation"),
        ("blocks", "allocation_id", 1 << 40, "in no allocation"),
        ("blocks", "free_launch_id", -5, "freed before"),
    ],
)
def test_contradictions_are_named(
    table: str, column: str, value: int, fault: str, policy: str, tmp_path: Path
) -> None:
    tables = _with(LayeredLoop().tables(), table, column, {3: value})
    with pytest.raises(TraceError, match=fault):
        _compile(tables, tmp_path, policy, 80 * MIB)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_does_not_repeat_has_no_plan(policy: str, tmp_path: Path) -> None:
    tables = LayeredLoop(iterations=1, marked=False).tables()
    count = tables["launches"].num_rows
    tables = _with(
        tables, "launches", "signature", {n: n * 7 + 1 for n in range(count)}
    )
    tables = _with(tables, "launches", "name", {n: f"k{n}" for n in range(count)})
    with pytest.raises(TraceError, match="no steady iteration"):
        _compile(tables, tmp_path, policy, 80 * MIB)


def test_without_times_there_is_no_schedule(tmp_path: Path) -> None:
    tables = LayeredLoop().tables()
    nothing = dict.fromkeys(range(tables["launches"].num_rows), 0)
    for column in ("start_ns", "end_ns"):
        tables = _with(tables, "launches", column, nothing)
    with pytest.raises(TraceError, match="no launch of the iteration has a time"):
        _compile(tables, tmp_path, "auto", 80 * MIB)


def test_blocks_that_overlap_keep_what_either_holds(tmp_path: Path) -> None:
    tables = LayeredLoop().tables()
    plain = _compile(tables, tmp_path / "plain", "auto", 80 * MIB)
    twice = pa.concat_tables([tables["blocks"], tables["blocks"].slice(0, 5)])
    tables |= {"blocks": twice}
    overlapping = _compile(tables, tmp_path / "overlapping", "auto", 80 * MIB)
    assert overlapping.ranks == plain.ranks


@pytest.mark.parametrize("policy", POLICIES)
def test_the_least_budget_is_named(policy: str, tmp_path: Path) -> None:
    tables = LayeredLoop(workspace_bytes=6 * MIB).tables()
    with pytest.raises(BudgetError, match=r"at least \d+ MiB.*--gpu-memory \d+MiB"):
        _compile(tables, tmp_path, policy, 2 * MIB)


@given(
    place=st.sampled_from(COLUMNS),
    values=st.dictionaries(
        st.integers(0, 99), st.sampled_from(HOSTILE), min_size=1, max_size=5
    ),
    policy=st.sampled_from(POLICIES),
)
@settings(max_examples=60, deadline=None)
def test_hostile_numbers_end_in_an_error_or_a_plan_that_loads(
    place: tuple[str, str], values: dict[int, int], policy: str
) -> None:
    table, column = place
    kind = schema.TABLES[table].field(column).type
    most = 1 << (kind.bit_width - 1)
    fitting = {row: min(max(v, -most), most - 1) for row, v in values.items()}
    tables = _with(LayeredLoop(layers=2).tables(), table, column, fitting)
    with TemporaryDirectory() as folder:
        output = Path(folder) / "plan.json"
        try:
            made = _compile(tables, Path(folder), policy, 40 * MIB)
        except TransitError:
            return
        plan.dump(made, output)
        assert plan.load(output) == made
        assert made.summary.peak_resident_bytes <= 40 * MIB
