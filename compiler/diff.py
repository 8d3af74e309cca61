"""What differs between two plans: what was asked for, the prediction, placements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from transit.compiler.plan import Allocation, Placement, Plan

VERSION = 1
# Of placements of one kind, what is added up.
TOTALS = ("resident_bytes", "zero_copy_bytes", "window_bytes", "windows", "moved_bytes")
_KIND_TOTALS = {
    "resident": "resident_bytes",
    "zero-copy": "zero_copy_bytes",
    "windowed": "window_bytes",
}
_Key = tuple[int, int, int]  # rank, device, ordinal


def diff(before: Plan, after: Plan) -> dict[str, Any]:
    """Return what is not the same in two plans, as plain values.

    Of allocations, those that concern most bytes come first: `changed_bytes` are those
    whose place or windows differ. `moved_bytes` are what windows copy in and out each
    iteration.
    """
    return {
        "format": "transit-plan-diff",
        "version": VERSION,
        "same_trace": before.trace.fingerprint == after.trace.fingerprint,
        "options": _changes(_options(before), _options(after)),
        "predictions": _changes(_prediction(before), _prediction(after)),
        "allocations": sorted(
            _allocations(before, after), key=lambda row: -row["changed_bytes"]
        ),
    }


def _options(plan: Plan) -> dict[str, Any]:
    return {
        "policy": plan.policy,
        "gpu_memory_bytes": plan.gpu_memory_bytes,
        "machine": plan.machine.name,
        "machine_fingerprint": plan.machine.fingerprint[:12],
        "gpu": plan.trace.gpu_name,
        "ranks": len(plan.rank_numbers),
        "producer": plan.producer,
    }


def _prediction(plan: Plan) -> dict[str, Any]:
    values = plan.summary.model_dump()
    if plan.prediction:
        values |= plan.prediction.model_dump(exclude={"policies"})
    return values


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """List what has other values; null stands for what a plan does not have."""
    return [
        {"name": name, "before": before.get(name), "after": after.get(name)}
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]


def _allocations(before: Plan, after: Plan) -> Iterator[dict[str, Any]]:
    """Compare each allocation of either plan."""
    old, new = _by_key(before), _by_key(after)
    for key in sorted(old.keys() | new.keys()):
        one, other = old.get(key), new.get(key)
        changed_bytes = _changed_bytes(one, other)
        if changed_bytes:
            yield {
                **dict(zip(("rank", "device", "ordinal"), key, strict=True)),
                "bytes": max(a.bytes for a in (one, other) if a),
                "changed_bytes": changed_bytes,
                "before": _totals(one) if one else None,
                "after": _totals(other) if other else None,
            }


def _by_key(plan: Plan) -> dict[_Key, Allocation]:
    return {
        (rank, allocation.device, allocation.ordinal): allocation
        for rank_plan in plan.ranks
        for rank in rank_plan.ranks
        for allocation in rank_plan.allocations
    }


def _changed_bytes(one: Allocation | None, other: Allocation | None) -> int:
    """Count the bytes that are placed otherwise, or only in one of the plans."""
    if one == other:
        return 0
    sides = [allocation.placements if allocation else () for allocation in (one, other)]
    ends = {p.offset + p.bytes for placements in sides for p in placements}
    edges = [0, *sorted(ends)]
    places = zip(*(_places(placements, edges) for placements in sides), strict=True)
    return sum(
        stop - start
        for (start, stop), (old, new) in zip(pairwise(edges), places, strict=True)
        if old != new
    )


def _places(placements: tuple[Placement, ...], edges: list[int]) -> Iterator[object]:
    """Return what each stretch between edges is; None past the last placement."""
    remaining = iter(placements)
    placement = next(remaining, None)
    for stop in edges[1:]:
        yield (placement.placement, placement.windows) if placement else None
        if placement and placement.offset + placement.bytes == stop:
            placement = next(remaining, None)


def _totals(allocation: Allocation) -> dict[str, int]:
    """Add up the placements of an allocation; `windows` are those of its ranges."""
    totals = dict.fromkeys(TOTALS, 0)
    for placement in allocation.placements:
        totals[_KIND_TOTALS[placement.placement]] += placement.bytes
        totals["windows"] += len(placement.windows)
        copies = sum(window.load + window.write_back for window in placement.windows)
        totals["moved_bytes"] += copies * placement.bytes
    return totals
