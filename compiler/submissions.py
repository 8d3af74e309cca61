"""What the job submits in one iteration, for replay to know where the job is."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import pyarrow as pa

from transit.compiler.arrays import Ints, column, is_one_of
from transit.compiler.iteration import SteadyIteration
from transit.compiler.plan import Allocation
from transit.compiler.sequence import Sequence
from transit.traces.reader import Trace
from transit.traces.signatures import signatures

_GRAPH_WORDS = (4, 0, 0, 0, 0, 0, 0)  # the kind, grid and block of a graph's launch


def find_sequence(
    trace: Trace, rank: int, steady: SteadyIteration, allocations: Items[Allocation]
) -> Sequence:
    """Take the calls of one of the steady iterations.

    Parameters
    ----------
    allocations
        The rank's, as planned: only addresses in them count, from the lowest one on
        their GPU.
    """
    launch_ids, num_positions = np.unique(steady.launch_ids, return_counts=True)
    launches = _rows(trace.table(rank, "launches"), launch_ids)
    is_graph = is_one_of(launches, "kind", "graph")
    names = launches.column("name").combine_chunks()
    words = [np.full(len(launch_ids), word) for word in _GRAPH_WORDS]
    launch, address = _named(trace, rank, launch_ids, allocations)
    is_listed = ~is_graph[launch]
    return Sequence(
        signature=np.where(
            is_graph, signatures(names, words), column(launches, "signature")
        ),
        num_positions=num_positions,
        num_named=np.bincount(launch[is_listed], minlength=len(launch_ids)),
        is_graph=is_graph,
        named=address[is_listed].astype(np.uint64),
    )


def _rows(launches: pa.Table, launch_ids: Ints) -> pa.Table:
    rows = np.searchsorted(column(launches, "launch_id"), launch_ids)
    return launches.take(rows)


def _named(
    trace: Trace, rank: int, launch_ids: Ints, allocations: Items[Allocation]
) -> tuple[Ints, Ints]:
    """Return the launches, as indices, and the addresses that each names, in order."""
    accesses = trace.table(rank, "accesses", ["launch_id", "allocation_id", "offset"])
    launch = np.searchsorted(launch_ids, column(accesses, "launch_id"))
    launch = np.minimum(launch, len(launch_ids) - 1)
    table = trace.table(rank, "allocations")
    place_of = {
        (planned.device, planned.ordinal): planned.address_offset
        for planned in allocations
        if planned.address_offset is not None
    }
    keys = zip(
        column(table, "device").tolist(),
        column(table, "ordinal", null=-1).tolist(),
        strict=True,
    )
    places = np.array([place_of.get(key, -1) for key in keys], np.int64)
    rows = np.searchsorted(
        column(table, "allocation_id"), column(accesses, "allocation_id")
    )
    place = places[rows]
    counts = launch_ids[launch] == column(accesses, "launch_id")
    counts &= place >= 0
    address = place + column(accesses, "offset")
    pairs = np.unique(np.stack([launch[counts], address[counts]]), axis=1)
    return pairs[0], pairs[1]
