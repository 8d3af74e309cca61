"""Write a policy's choice down as placements, each with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from transit.compiler.arrays import Ints
from transit.compiler.plan import (
    MAX_BYTES,
    PIECE_BYTES,
    Allocation,
    Placement,
    PlacementKind,
)
from transit.compiler.problem import Problem

UNEXPLAINED = "touched through pointers that no launch names"

# First piece, number of pieces, placement, region.
_Range = tuple[int, int, PlacementKind, int]


def place(
    problem: Problem, zero_copy: Ints, *, why_spilled: str
) -> Iterator[Allocation]:
    """Give every allocation its placements, sorted by ordinal.

    Parameters
    ----------
    zero_copy
        How many pieces of each region are zero-copy, counted from its end.
    why_spilled
        The policy's reason, for people who read the plan.
    """
    allocations = problem.allocations
    ranges: list[list[_Range]] = [[] for _ in range(len(allocations))]
    for region, allocation in enumerate(problem.regions.allocation):
        ranges[allocation] += _split(problem, region, int(zero_copy[region]))
    offsets = _address_offsets(allocations.address)
    for index in sorted(range(len(allocations)), key=allocations.ordinal.__getitem__):
        yield Allocation(
            device=int(allocations.device[index]),
            ordinal=int(allocations.ordinal[index]),
            bytes=int(allocations.bytes[index]),
            address_offset=offsets[index],
            placements=tuple(_merge(problem, ranges[index], why_spilled)),
        )


def _address_offsets(address: Ints) -> list[int | None]:
    """Measure addresses from the lowest whole piece; none for those within a piece."""
    whole = address % PIECE_BYTES == 0
    lowest = address[whole].min(initial=np.iinfo(np.int64).max)
    return [
        int(offset) if is_whole and offset < MAX_BYTES else None
        for offset, is_whole in zip(address - lowest, whole, strict=True)
    ]


def _split(problem: Problem, region: int, zero_copy: int) -> Iterator[_Range]:
    first = int(problem.regions.first_piece[region])
    resident = int(problem.regions.num_pieces[region]) - zero_copy
    if resident:
        yield first, resident, "resident", region
    if zero_copy:
        yield first + resident, zero_copy, "zero-copy", region


def _merge(
    problem: Problem, ranges: list[_Range], why_spilled: str
) -> Iterator[Placement]:
    """Join neighbours of one placement: plans are read by people."""
    for kind, group in groupby(ranges, key=lambda item: item[2]):
        members = list(group)
        use = _use(problem, [region for _, _, _, region in members])
        yield Placement(
            offset=members[0][0] * PIECE_BYTES,
            bytes=sum(pieces for _, pieces, _, _ in members) * PIECE_BYTES,
            placement=kind,
            why=use if kind == "resident" else f"{why_spilled}: {use}",
        )


def _use(problem: Problem, members: list[int]) -> str:
    """Say how the iteration uses the regions of a range, largest share first."""
    regions = problem.regions
    pieces: dict[str, int] = {}
    launches: dict[str, list[int]] = {}
    for region in members:
        count = int(regions.num_launches[region])
        use = "re-read" if regions.rereads[region] else "streamed"
        use = use if count else "not accessed"
        use = UNEXPLAINED if regions.unexplained[region] else use
        pieces[use] = pieces.get(use, 0) + int(regions.num_pieces[region])
        launches.setdefault(use, []).append(count)
    uses = sorted(pieces, key=lambda use: (-pieces[use], use))
    return "; ".join(_describe(use, launches[use]) for use in uses)


def _describe(use: str, launches: list[int]) -> str:
    if use in ("not accessed", UNEXPLAINED):
        return use
    low, high = min(launches), max(launches)
    count = f"{low}" if low == high else f"{low} to {high}"
    return f"{use}, launches per iteration: {count}"
