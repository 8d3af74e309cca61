"""Launches, steps and allocations of a profiled process, as tables of a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.traces.imports.profile import (
    OPTIMIZER_STEP,
    PROFILER_STEP,
    SHAPE,
    Process,
)
from transit.traces.schema import TABLES
from transit.traces.signatures import signatures

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

KINDS = {"kernel": 1, "copy": 2, "set": 3, "graph": 4}
GRAPH_LAUNCH = "GraphLaunch"  # cudaGraphLaunch_v10000, cuGraphLaunch_ptsz, ...


@dataclass(frozen=True)
class Launches:
    """Launches in the order of the host's calls; their ids count from 0.

    `num_without_call` have no call in the file: they are placed where they started on
    the GPU. `num_untimed` pieces of work ended before they began.
    """

    table: pa.Table
    host_ns: Ints
    num_without_call: int
    num_untimed: int

    def next_at(self, time_ns: Ints) -> Ints:
        """Return the id of the first launch not before each time."""
        return np.searchsorted(self.host_ns, time_ns).astype(np.int64)


def build_launches(process: Process) -> Launches:
    """Order a process's GPU work by the calls that started it.

    What one launch of a graph started is one launch.
    """
    work = process.activities
    start, end = _ints(work, "start_ns"), _ints(work, "end_ns")
    untimed = end < start
    call_ns, in_graph = _calls(process)
    # Work outside of graphs is a group of its own.
    group = np.where(in_graph, _ints(work, "correlation_id"), -1 - np.arange(len(work)))
    _, first, member_of = np.unique(group, return_index=True, return_inverse=True)
    start_ns = np.full(len(first), np.iinfo(np.int64).max)
    end_ns = np.full(len(first), -1)
    np.minimum.at(start_ns, member_of[~untimed], start[~untimed])
    np.maximum.at(end_ns, member_of[~untimed], end[~untimed])
    called = call_ns[first] >= 0
    host_ns = np.where(called, call_ns[first], start[first])

    order = np.lexsort((start[first], host_ns))
    first, host_ns = first[order], host_ns[order]
    table = _table(work.take(first), in_graph[first])
    lost = end_ns[order] < 0
    columns: dict[str, Any] = {
        "launch_id": np.arange(len(first)),
        "host_ns": host_ns,
        "start_ns": pa.array(start_ns[order], mask=lost),
        "end_ns": pa.array(end_ns[order], mask=lost),
    }
    for name, values in columns.items():
        table = table.append_column(name, pa.array(values, pa.int64()))
    return Launches(
        table, host_ns, int(np.count_nonzero(~called)), int(np.count_nonzero(untimed))
    )


def _calls(process: Process) -> tuple[Ints, Bools]:
    """Return when each piece of work was called, or -1, and whether by a graph."""
    work, calls = process.activities, process.calls
    correlation = _ints(work, "correlation_id")
    call_id, call_ns = _ints(calls, "correlation_id"), _ints(calls, "start_ns")
    order = np.lexsort((call_ns, call_id))
    ids, first = np.unique(call_id[order], return_index=True)
    starts_graph = np.fromiter(
        (GRAPH_LAUNCH in name for name in texts(calls, "name")), np.bool_
    )
    starts_graph = np.append(starts_graph[order][first], False)
    place = np.searchsorted(ids, correlation)
    found = (np.append(ids, -1)[place] == correlation) & (correlation != 0)
    node: Any = work["graph_node_id"]
    is_node = node.fill_null(0).to_numpy() != 0
    in_graph = (is_node | (found & starts_graph[place])) & (correlation != 0)
    return np.where(found, np.append(call_ns[order][first], 0)[place], -1), in_graph


def _table(first: pa.Table, in_graph: Bools) -> pa.Table:
    """Return the columns of launches that do not depend on time."""
    kinds = np.where(in_graph, "graph", texts(first, "kind"))
    is_graph = kinds == "graph"
    names = np.where(is_graph, "cuGraphLaunch", texts(first, "name"))
    shape = [np.where(is_graph, 0, _ints(first, column)) for column in SHAPE]
    codes = np.array([KINDS[kind] for kind in kinds])
    encoded_names: Any = pa.array(names, pa.string()).dictionary_encode()
    columns: dict[str, Any] = {
        "correlation_id": _ints(first, "correlation_id"),
        "kind": pa.array(kinds, pa.string()).dictionary_encode(),
        "name": encoded_names,
        "signature": signatures(encoded_names, [codes, *shape]),
        "device": first["device"].cast(pa.int32()),
        "stream": first["stream"],
        "graph_id": first["graph_id"],
        # Of a whole graph, no one node's.
        "graph_node_id": pa.nulls(len(kinds), pa.int64()),
    }
    for name, extent in zip(SHAPE, shape, strict=True):
        columns[name] = extent.astype(np.int32)
    return pa.table(columns)


def find_iterations(process: Process, launches: Launches) -> tuple[pa.Table, int]:
    """Return the steps that the job marked, and how many did not follow another."""
    numbers, begin_ns, end_ns, found_by = _steps(process)
    low = launches.next_at(begin_ns)
    high = launches.next_at(end_ns) - 1
    rows: list[tuple[int, int, int, str, str]] = []
    num_left_out = 0
    for number, first, stop in zip(numbers, low.tolist(), high.tolist(), strict=True):
        if first > stop:
            continue  # launched nothing
        if rows and (number <= rows[-1][0] or first <= rows[-1][2]):
            num_left_out += 1
            continue
        rows.append((number, first, stop, found_by, "timing"))
    columns = zip(*rows, strict=True) if rows else [[]] * 5
    schema = TABLES["iterations"]
    arrays = [
        pa.array(values, pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, pa.int64())
        for field, values in zip(schema, columns, strict=True)
    ]
    return pa.table(arrays, schema=schema), num_left_out


def _steps(process: Process) -> tuple[list[int], Ints, Ints, str]:
    """Return numbers, starts and ends of steps, in the order of time."""
    steps = process.steps.sort_by([("start_ns", "ascending"), ("end_ns", "ascending")])
    names = texts(steps, "name")
    start, end = _ints(steps, "start_ns"), _ints(steps, "end_ns")
    matches = [PROFILER_STEP.match(name) for name in names]
    if any(matches):
        numbers = [int(match[1]) for match in matches if match]
        profiled = np.array([match is not None for match in matches], np.bool_)
        return numbers, start[profiled], end[profiled], "profiler step"
    stepped = np.array([bool(OPTIMIZER_STEP.match(n)) for n in names], np.bool_)
    ends = np.sort(end[stepped])
    # The first end only begins an iteration.
    return list(range(2, len(ends) + 1)), ends[:-1], ends[1:], "optimizer step"


def pair_allocations(process: Process, launches: Launches) -> pa.Table:
    """Return allocations, each with the free that ended it.

    None has an ordinal: which of them the shim would take is not known.
    """
    events = process.memory.sort_by(
        [("start_ns", "ascending"), ("is_free", "descending")]
    )
    at_launch = launches.next_at(_ints(events, "start_ns")).tolist()
    alive: dict[int, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for event, launch_id in zip(events.to_pylist(), at_launch, strict=True):
        ended = alive.pop(event["address"], None)
        if ended:
            ended["free_launch_id"] = launch_id
        if event["is_free"] or not event["bytes"]:
            continue
        row = {name: event[name] for name in ("device", "address", "bytes", "api")}
        row |= {"allocation_id": len(rows), "caller": "unknown"}
        row |= {"alloc_launch_id": launch_id, "free_launch_id": None, "ordinal": None}
        alive[event["address"]] = row
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=TABLES["allocations"])


def texts(table: pa.Table, column: str) -> npt.NDArray[np.object_]:
    """Return a column of texts as an array."""
    values: npt.NDArray[np.object_] = table[column].cast(pa.string()).to_numpy()
    return values


def _ints(table: pa.Table, column: str) -> Ints:
    values: Ints = table[column].to_numpy().astype(np.int64)
    return values
