"""Plain values about a trace or a plan, for ``transit show``."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transit.compiler.iteration import locate
from transit.compiler.plan import Plan
from transit.compiler.work import Work
from transit.errors import TraceError
from transit.kernel_names import demangle, shorten
from transit.traces.caveats import caveats
from transit.traces.coverage import (
    groups_alike,
    labels_of_allocations,
    recall_of_allocations,
    shares_of_bytes,
)
from transit.traces.reader import Trace

VERSION = 1
# Differs from range to range of one reason.
_OWN_FIGURES = re.compile(
    r", launches per iteration: \d+( to \d+)?|^unused for .*? of [^,]*, |; holds .*"
)


def describe_trace(trace: Trace) -> dict[str, Any]:
    """Return ranks, kernels by time, and allocations with their accesses."""
    return {
        "format": "transit-trace-description",
        "version": VERSION,
        "command": trace.manifest.command,
        "ended": trace.manifest.ended,
        **_likeness(trace),
        "ranks": [_rank(trace, rank) for rank in trace.ranks],
        "caveats": [
            {"rank": info.rank, "caveat": caveat}
            for info in trace.manifest.ranks
            for caveat in caveats(info)
        ],
        "kernels": _kernels(trace),
        "allocations": [a for rank in trace.ranks for a in _allocations(trace, rank)],
        "audit": [a for rank in trace.ranks for a in _audit(trace, rank)],
    }


def _rank(trace: Trace, rank: int) -> dict[str, Any]:
    info = trace.manifest.rank(rank)
    return {
        "rank": info.rank,
        "launches": info.counts["launches"],
        "kernel_launches": info.kernel_launches,
        "with_access": info.kernel_launches_with_access,
        "accesses": info.counts["accesses"],
        "allocations": info.counts["allocations"],
        "iterations": info.counts["iterations"],
        "steady_iteration": _steady_iteration(trace, rank),
        "accessed_extent": _shares(trace, rank, "extent"),
        "accessed_direction": _shares(trace, rank, "direction"),
        "direction_known_by": _shares(trace, rank, "direction_source"),
        "lost_records": sum(info.losses.model_dump().values()),
        "gpu": ", ".join(device.name for device in info.devices),
    }


def _likeness(trace: Trace) -> dict[str, str]:
    """Say whether the ranks launch the same, if there are several."""
    groups = groups_alike(trace) if len(trace.ranks) > 1 else []
    if not groups:
        return {}
    if len(groups) == 1:
        return {"ranks_alike": f"all {len(trace.ranks)}"}
    listed = (f"({', '.join(map(str, group))})" for group in groups)
    return {"ranks_alike": f"no: {', '.join(listed)}"}


def _shares(trace: Trace, rank: int, column: str) -> str:
    """Say of how many accessed bytes something is known, and how."""
    shares = shares_of_bytes(trace, rank, column)
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _steady_iteration(trace: Trace, rank: int) -> str:
    """Say how the iterations were found that a plan would be made for."""
    try:
        found = locate(trace, rank, Work.read(trace, rank))
    except TraceError:
        return "none found"
    repeats = found.repeats
    return (
        f"{repeats.launches:,} launches, {len(repeats.starts)} of {repeats.compared}"
        f" alike, found by {found.found_by}, confidence {found.confidence:.0%}"
    )


def _kernels(trace: Trace) -> list[dict[str, Any]]:
    launches = pa.concat_tables([Work.read(trace, rank).table for rank in trace.ranks])
    launches = launches.unify_dictionaries()
    durations = pc.subtract(launches["end_ns"], launches["start_ns"])
    by_name = (
        launches.append_column("duration_ns", durations)
        .group_by(["kind", "name"])
        .aggregate([("duration_ns", "sum"), ("name", "count")])
    )
    total_ns = pc.sum(durations).as_py() or 1
    kernels = [
        {
            "kind": row["kind"],
            "launches": row["name_count"],
            "total_ns": row["duration_ns_sum"] or 0,
            "share": (row["duration_ns_sum"] or 0) / total_ns,
            "name": row["name"],
            "function": demangle(row["name"]),
        }
        for row in by_name.to_pylist()
    ]
    return sorted(kernels, key=lambda kernel: (-kernel["total_ns"], kernel["name"]))


def _allocations(trace: Trace, rank: int) -> list[dict[str, Any]]:
    accesses = trace.table(rank, "accesses", ["allocation_id"])
    counted = accesses.group_by("allocation_id").aggregate([("allocation_id", "count")])
    counts = dict(
        zip(
            counted["allocation_id"].to_pylist(),
            counted["allocation_id_count"].to_pylist(),
            strict=True,
        )
    )
    columns = ["allocation_id", "ordinal", "device", "bytes", "api", "caller"]
    allocations = trace.table(rank, "allocations", columns)
    labels = labels_of_allocations(trace, rank)
    return [
        {
            "rank": rank,
            "device": row["device"],
            "ordinal": row["ordinal"],
            "bytes": row["bytes"],
            "accesses": counts.get(row["allocation_id"], 0),
            "api": row["api"],
            "caller": row["caller"],
            "holds": _holds(labels.get(row["allocation_id"], [])),
        }
        for row in allocations.to_pylist()
    ]


def _audit(trace: Trace, rank: int) -> list[dict[str, Any]]:
    """Return each audited allocation, that first of which most is unexplained."""
    recalls = recall_of_allocations(trace, rank)
    columns = ["allocation_id", "ordinal", "device"]
    allocations = trace.table(rank, "allocations", columns)
    labels = labels_of_allocations(trace, rank)
    rows = [
        {
            "rank": rank,
            "device": row["device"],
            "ordinal": row["ordinal"],
            "faulted_bytes": recall.faulted_bytes,
            "unexplained_bytes": recall.faulted_bytes - recall.explained_bytes,
            "recall": recall.explained_bytes / recall.faulted_bytes,
            "holds": _holds(labels.get(row["allocation_id"], [])),
            "unexplained_by": _holds(
                [shorten(demangle(name)) for name in recall.unexplained_by]
            ),
        }
        for row in allocations.to_pylist()
        if (recall := recalls.get(row["allocation_id"]))
    ]
    return sorted(rows, key=lambda row: -row["unexplained_bytes"])


def _holds(labels: list[str], shown: int = 2) -> str:
    others = len(labels) - shown
    return "; ".join(labels[:shown] + [f"{others} more"] * (others > 0))


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan's totals, by placement and reason too, and each placement."""
    placements = [
        {
            "rank": rank,
            "device": allocation.device,
            "ordinal": allocation.ordinal,
            "offset_bytes": placement.offset,
            "bytes": placement.bytes,
            "placement": placement.placement,
            "windows": [window.model_dump() for window in placement.windows],
            "why": placement.why,
        }
        for rank_plan in plan.ranks
        for rank in rank_plan.ranks
        for allocation in rank_plan.allocations
        for placement in allocation.placements
    ]
    return {
        "format": "transit-plan-description",
        "version": VERSION,
        "policy": plan.policy,
        "gpu_memory_bytes": plan.gpu_memory_bytes,
        "gpu": plan.trace.gpu_name,
        "command": list(plan.trace.command),
        "summary": plan.summary.model_dump(),
        "totals": _totals(placements),
        "placements": placements,
    }


def _totals(placements: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add up the placements of one kind and reason, the largest total first."""
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    all_bytes = sum(placement["bytes"] for placement in placements)
    for placement in placements:
        kind, why = placement["placement"], _OWN_FIGURES.sub("", placement["why"])
        nothing = {"placement": kind, "ranges": 0, "bytes": 0, "share": 0.0, "why": why}
        total = totals.setdefault((kind, why), nothing)
        total["ranges"] += 1
        total["bytes"] += placement["bytes"]
        total["share"] = total["bytes"] / all_bytes
    return sorted(totals.values(), key=lambda total: -total["bytes"])
