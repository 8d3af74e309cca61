"""Ranks that do the same: one plan serves them all, and one rank's tables are read."""

from __future__ import annotations

from collections.abc import Iterator

from transit.compiler.plan import RankPlan
from transit.errors import TraceError
from transit.traces.reader import Trace


def groups(trace: Trace) -> list[list[int]]:
    """Group the ranks by what a plan depends on, each group by ascending rank."""
    found: dict[tuple[object, ...], list[int]] = {}
    for rank in trace.ranks:
        info = trace.manifest.rank(rank)
        known = info.fingerprints
        gpus = [device.name for device in info.devices]
        key = (known.launches, known.memory, *gpus) if known else (rank,)
        found.setdefault(key, []).append(rank)
    return list(found.values())


def share(plan: RankPlan, trace: Trace, group: list[int]) -> Iterator[RankPlan]:
    """Give the plan of a group's first rank to all of it, each on its own GPUs.

    Raises
    ------
    TraceError
        If the manifest does not know a GPU of the plan.
    """
    own = _devices(trace, group[0])
    unknown = {allocation.device for allocation in plan.allocations} - set(own)
    if len(group) > 1 and unknown:
        raise TraceError(
            f"{trace.path}, rank {group[0]}: has allocations on GPUs "
            f"{sorted(unknown)}, and the manifest lists {own}"
        )
    users: dict[tuple[int, ...], list[int]] = {}
    for rank in group:
        users.setdefault(tuple(_devices(trace, rank)), []).append(rank)
    for devices, ranks in users.items():
        device_of = dict(zip(own, devices, strict=True))
        allocations = tuple(
            allocation.model_copy(
                update={"device": device_of.get(allocation.device, allocation.device)}
            )
            for allocation in plan.allocations
        )
        changes = {"ranks": tuple(ranks), "allocations": allocations}
        yield plan.model_copy(update=changes)


def _devices(trace: Trace, rank: int) -> list[int]:
    return sorted(device.device for device in trace.manifest.rank(rank).devices)
