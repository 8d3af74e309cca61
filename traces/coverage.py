"""How much a trace knows of what its launches touch, and which ranks are alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transit.traces.fingerprints import UsualIteration
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
    groups: dict[str, list[int]] = {}
    for rank in trace.ranks:
        groups.setdefault(_fingerprint_of_launches(trace, rank), []).append(rank)
    return list(groups.values())


def _fingerprint_of_launches(trace: Trace, rank: int) -> str:
    known = trace.manifest.rank(rank).fingerprints
    if known:
        return known.launches
    launches = trace.table(rank, "launches", ["launch_id", "signature"])
    iterations = trace.table(rank, "iterations", ["first_launch_id", "last_launch_id"])
    columns = (*launches.columns, *iterations.columns)
    return UsualIteration.find(*(column.to_numpy() for column in columns)).digest


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
