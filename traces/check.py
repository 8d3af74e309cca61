"""Finds contradictions between the rows of a trace, which no schema can."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from transit.errors import TraceError
from transit.traces.reader import Trace

Ints = npt.NDArray[np.int64]

MAX_ALLOCATION_BYTES = 1 << 48
NEVER = np.iinfo(np.int64).max


def refuse_contradictions(trace: Trace, rank: int) -> None:
    """Raise if a rank's tables do not fit together.

    Parameters
    ----------
    trace
        The trace, of which launches, graph nodes, accesses, allocations, blocks and
        iterations are read.
    rank
        The rank to check.
    """
    launch_ids = _column(trace, rank, "launches", "launch_id")
    _require(trace, rank, np.diff(launch_ids) > 0, "launches are not in order")
    check_allocations(trace, rank)
    _check_graph_nodes(trace, rank, launch_ids)
    _check_accesses(trace, rank, launch_ids)
    _check_blocks(trace, rank)
    _check_iterations(trace, rank, launch_ids)


def check_allocations(trace: Trace, rank: int) -> None:
    """Raise if a rank's allocations do not fit together."""
    ids, sizes, devices, born = (
        _column(trace, rank, "allocations", name)
        for name in ("allocation_id", "bytes", "device", "alloc_launch_id")
    )
    died = _column(trace, rank, "allocations", "free_launch_id", null=NEVER)
    possible = (sizes > 0) & (sizes < MAX_ALLOCATION_BYTES)
    for holds, what in (
        (np.diff(ids) > 0, "allocations are not in order"),
        (possible, "an allocation has an impossible size"),
        (devices >= 0, "an allocation is on a negative device"),
        (died >= born, "an allocation is freed before it is made"),
    ):
        _require(trace, rank, holds, what)
    places = trace.table(rank, "allocations", ["device", "ordinal"]).drop_null()
    distinct = places.group_by(places.column_names).aggregate([])
    if distinct.num_rows != places.num_rows:
        raise _contradiction(trace, rank, "a device has an ordinal twice")


def refuse_without_accesses(trace: Trace, rank: int) -> None:
    """Raise if kernels ran and nothing is known of what they touch.

    So it is in every trace imported from a profiler: they do not look.
    """
    info = trace.manifest.rank(rank)
    if info.kernel_launches and not info.counts.get("accesses"):
        raise TraceError(
            f"{trace.path}, rank {rank}: none of {info.kernel_launches:,} kernel"
            " launches has an access, so there is nothing to plan by. A trace that was"
            " imported from a profiler can be shown and exported only; to plan, record"
            " the job with `transit record`."
        )


def _check_graph_nodes(trace: Trace, rank: int, launch_ids: Ints) -> None:
    launch_id = _column(trace, rank, "graph_nodes", "launch_id")
    node = _column(trace, rank, "graph_nodes", "graph_node")
    of_access = _column(trace, rank, "accesses", "launch_id")
    named = _column(trace, rank, "accesses", "graph_node", null=-1)
    steps = np.where(np.diff(launch_id) == 0, np.diff(node), np.diff(launch_id))
    stride = 1 + int(max(node.max(initial=0), named.max(initial=0)))
    known = np.isin(of_access * stride + named, launch_id * stride + node)
    for holds, what in (
        (np.isin(launch_id, launch_ids), "a node of a graph is of no launch"),
        (node >= 0, "a node of a graph has no place in it"),
        (steps > 0, "nodes of graphs are not in order"),
        ((named < 0) | known, "an access is of no node of its graph"),
    ):
        _require(trace, rank, holds, what)


def _check_accesses(trace: Trace, rank: int, launch_ids: Ints) -> None:
    ids = _column(trace, rank, "allocations", "allocation_id")
    sizes = _column(trace, rank, "allocations", "bytes")
    launch_id, allocation_id, offset, reach = (
        _column(trace, rank, "accesses", name)
        for name in ("launch_id", "allocation_id", "offset", "bytes")
    )
    _require(trace, rank, np.isin(launch_id, launch_ids), "an access is of no launch")
    _require(trace, rank, np.isin(allocation_id, ids), "an access is to no allocation")
    size = sizes[np.searchsorted(ids, allocation_id)] if len(ids) else offset
    inside = (offset >= 0) & (reach >= 0) & (offset < size) & (reach <= size - offset)
    _require(trace, rank, inside, "an access lies outside its allocation")


def _check_blocks(trace: Trace, rank: int) -> None:
    """Blocks that overlap are let be: what any of them holds is kept."""
    ids = _column(trace, rank, "allocations", "allocation_id")
    sizes = _column(trace, rank, "allocations", "bytes")
    allocation_id, offset, reach = (
        _column(trace, rank, "blocks", name)
        for name in ("allocation_id", "offset", "bytes")
    )
    born = _column(trace, rank, "blocks", "alloc_launch_id", null=-1)
    died = _column(trace, rank, "blocks", "free_launch_id", null=NEVER)
    _require(trace, rank, np.isin(allocation_id, ids), "a block is in no allocation")
    size = sizes[np.searchsorted(ids, allocation_id)] if len(ids) else offset
    inside = (offset >= 0) & (reach >= 0) & (offset < size) & (reach <= size - offset)
    _require(trace, rank, inside, "a block lies outside its allocation")
    _require(trace, rank, died >= born, "a block is freed before it is made")


def _check_iterations(trace: Trace, rank: int, launch_ids: Ints) -> None:
    first = _column(trace, rank, "iterations", "first_launch_id")
    last = _column(trace, rank, "iterations", "last_launch_id")
    for holds, what in (
        (first <= last, "an iteration ends before it starts"),
        (first[1:] > last[:-1], "iterations overlap"),
        (np.isin(first, launch_ids), "an iteration starts at no launch"),
        (np.isin(last, launch_ids), "an iteration ends at no launch"),
    ):
        _require(trace, rank, holds, what)


def _require(trace: Trace, rank: int, holds: npt.NDArray[np.bool_], what: str) -> None:
    if not holds.all():
        row = int(np.flatnonzero(~holds)[0])
        raise _contradiction(trace, rank, f"{what} (row {row})")


def _contradiction(trace: Trace, rank: int, what: str) -> TraceError:
    return TraceError(f"{trace.path}, rank {rank}, contradicts itself: {what}.")


def _column(trace: Trace, rank: int, table: str, column: str, null: int = 0) -> Ints:
    values: Any = trace.table(rank, table, [column])[column]
    return np.asarray(values.fill_null(null).to_numpy(), np.int64)
