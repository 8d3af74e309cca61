"""Finds contradictions between the rows of a trace, which no schema can."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from transit.errors import TraceError
from transit.traces.reader import Trace

Ints = npt.NDArray[np.int64]


def refuse_contradictions(trace: Trace, rank: int) -> None:
    """Raise if a rank's tables do not fit together.

    Parameters
    ----------
    trace
        The trace, of which launches, accesses, allocations and iterations are read.
    rank
        The rank to check.
    """
    where = f"{trace.path}, rank {rank}"

    def require(holds: npt.NDArray[np.bool_], what: str) -> None:
        if not holds.all():
            row = int(np.flatnonzero(~holds)[0])
            raise TraceError(f"{where}, contradicts itself: {what} (row {row}).")

    launch_ids = _column(trace, rank, "launches", "launch_id")
    require(np.diff(launch_ids) > 0, "launches are not in order")

    ids = _column(trace, rank, "allocations", "allocation_id")
    sizes = _column(trace, rank, "allocations", "bytes")
    require(np.diff(ids) > 0, "allocations are not in order")
    require((sizes >= 0) & (sizes < 1 << 48), "an allocation has an impossible size")
    _check_ordinals(trace, rank, where)

    accesses = trace.table(
        rank, "accesses", ["launch_id", "allocation_id", "offset", "bytes"]
    )
    launch_id, allocation_id, offset = (
        accesses[name].to_numpy() for name in accesses.column_names[:3]
    )
    named: Any = accesses["bytes"]
    reach = named.fill_null(0).to_numpy()
    require(np.isin(launch_id, launch_ids), "an access is of no launch")
    require(np.isin(allocation_id, ids), "an access is to no allocation")
    size = sizes[np.searchsorted(ids, allocation_id)] if len(ids) else offset
    require(
        (offset >= 0) & (reach >= 0) & (offset < size) & (reach <= size - offset),
        "an access lies outside its allocation",
    )

    first = _column(trace, rank, "iterations", "first_launch_id")
    last = _column(trace, rank, "iterations", "last_launch_id")
    require(first <= last, "an iteration ends before it starts")
    require(first[1:] > last[:-1], "iterations overlap")
    require(np.isin(first, launch_ids), "an iteration starts at no launch")
    require(np.isin(last, launch_ids), "an iteration ends at no launch")


def _check_ordinals(trace: Trace, rank: int, where: str) -> None:
    table = trace.table(rank, "allocations", ["device", "ordinal"]).drop_null()
    distinct = table.group_by(table.column_names).aggregate([])
    if distinct.num_rows != table.num_rows:
        raise TraceError(f"{where}, contradicts itself: a device has an ordinal twice.")


def _column(trace: Trace, rank: int, table: str, column: str) -> Ints:
    values: Any = trace.table(rank, table, [column])[column].to_numpy()
    return np.asarray(values, np.int64)
