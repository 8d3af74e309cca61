"""The steady iteration of a trace, and traces that have none or are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from trace_factory import MIB, LayeredLoop, Tables, in_graphs, write_tables, write_trace

from transit.compiler import iteration, machine
from transit.compiler.compiler import compile_trace
from transit.compiler.lifetimes import read_allocations
from transit.compiler.work import Work
from transit.errors import TraceError
from transit.traces import schema
from transit.traces.check import refuse_contradictions
from transit.traces.reader import Trace

H200 = machine.load("h200")


def find(tables: Tables, path: Path) -> iteration.SteadyIteration:
    return iteration.find(Trace.open(write_tables(path / "trace", {0: tables})), 0)


def replace(tables: Tables, name: str, /, **columns: object) -> Tables:
    """Return the tables with some columns of one replaced."""
    table = tables[name]
    arrays = {column: table.column(column) for column in table.column_names} | {
        key: pa.array(value, table.schema.field(key).type)
        for key, value in columns.items()
    }
    return tables | {name: pa.table(arrays, schema=schema.TABLES[name])}


def numbers(tables: Tables, table: str, name: str) -> np.ndarray:
    column = tables[table].column(name)
    values = column.fill_null(-1) if column.null_count else column
    return values.to_numpy().copy()


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(("warm_up", "tail"), [(0, 0), (7, 0), (0, 5), (7, 5)])
def test_marks_and_periods_find_the_same_iteration(
    tmp_path: Path, marked: bool, warm_up: int, tail: int
) -> None:
    loop = LayeredLoop(
        iterations=5, warmup_launches=warm_up, tail_launches=tail, marked=marked
    )
    steady = find(loop.tables(), tmp_path)
    assert steady.num_launches == loop.launches_per_iteration
    assert steady.confidence == 1
    assert len(steady.accesses) == 11 + 12 + 16  # forward, backward, update
    assert (steady.accesses.frequency == 1).all()
    assert (steady.found_by == "optimizer step") is marked


@pytest.mark.parametrize("marked", [True, False])
def test_a_graph_counts_as_its_nodes(tmp_path: Path, marked: bool) -> None:
    tables = LayeredLoop(iterations=5, warmup_launches=3, tail_launches=2).tables()
    folded = in_graphs(tables)
    if not marked:
        tables, folded = (
            t | {"iterations": t["iterations"].slice(0, 0)} for t in (tables, folded)
        )
    assert folded["launches"].num_rows < tables["launches"].num_rows
    refuse_contradictions(Trace.open(write_tables(tmp_path / "g", {0: folded})), 0)
    plain, graph = find(tables, tmp_path / "p"), find(folded, tmp_path / "f")
    assert graph.fingerprint == plain.fingerprint
    np.testing.assert_array_equal(graph.duration_ns, plain.duration_ns)
    np.testing.assert_array_equal(graph.is_kernel, plain.is_kernel)
    for name in vars(plain.accesses):
        np.testing.assert_array_equal(
            getattr(graph.accesses, name), getattr(plain.accesses, name)
        )


@pytest.mark.parametrize("tail", [0, 5])
def test_the_iteration_is_one_of_those_with_graphs_from_a_call_on(
    tmp_path: Path, tail: int
) -> None:
    loop = LayeredLoop(iterations=6, warmup_launches=3, tail_launches=tail)
    tables = in_graphs(loop.tables(), iterations=slice(2, None))
    tables["iterations"] = tables["iterations"].slice(0, 0)
    steady = find(tables, tmp_path)
    calls, num_nodes = np.unique(steady.launch_ids, return_counts=True)
    # The period that repeats from the start on begins within a graph.
    assert sorted(num_nodes) == [1, loop.launches_per_iteration - 1]
    of_graphs = tables["graph_nodes"]["launch_id"].to_pylist()
    assert len(set(of_graphs) & set(calls.tolist())) == 1


def test_durations_are_medians_and_skip_what_was_lost(tmp_path: Path) -> None:
    loop = LayeredLoop(iterations=6)
    tables = loop.tables()
    start = numbers(tables, "launches", "start_ns")
    end = numbers(tables, "launches", "end_ns")
    usual = (end - start)[: loop.launches_per_iteration]
    end[30] += 10**9  # an outlier
    lost = pa.array(start, mask=np.arange(len(start)) == 20)
    steady = find(replace(tables, "launches", start_ns=lost, end_ns=end), tmp_path)
    assert steady.duration_ns.tolist() == usual.tolist()


def test_without_any_times_durations_are_unknown(tmp_path: Path) -> None:
    tables = LayeredLoop().tables()
    nothing = [None] * tables["launches"].num_rows
    tables = replace(tables, "launches", start_ns=nothing, end_ns=nothing)
    assert np.isnan(find(tables, tmp_path).duration_ns).all()


def test_an_access_of_some_iterations_counts_for_its_share(tmp_path: Path) -> None:
    tables = LayeredLoop(iterations=5).tables()  # of which the first is left out
    first = pc.not_equal(tables["accesses"].column("launch_id"), 12)
    tables["accesses"] = tables["accesses"].filter(first)
    frequency = find(tables, tmp_path).accesses.frequency
    assert sorted(set(frequency)) == [0.75, 1.0]


def test_the_first_marked_iteration_may_differ(tmp_path: Path) -> None:
    tables = LayeredLoop(iterations=4).tables()
    signature = numbers(tables, "launches", "signature")
    signature[3] = 99  # warm-up: another kernel was tried
    steady = find(replace(tables, "launches", signature=signature), tmp_path)
    assert steady.confidence == 1


def test_one_marked_iteration_is_enough(tmp_path: Path) -> None:
    """A trimmed trace has no more."""
    assert find(LayeredLoop(iterations=1).tables(), tmp_path).num_launches == 12


def test_marks_that_do_not_repeat_give_way_to_the_period(tmp_path: Path) -> None:
    """Two optimizers step in turns: every other mark ends an iteration."""
    loop = LayeredLoop(iterations=6)
    tables = loop.tables()
    marks = [
        {
            "iteration": i,
            "first_launch_id": first,
            "last_launch_id": last,
            "found_by": "optimizer step",
        }
        for i, (first, last) in enumerate(
            (start + low, start + high)
            for start in range(0, 72, 12)
            for low, high in ((0, 8), (9, 11))
        )
    ]
    tables["iterations"] = pa.Table.from_pylist(marks, schema=schema.ITERATIONS)
    steady = find(tables, tmp_path)
    assert steady.num_launches == loop.launches_per_iteration
    assert steady.found_by == "period of the launch sequence"


def test_nothing_steady_is_refused_saying_what_to_do(tmp_path: Path) -> None:
    tables = LayeredLoop(iterations=6).tables()
    rng = np.random.default_rng(3)
    signature = rng.integers(0, 1000, tables["launches"].num_rows)
    tables = replace(
        tables, "launches", signature=signature, name=signature.astype(str).tolist()
    )
    with pytest.raises(TraceError, match=r"no steady iteration.*Record more"):
        find(tables, tmp_path)


def test_iterations_of_other_shapes_are_known_by_names_and_less_sure(
    tmp_path: Path,
) -> None:
    """Sequences of text differ in length, and grids with them."""
    tables = LayeredLoop(iterations=8, marked=False).tables()
    signature = numbers(tables, "launches", "signature")
    of_iteration = np.arange(len(signature)) // 12
    signature[of_iteration % 2 == 1] += of_iteration[of_iteration % 2 == 1].astype(
        signature.dtype
    )
    steady = find(replace(tables, "launches", signature=signature), tmp_path)
    assert steady.num_launches == 12
    assert "shapes vary" in steady.found_by
    assert 0.4 < steady.confidence < 0.7


@pytest.mark.parametrize("marked", [True, False])
def test_iterations_that_were_slowed_down_do_not_count(
    tmp_path: Path, marked: bool
) -> None:
    tables = LayeredLoop(iterations=7).tables()
    last = tables["iterations"].slice(5)
    purposes = ["timing"] * 5 + ["direction", "audit"]
    tables = replace(tables, "iterations", purpose=purposes)
    end = numbers(tables, "launches", "end_ns")
    first_slow = last["first_launch_id"][0].as_py()
    usual = (end - numbers(tables, "launches", "start_ns"))[:12]
    end[first_slow:] += 10**9
    tables = replace(tables, "launches", end_ns=end)
    if not marked:  # but for the slow ones
        tables["iterations"] = tables["iterations"].slice(5)
    work = Work.read(trace := Trace.open(write_tables(tmp_path / "t", {0: tables})), 0)
    found = iteration.locate(trace, 0, work)
    assert found.repeats.starts.max() + 12 <= first_slow
    assert iteration.find(trace, 0).duration_ns.tolist() == usual.tolist()


def test_a_trace_without_launches_is_refused(tmp_path: Path) -> None:
    tables = {name: table.slice(0, 0) for name, table in LayeredLoop().tables().items()}
    with pytest.raises(TraceError, match="no launches were recorded"):
        find(tables, tmp_path)


DAMAGES: dict[str, tuple[str, str, Callable[[np.ndarray], object], str]] = {
    "launch ids": (
        "launches", "launch_id", lambda v: v[::-1], "launches are not in order"
    ),
    "unknown launch": (
        "accesses", "launch_id", lambda v: v + 1000, "is of no launch"
    ),
    "unknown allocation": (
        "accesses", "allocation_id", lambda v: v + 1000, "is to no allocation"
    ),
    "negative offset": ("accesses", "offset", lambda v: v - 1, "outside its alloc"),
    "far offset": ("accesses", "offset", lambda v: v + 2**60, "outside its alloc"),
    "marks overlap": (
        "iterations", "first_launch_id", lambda v: v * 0, "iterations overlap"
    ),
    "marks beyond": (
        "iterations", "last_launch_id", lambda v: v + 10**6 * (v == v.max()),
        "ends at no launch",
    ),
    "no size": ("allocations", "bytes", lambda v: v * 0, "impossible size"),
    "hostile size": (
        "allocations", "bytes", lambda v: v * 0 + 2**62, "impossible size"
    ),
    "one ordinal": ("allocations", "ordinal", lambda v: v * 0, "an ordinal twice"),
    "allocation ids": (
        "allocations", "allocation_id", lambda v: v * 0, "allocations are not in order"
    ),
    "freed too early": (
        "allocations", "free_launch_id", lambda v: v * 0 - 1, "freed before it is made"
    ),
    "device": ("allocations", "device", lambda v: v - 1, "on a negative device"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_tables_are_refused(name: str, tmp_path: Path) -> None:
    table, column, damage, message = DAMAGES[name]
    tables = LayeredLoop().tables()
    damaged = damage(numbers(tables, table, column))
    tables = replace(tables, table, **{column: damaged})
    trace = Trace.open(write_tables(tmp_path / "trace", {0: tables}))
    with pytest.raises(TraceError, match=message) as refused:
        compile_trace(trace, gpu_memory_bytes=1 << 30, policy="reuse", machine=H200)
    assert str(trace.path) in str(refused.value)


def test_host_memory_takes_no_gpu_memory(tmp_path: Path) -> None:
    trace = Trace.open(write_trace(tmp_path / "trace", host_bytes=64 * MIB))
    assert 64 * MIB not in read_allocations(trace, 0).bytes
