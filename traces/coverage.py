"""How much a trace knows of what its launches touch, and which ranks are alike."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transit.traces.reader import Trace


def shares_of_bytes(trace: Trace, rank: int, column: str) -> dict[str, float]:
    """Return the shares of the bytes that accesses may reach, by a column's values.

    Parameters
    ----------
    trace, rank
        Whose accesses to sum, each one of them: twice touched counts twice.
    column
        ``extent``, ``direction`` or ``direction_source``; a missing value is
        ``unknown``.
    """
    accesses = trace.table(rank, "accesses", ["bytes", column])
    sums = accesses.group_by(column).aggregate([("bytes", "sum")])
    known: list[int] = [reach or 0 for reach in sums["bytes_sum"].to_pylist()]
    total = sum(known) or 1
    names = [name or "unknown" for name in sums[column].to_pylist()]
    return {
        name: reach / total
        for reach, name in sorted(zip(known, names, strict=True), reverse=True)
        if reach
    }


def groups_alike(trace: Trace) -> list[list[int]]:
    """Group ranks by the launches of the iteration that each made most often.

    Ranks without marked iterations are compared by all their launches.
    """
    groups: dict[bytes, list[int]] = {}
    for rank in trace.ranks:
        groups.setdefault(_usual_iteration(trace, rank), []).append(rank)
    return list(groups.values())


def _usual_iteration(trace: Trace, rank: int) -> bytes:
    launches = trace.table(rank, "launches", ["launch_id", "signature"])
    launch_id, signature = (column.to_numpy() for column in launches.columns)
    iterations = trace.table(rank, "iterations", ["first_launch_id", "last_launch_id"])
    first, last = (column.to_numpy() for column in iterations.columns)
    starts = np.searchsorted(launch_id, first).tolist() or [0]
    stops = np.searchsorted(launch_id, last, "right").tolist() or [len(launch_id)]
    digests = Counter(
        hashlib.blake2b(signature[start:stop].tobytes(), digest_size=16).digest()
        for start, stop in zip(starts, stops, strict=True)
    )
    return digests.most_common(1)[0][0]


def labels_of_allocations(trace: Trace, rank: int) -> dict[int, list[str]]:
    """Return what lives in each allocation, by its id, the largest first."""
    blocks = trace.table(rank, "blocks", ["allocation_id", "bytes", "label"])
    blocks = blocks.filter(pc.is_valid(blocks["label"]))
    sizes = blocks.group_by(["allocation_id", "label"]).aggregate([("bytes", "max")])
    found: dict[int, list[str]] = {}
    rows: list[dict[str, Any]] = sizes.to_pylist()
    for row in sorted(rows, key=lambda row: (-row["bytes_max"], row["label"])):
        found.setdefault(row["allocation_id"], []).append(row["label"])
    return found


@dataclass(frozen=True)
class Recall:
    """What faulted of an allocation in the audit, and what launches explain of it.

    `unexplained_by` names the functions that were in flight at the rest, that with most
    bytes first.
    """

    faulted_bytes: int
    explained_bytes: int
    unexplained_by: list[str]


def recall_of_allocations(trace: Trace, rank: int) -> dict[int, Recall]:
    """Return the recall of each allocation that was touched in an audit, by its id."""
    columns = ["allocation_id", "bytes", "is_explained", "launch_id"]
    touched = trace.table(rank, "audit", columns)
    unexplained = touched.filter(pc.invert(touched["is_explained"]))
    everything, rest = _bytes_by_allocation(touched), _bytes_by_allocation(unexplained)
    launches = trace.table(rank, "launches", ["launch_id", "name"])
    named = unexplained.join(launches, "launch_id", join_type="inner")
    sums = named.group_by(["allocation_id", "name"]).aggregate([("bytes", "sum")])
    rows: list[dict[str, Any]] = sums.to_pylist()
    found = {
        allocation: Recall(size, size - rest.get(allocation, 0), [])
        for allocation, size in everything.items()
    }
    for row in sorted(rows, key=lambda row: (-row["bytes_sum"], row["name"])):
        found[row["allocation_id"]].unexplained_by.append(row["name"])
    return found


def _bytes_by_allocation(table: pa.Table) -> dict[int, int]:
    sums = table.group_by("allocation_id").aggregate([("bytes", "sum")])
    rows: list[dict[str, int]] = sums.to_pylist()
    return {row["allocation_id"]: row["bytes_sum"] for row in rows}
