"""What the job submits in one iteration, for replay to know where the job is."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from transit.compiler.arrays import Ints, column, is_one_of
from transit.compiler.iteration import SteadyIteration
from transit.compiler.naming import Naming
from transit.compiler.plan import Allocation
from transit.compiler.sequence import Sequence
from transit.traces.reader import Trace
from transit.traces.signatures import signatures

_GRAPH_WORDS = (4, 0, 0, 0, 0, 0, 0)  # the kind, grid and block of a graph's launch


class Submissions(NamedTuple):
    """The calls, and how many name other memory in some of the iterations."""

    sequence: Sequence
    num_unsteady: int


def find_submissions(
    trace: Trace, rank: int, steady: SteadyIteration, allocations: Items[Allocation]
) -> Submissions:
    """Take the calls of one of the steady iterations.

    Parameters
    ----------
    allocations
        The rank's, as planned: only addresses in them count, from the lowest one on
        their GPU, and only those that are named in every iteration.
    """
    launch_ids, num_positions = np.unique(steady.launch_ids, return_counts=True)
    launches = _rows(trace.table(rank, "launches"), launch_ids)
    is_graph = is_one_of(launches, "kind", "graph")
    names = launches.column("name").combine_chunks()
    words = [np.full(len(launch_ids), word) for word in _GRAPH_WORDS]
    naming = Naming.read(trace, rank, launch_ids)
    places = _places(trace, rank, naming.allocation_id, allocations)
    offset = np.where(places >= 0, places + naming.offset, -1)
    call, address, is_always = naming.named(offset)
    sequence = Sequence(
        np.where(is_graph, signatures(names, words), naming.signature),
        num_positions,
        np.bincount(call[is_always], minlength=len(launch_ids)),
        is_graph,
        address[is_always].astype(np.uint64),
        *naming.words_in_replay(is_one_of(launches, "kind", "kernel")),
    )
    return Submissions(sequence, len(np.unique(call[~is_always])))


def _rows(launches: pa.Table, launch_ids: Ints) -> pa.Table:
    rows = np.searchsorted(column(launches, "launch_id"), launch_ids)
    return launches.take(rows)


def _places(
    trace: Trace, rank: int, allocation_id: Ints, allocations: Items[Allocation]
) -> Ints:
    """Return where each allocation lies in replay; -1 if that is not planned."""
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
    return places[np.searchsorted(column(table, "allocation_id"), allocation_id)]
