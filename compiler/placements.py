"""Write what was chosen for a GPU down as placements, each with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from transit.compiler.arrays import Floats, Ints
from transit.compiler.choice import Choice, Range
from transit.compiler.labels import Labels
from transit.compiler.plan import (
    MAX_BYTES,
    PIECE_BYTES,
    Allocation,
    Placement,
    Window,
)
from transit.compiler.problem import Problem
from transit.units import format_ns

UNEXPLAINED = "in an allocation touched through pointers that no launch names"
HOLDS = "; holds "
MAX_LABEL = 200  # of a reason, which is for people
FOUR_GIB = 1 << 32
CLEAR_BYTES = 256 << 20


def place(
    problem: Problem, choice: Choice, busy_ns: Floats, labels: Labels
) -> Iterator[Allocation]:
    """Give every allocation its placements, sorted by ordinal.

    Parameters
    ----------
    choice
        Ranges that cover every region.
    busy_ns
        GPU time from the iteration's start to each launch, and to its end.
    labels
        What lies in the allocations.
    """
    allocations, regions = problem.allocations, problem.regions
    ranges: list[list[Range]] = [[] for _ in range(len(allocations))]
    for chosen in choice.ranges:
        ranges[regions.allocation[chosen.region]].append(chosen)
    offsets = address_offsets(allocations.address, allocations.num_pieces)
    for index in sorted(range(len(allocations)), key=allocations.ordinal.__getitem__):
        ranges[index].sort(key=lambda chosen: (chosen.region, chosen.first_piece))
        yield Allocation(
            device=int(allocations.device[index]),
            ordinal=int(allocations.ordinal[index]),
            bytes=int(allocations.bytes[index]),
            address_offset=offsets[index],
            placements=tuple(
                _merge(problem, ranges[index], choice.why_spilled, busy_ns, labels)
            ),
        )


def address_offsets(address: Ints, num_pieces: Ints) -> list[int | None]:
    """Choose addresses for replay, in the order of those that were recorded.

    They count from a multiple of 4 GiB. Distances stay, but nothing lies near other
    multiples: there points what is half a number and half what is left of an address,
    as in unused words of parameters. An allocation that shared a piece with others gets
    pieces of its own, beyond the rest; None for what is too far away.
    """
    size = num_pieces * PIECE_BYTES
    whole = address % PIECE_BYTES == 0
    near = whole & (address - address[whole].min(initial=MAX_BYTES) < MAX_BYTES)
    own = np.where(whole, 0, size)
    beyond = (address + size)[near].max(initial=0) + np.cumsum(own) - own
    begin = np.where(whole, address, beyond)
    order = np.argsort(begin, kind="stable")
    # Those that overlap were not there at the same time, and move together.
    stop = np.maximum.accumulate((begin + size)[order])
    heads = np.flatnonzero(begin[order] >= np.r_[0, stop[:-1]][: len(order)])
    offset = np.zeros_like(begin)
    end, recorded_end = 0, int(begin.min(initial=MAX_BYTES))
    for together in np.split(order, heads[1:]) if len(order) else ():
        first, last = int(begin[together[0]]), int((begin + size)[together].max())
        start = _clear_of_multiples(end + first - recorded_end, last - first)
        offset[together] = start + begin[together] - first
        end, recorded_end = start + last - first, last
    return [int(at) if at < MAX_BYTES else None for at in offset]


def _clear_of_multiples(offset: int, extent: int) -> int:
    """Return the next place for so many bytes that is not near a multiple of 4 GiB."""
    above = offset % FOUR_GIB
    if above < CLEAR_BYTES:
        return offset - above + CLEAR_BYTES
    if above + extent <= FOUR_GIB - PIECE_BYTES or extent > FOUR_GIB - 2 * CLEAR_BYTES:
        return offset
    return offset - above + FOUR_GIB + CLEAR_BYTES


def _merge(
    problem: Problem,
    ranges: list[Range],
    why_spilled: str,
    busy_ns: Floats,
    labels: Labels,
) -> Iterator[Placement]:
    """Join neighbours of one placement: plans are read by people."""
    for (kind, windows), group in groupby(ranges, key=lambda r: (r.kind, r.windows)):
        members = list(group)
        use = _use(problem, members)
        why = use if kind == "resident" else f"{why_spilled}: {use}"
        if windows:
            why = f"{_absence(windows, busy_ns)}: {use}"
        first = members[0]
        start = int(problem.regions.first_piece[first.region]) + first.first_piece
        offset = start * PIECE_BYTES
        num_bytes = sum(member.num_pieces for member in members) * PIECE_BYTES
        allocation = int(problem.regions.allocation[first.region])
        held = labels.within(allocation, offset, offset + num_bytes)
        yield Placement(
            offset=offset,
            bytes=num_bytes,
            placement=kind,
            why=why + _holds(held),
            windows=windows,
        )


def _holds(labels: list[str]) -> str:
    """Name the largest of what lies in a range, if anything is known."""
    if not labels:
        return ""
    others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
    return f"{HOLDS}{labels[0][:MAX_LABEL]}{others}"


def _absence(windows: tuple[Window, ...], busy_ns: Floats) -> str:
    """Say for how long of an iteration windows leave memory free for other things."""
    total = float(busy_ns[-1])
    held = sum(
        float(busy_ns[window.last + 1] - busy_ns[window.first])
        + (total if window.last < window.first else 0.0)
        for window in windows
    )
    loads = sum(window.load for window in windows)
    stores = sum(window.write_back for window in windows)
    return (
        f"unused for {format_ns(total - held)} of {format_ns(total)}, "
        f"loads: {loads}, stores: {stores}"
    )


def _use(problem: Problem, members: list[Range]) -> str:
    """Say how the iteration uses the regions of a range, largest share first."""
    regions = problem.regions
    pieces: dict[str, int] = {}
    launches: dict[str, list[int]] = {}
    for member in members:
        region = member.region
        count = int(regions.num_launches[region])
        use = "re-read" if regions.rereads[region] else "streamed"
        use = use if count else "not accessed"
        use = UNEXPLAINED if regions.unexplained[region] else use
        pieces[use] = pieces.get(use, 0) + member.num_pieces
        launches.setdefault(use, []).append(count)
    uses = sorted(pieces, key=lambda use: (-pieces[use], use))
    return "; ".join(_describe(use, launches[use]) for use in uses)


def _describe(use: str, launches: list[int]) -> str:
    if use in ("not accessed", UNEXPLAINED):
        return use
    low, high = min(launches), max(launches)
    count = f"{low}" if low == high else f"{low} to {high}"
    return f"{use}, launches per iteration: {count}"
