"""Regions: 2 MiB-aligned pieces of allocations whose accesses are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from transit.compiler.arrays import Bools, Floats, Ints, column, mix, sum_by
from transit.compiler.cost import AccessCosts
from transit.compiler.iteration import Accesses, SteadyIteration
from transit.compiler.lifetimes import Allocations
from transit.compiler.plan import PIECE_BYTES
from transit.traces.reader import Trace


@dataclass(frozen=True)
class RegionAccesses:
    """The access list of every region: access x region, sorted by region and time."""

    region: Ints
    position: Ints
    link_bytes: Floats
    link_ns: Floats
    reads: Bools
    writes: Bools
    rereads: Bools
    overwrites: Bools  # leaves nothing of what the region held


@dataclass(frozen=True)
class Regions:
    """Every piece of every movable allocation is in one region.

    The arrays have one entry per region, by allocation and offset. Counts, bytes and
    times are per iteration; link costs are those of the whole region as zero-copy.
    `idle_ns` and `idle_bytes` are the longest reuse distance: the GPU's busy time, and
    the bytes that launches name, between two accesses that follow each other around
    the iteration.
    """

    allocation: Ints  # index into Allocations
    first_piece: Ints
    num_pieces: Ints
    num_launches: Ints
    rereads: Bools
    unexplained: Bools  # touched through pointers that no launch names
    link_bytes: Floats
    link_ns: Floats
    first_position: Ints  # -1 when never accessed
    last_position: Ints
    idle_ns: Floats
    idle_bytes: Floats
    accesses: RegionAccesses

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.allocation)

    def with_whole_allocations_unexplained(self) -> Self:
        """Let what is unexplained in part be so as a whole.

        In other iterations than the audited one the framework's allocator may have put
        elsewhere what pointers lead to.
        """
        whole = np.isin(self.allocation, self.allocation[self.unexplained])
        return replace(self, unexplained=whole)


@dataclass(frozen=True)
class Touches:
    """What was touched through pointers that no launch names, as an audit found."""

    allocation_id: Ints
    start: Ints
    stop: Ints


_NONE = np.zeros(0, np.int64)
NO_TOUCHES = Touches(_NONE, _NONE, _NONE)


def read_unexplained(trace: Trace, rank: int) -> Touches:
    """Read the unexplained touches of a rank; none without an audit."""
    table = trace.table(rank, "audit")
    table = table.filter(pc.invert(table["is_explained"]))
    start = column(table, "offset")
    return Touches(
        column(table, "allocation_id"), start, start + column(table, "bytes")
    )


def find_regions(
    allocations: Allocations,
    iteration: SteadyIteration,
    costs: AccessCosts,
    unexplained: Touches = NO_TOUCHES,
) -> Regions:
    """Cut movable allocations into regions and gather what is known of each."""
    # All allocations in a row, so that one number names any piece.
    bases = np.r_[0, np.cumsum(allocations.num_pieces)]
    index, start, stop = _pieces_of(iteration.accesses, allocations, bases)
    _, odd_start, odd_stop = _pieces_of(unexplained, allocations, bases)
    kept = np.concatenate([bases, odd_start, odd_stop])
    bounds = _region_bounds(kept, start, stop, iteration.accesses.position[index])
    odd = np.zeros(len(bounds) - 1, np.bool_)
    odd[overlaps(bounds, odd_start, odd_stop)[0]] = True
    region, access = overlaps(bounds, start, stop)
    share = (
        np.minimum(stop[access], bounds[region + 1])
        - np.maximum(start[access], bounds[region])
    ) / (stop - start)[access]
    order = np.lexsort((iteration.accesses.position[index[access]], region))
    region, access, share = region[order], index[access[order]], share[order]
    lists = RegionAccesses(
        region=region,
        position=iteration.accesses.position[access],
        link_bytes=costs.link_bytes[access] * share,
        link_ns=costs.link_ns[access] * share,
        reads=iteration.accesses.reads[access],
        writes=iteration.accesses.writes[access],
        rereads=costs.rereads[access],
        overwrites=_overwrites(
            allocations, bounds, bases, region, iteration.accesses, access
        ),
    )
    return _statistics(bounds, bases, lists, odd, iteration)


def _overwrites(
    allocations: Allocations,
    bounds: Ints,
    bases: Ints,
    region: Ints,
    accesses: Accesses,
    access: Ints,
) -> Bools:
    """Tell which accesses write all of their region without reading any of it."""
    allocation = np.searchsorted(bases, bounds[region], side="right") - 1
    begin = (bounds[region] - bases[allocation]) * PIECE_BYTES
    end = np.minimum(
        (bounds[region + 1] - bases[allocation]) * PIECE_BYTES,
        allocations.bytes[allocation],
    )
    only_writes = accesses.writes[access] & ~accesses.reads[access]
    whole = (accesses.start[access] <= begin) & (accesses.stop[access] >= end)
    always = accesses.frequency[access] >= 1
    return np.asarray(only_writes & whole & always & accesses.exact[access])


def _pieces_of(
    accesses: Accesses | Touches, allocations: Allocations, bases: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return which accesses touch movable memory, and their ranges in pieces."""
    movable = allocations.index_of(accesses.allocation_id)
    index = np.flatnonzero(movable >= 0)
    base = bases[movable[index]]
    start = base + accesses.start[index] // PIECE_BYTES
    stop = base - (-accesses.stop[index] // PIECE_BYTES)
    return index, start, stop


def _region_bounds(kept_cuts: Ints, start: Ints, stop: Ints, position: Ints) -> Ints:
    """Cut wherever the set of launches that access a piece changes, and as told."""
    cuts = np.unique(np.concatenate([kept_cuts, start, stop]))
    # A set's hash is the sum of its launches' hashes: add where an access starts,
    # subtract where it stops.
    change = np.zeros(len(cuts), np.uint64)
    np.add.at(change, np.searchsorted(cuts, start), mix(position))
    np.subtract.at(change, np.searchsorted(cuts, stop), mix(position))
    kept: Ints = cuts[(change != 0) | np.isin(cuts, kept_cuts)]
    return kept


def overlaps(bounds: Ints, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Pair every access with every region it touches."""
    first = np.searchsorted(bounds, start, side="right") - 1
    count = np.searchsorted(bounds, stop, side="left") - first
    access = np.repeat(np.arange(len(start)), count)
    nth = np.arange(len(access)) - np.repeat(np.cumsum(count) - count, count)
    return first[access] + nth, access


def _statistics(
    bounds: Ints,
    bases: Ints,
    lists: RegionAccesses,
    unexplained: Bools,
    iteration: SteadyIteration,
) -> Regions:
    count = len(bounds) - 1
    allocation = np.searchsorted(bases, bounds[:-1], side="right") - 1
    # One launch may name a region more than once.
    again = (np.diff(lists.region) == 0) & (np.diff(lists.position) == 0)
    once = ~np.r_[False, again][: len(lists.region)]
    once_region, once_position = lists.region[once], lists.position[once]
    first, last = np.full(count, -1), np.full(count, -1)
    last[once_region] = once_position  # the last assignment stays
    first[once_region[::-1]] = once_position[::-1]
    idle_ns, idle_bytes = _longest_idle(once_region, once_position, count, iteration)
    return Regions(
        allocation=allocation,
        first_piece=bounds[:-1] - bases[allocation],
        num_pieces=np.diff(bounds),
        num_launches=np.bincount(once_region, minlength=count),
        rereads=sum_by(lists.region, lists.rereads, count) > 0,
        unexplained=unexplained,
        link_bytes=sum_by(lists.region, lists.link_bytes, count),
        link_ns=sum_by(lists.region, lists.link_ns, count),
        first_position=first,
        last_position=last,
        idle_ns=idle_ns,
        idle_bytes=idle_bytes,
        accesses=lists,
    )


def _longest_idle(
    region: Ints, position: Ints, count: int, iteration: SteadyIteration
) -> tuple[Floats, Floats]:
    """Return each region's longest time and bytes between two of its accesses."""
    accesses = iteration.accesses
    named = sum_by(
        accesses.position,
        accesses.size * accesses.frequency,
        iteration.num_launches,
    )
    return (
        _longest_gap(region, position, count, iteration.busy_ns),
        _longest_gap(region, position, count, np.r_[0.0, np.cumsum(named)]),
    )


def _longest_gap(region: Ints, position: Ints, count: int, clock: Floats) -> Floats:
    """Find the longest gap on a clock that ticks once before each launch.

    The clock's last entry is the iteration's end, where it goes around to the start.
    """
    begins, ends = clock[position], clock[position + 1]
    is_last = np.r_[region[1:] != region[:-1], True][: len(region)]
    is_first = np.r_[True, is_last[:-1]][: len(region)]
    following = np.roll(begins, -1)
    following[is_last] = begins[is_first] + clock[-1]
    longest: npt.NDArray[np.float64] = np.full(count, clock[-1])
    longest[region[is_first]] = 0.0
    np.maximum.at(longest, region, following - ends)
    return longest
