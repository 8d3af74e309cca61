"""Choices for whole pieces, and the windows that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from transit.compiler.arrays import Bools, Ints, sum_by
from transit.compiler.bound import Fractions
from transit.compiler.model import Accesses, Model, sum_between
from transit.compiler.slots import Gaps, Slots

NEVER = -1


@dataclass(frozen=True)
class Parts:
    """Ranges of pieces of regions that are treated alike in every gap and run.

    `first_piece` counts from the region's start.
    """

    region: Ints
    first_piece: Ints
    num_pieces: Ints


@dataclass(frozen=True)
class Pairs:
    """What becomes of each part in each gap of its region and the run that follows."""

    part: Ints
    gap: Ints
    is_absent: Bools
    is_in_place: Bools

    @cached_property
    def following(self) -> Ints:
        """The pair of the same part and its next gap, around."""
        following = np.arange(1, len(self.part) + 1)
        starts = np.flatnonzero(np.diff(self.part, prepend=-1))
        following[np.r_[starts[1:], len(self.part)] - 1] = starts
        return following


@dataclass(frozen=True)
class Windows:
    """Times on the GPU of parts that come and go.

    The launches at `first` to `last`, around the iteration, find the part on the GPU.
    Before them it is loaded, unless what it holds is dead by then; after them it is
    stored, unless the host's copy is good or it is dead. From the end of the launch at
    `written` on, the last one that writes, it can be stored although it is still read.

    Between a window and the next one of its part, launches may reach it in place: after
    the window from `home` on, and before it until the one at `ready` begins; `NEVER` if
    none does.
    """

    part: Ints
    first: Ints
    last: Ints
    written: Ints
    load: Bools
    store: Bools
    home: Ints
    ready: Ints

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.part)


@dataclass(frozen=True)
class Schedule:
    """What is where, when: parts, their windows, and what accesses reach in place.

    Parts without a window are `resident` or in host memory for good. `in_place` is, of
    each access of the model, the pieces that it reaches over the link.
    """

    parts: Parts
    resident: Bools
    windows: Windows
    in_place: Ints


def all_resident(model: Model) -> Schedule:
    """Leave everything on the GPU."""
    touched = np.unique(model.accesses.region)
    nothing = np.zeros(0, np.int64)
    return Schedule(
        parts=Parts(touched, np.zeros_like(touched), model.num_pieces[touched]),
        resident=np.ones(len(touched), np.bool_),
        windows=Windows(
            *(nothing, nothing, nothing, nothing),
            load=nothing.astype(np.bool_),
            store=nothing.astype(np.bool_),
            home=nothing,
            ready=nothing,
        ),
        in_place=np.zeros(len(model.accesses), np.int64),
    )


def needed_pieces(model: Model, schedule: Schedule) -> Ints:
    """Return what a schedule has on the GPU for the launch at each position."""
    windows, pieces = schedule.windows, schedule.parts.num_pieces
    held = sum_between(
        windows.first,
        windows.last + 1,
        windows.last < windows.first,
        pieces[windows.part],
        model.num_launches,
    )
    return model.fixed_pieces + int(pieces[schedule.resident].sum()) + held


def round_off(
    model: Model, slots: Slots, choice: Fractions, *, keep_ns: float = 0.0
) -> Schedule:
    """Give every piece one place at a time, as near to the shares as pieces allow.

    The first pieces of a region are those that leave: what is absent for less of the
    region is so for pieces that are absent for more of it too, so that what the
    fractions share stays shared.

    What is dead for less than `keep_ns` keeps its memory, where there is enough.
    """
    gaps = slots.gaps
    size = model.num_pieces[gaps.region]
    absent = np.rint(choice.absent * size).astype(np.int64)
    in_place = np.rint(choice.in_place * size).astype(np.int64)
    parts = _parts(model, gaps.region, np.r_[absent, in_place])
    part, gap = _pair(parts, gaps.region, len(model.num_pieces))
    stop = parts.first_piece[part] + parts.num_pieces[part]
    pairs = Pairs(part, gap, absent[gap] >= stop, in_place[gap] >= stop)
    rounded = _schedule(model, slots, parts, pairs)
    if not keep_ns:
        return rounded
    room = model.budget_pieces - needed_pieces(model, rounded)
    kept = _kept(model, gaps, parts, pairs, room, keep_ns)
    return _schedule(
        model, slots, parts, replace(pairs, is_absent=pairs.is_absent & ~kept)
    )


def _kept(
    model: Model, gaps: Gaps, parts: Parts, pairs: Pairs, room: Ints, keep_ns: float
) -> Bools:
    """Choose dead gaps to keep memory in, the shortest first: to leave costs time."""
    accesses = model.accesses
    clock = np.r_[0.0, np.cumsum(model.duration_ns)]
    lasts_ns = accesses.gaps_last(clock)[gaps.access]
    before = np.empty_like(pairs.following)
    before[pairs.following] = np.arange(len(before))
    candidates = np.flatnonzero(
        (gaps.dead & (lasts_ns < keep_ns))[pairs.gap]
        & ~pairs.is_in_place
        & ~pairs.is_in_place[before]
    )
    access = gaps.access[pairs.gap[candidates]]
    first = accesses.position[access] + 1
    stop = accesses.position[accesses.following[access]]
    room = room.copy()
    kept = np.zeros(len(pairs.part), np.bool_)
    for nth in np.argsort(lasts_ns[pairs.gap[candidates]], kind="stable").tolist():
        pair = candidates[nth]
        pieces = parts.num_pieces[pairs.part[pair]]
        spans = [slice(first[nth], stop[nth])]
        if accesses.wraps[access[nth]]:
            spans = [slice(first[nth], None), slice(0, stop[nth])]
        least = min(room[span].min(initial=pieces) for span in spans)
        if least < pieces:
            continue
        kept[pair] = True
        for span in spans:
            room[span] -= pieces
    return kept


def _parts(model: Model, region: Ints, cuts: Ints) -> Parts:
    """Cut every region that has accesses where a choice for it ends."""
    touched = np.unique(region)
    stride = int(model.num_pieces.max(initial=0)) + 1
    owner = np.r_[region, region, touched, touched]
    place = np.r_[cuts, np.zeros(len(touched), np.int64), model.num_pieces[touched]]
    keys = np.unique(owner * stride + place)
    inside = keys[:-1] // stride == keys[1:] // stride
    begin, end = keys[:-1][inside], keys[1:][inside]
    return Parts(begin // stride, begin % stride, end - begin)


def _pair(parts: Parts, region: Ints, num_regions: int) -> tuple[Ints, Ints]:
    """Pair every part with every gap of its region, in order."""
    count = np.bincount(region, minlength=num_regions)
    first = np.cumsum(count) - count
    repeats = count[parts.region]
    part = np.repeat(np.arange(len(parts.region)), repeats)
    nth = np.arange(len(part)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return part, first[parts.region[part]] + nth


def _schedule(model: Model, slots: Slots, parts: Parts, pairs: Pairs) -> Schedule:
    """Join runs on the GPU with no absence between them into windows."""
    gaps, accesses = slots.gaps, model.accesses
    count = len(parts.region)
    part, gap, following = pairs.part, pairs.gap, pairs.following
    is_absent, is_in_place = pairs.is_absent, pairs.is_in_place
    starts = np.searchsorted(part, np.arange(count + 1))
    heads = np.flatnonzero(is_absent & ~is_in_place)
    tails = np.flatnonzero(is_absent[following] & ~is_in_place)
    tails = _next_around(heads, tails, part)
    writes = sum_by(slots.run, accesses.writes, len(gaps))[gap] > 0
    written = _sum_around(writes, heads, tails, starts[part[heads]], part)
    before = gaps.access[gap[heads]]
    first_access = accesses.following[before]
    last_access = gaps.access[gap[following[tails]]]
    after = accesses.following[last_access]

    def of_parts(access: Ints) -> Ints:
        return part[heads] * len(accesses) + access

    windows = Windows(
        part=part[heads],
        first=accesses.position[first_access],
        last=accesses.position[last_access],
        written=accesses.position[_last_write(accesses, last_access)],
        load=~gaps.dead[gap[heads]],
        store=(written > 0) & ~gaps.dead[gap[following[tails]]],
        home=np.where(
            np.isin(of_parts(after), of_parts(first_access)),
            NEVER,
            accesses.position[after],
        ),
        ready=np.where(
            np.isin(of_parts(before), of_parts(last_access)),
            NEVER,
            (accesses.position[before] + 1) % model.num_launches,
        ),
    )
    in_place = np.bincount(
        gap[is_in_place], parts.num_pieces[part[is_in_place]], len(gaps)
    )
    return Schedule(
        parts=parts,
        resident=np.bincount(part, is_absent, count) == 0,
        windows=windows,
        in_place=in_place.astype(np.int64)[slots.run],
    )


def _last_write(accesses: Accesses, access: Ints) -> Ints:
    """Return each access's latest one that writes, itself or before it, around."""
    region = accesses.region
    first = np.searchsorted(region, region[access])
    last = np.searchsorted(region, region[access], side="right") - 1
    latest = np.maximum.accumulate(
        np.where(accesses.writes, np.arange(len(region)), -1)
    )
    here = latest[access]
    found = np.where(here >= first, here, latest[last])
    return np.where(found >= first, found, access)


def _next_around(heads: Ints, tails: Ints, part: Ints) -> Ints:
    """Return the tail that follows each head in its part, around."""
    index = np.searchsorted(tails, heads)
    owner = part[np.r_[tails, -1][np.minimum(index, len(tails))]]
    beyond = (index == len(tails)) | (owner != part[heads])
    first = np.searchsorted(part[tails], part[heads])
    return tails[np.where(beyond, first, index)]


def _sum_around(
    values: Bools, heads: Ints, tails: Ints, starts: Ints, part: Ints
) -> Ints:
    """Sum up values from each head to its tail, around its part."""
    total = np.r_[0, np.cumsum(values)]
    stops = np.searchsorted(part, part[heads], side="right")
    around = total[stops] - total[starts]
    inside = total[tails + 1] - total[heads]
    return np.asarray(inside + np.where(tails < heads, around, 0))
