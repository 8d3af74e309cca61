"""What the job submits in one iteration, for replay to know where the job is."""

from __future__ import annotations

from collections.abc import Sequence as Items

import numpy as np
import pyarrow as pa

from transit.compiler.arrays import Ints, column, is_one_of
from transit.compiler.iteration import Accesses, SteadyIteration
from transit.compiler.plan import Allocation
from transit.compiler.sequence import Sequence
from transit.traces.reader import Trace
from transit.traces.signatures import signatures

ALWAYS = 0.999  # the share of iterations
_GRAPH_WORDS = (4, 0, 0, 0, 0, 0, 0)  # the kind, grid and block of a graph's launch


def find_sequence(
    trace: Trace, rank: int, steady: SteadyIteration, allocations: Items[Allocation]
) -> Sequence:
    """Take the calls of one of the steady iterations.

    Parameters
    ----------
    allocations
        The rank's, as planned: only addresses in them count, from the lowest one on
        their GPU, and only those that are named in every iteration. Unused words of a
        launch's parameters hold what was there before, which may look like an address.
    """
    launch_ids, call_at, num_positions = np.unique(
        steady.launch_ids, return_inverse=True, return_counts=True
    )
    launches = _rows(trace.table(rank, "launches"), launch_ids)
    is_graph = is_one_of(launches, "kind", "graph")
    names = launches.column("name").combine_chunks()
    words = [np.full(len(launch_ids), word) for word in _GRAPH_WORDS]
    call, address = _named(trace, rank, steady.accesses, call_at, allocations)
    is_known = ~is_graph[call]
    return Sequence(
        signature=np.where(
            is_graph, signatures(names, words), column(launches, "signature")
        ),
        num_positions=num_positions,
        num_named=np.bincount(call[is_known], minlength=len(launch_ids)),
        is_graph=is_graph,
        named=address[is_known].astype(np.uint64),
    )


def _rows(launches: pa.Table, launch_ids: Ints) -> pa.Table:
    rows = np.searchsorted(column(launches, "launch_id"), launch_ids)
    return launches.take(rows)


def _named(
    trace: Trace,
    rank: int,
    accesses: Accesses,
    call_at: Ints,
    allocations: Items[Allocation],
) -> tuple[Ints, Ints]:
    """Return calls and the addresses that each always names, in order."""
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
    place = places[
        np.searchsorted(column(table, "allocation_id"), accesses.allocation_id)
    ]
    counts = place >= 0
    named = np.stack([call_at[accesses.position], place + accesses.start])[:, counts]
    (call, address), which = np.unique(named, axis=1, return_inverse=True)
    # The same address may be recorded with several sizes.
    often = np.bincount(which, accesses.frequency[counts], len(call)) >= ALWAYS
    return call[often], address[often]
