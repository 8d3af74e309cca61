"""How far an access reaches, when a launch names only an address.

From the framework allocator's history where there is one: to the end of the block that
was alive at the launch. Else to the next address that anything named in the
allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from transit.recorder.columns import NEVER, Ints, int64
from transit.recorder.spool import Records

ALLOC, FREE, ALIVE = 1, 2, 3  # BlockAction
BEFORE = np.iinfo(np.int64).min

# The allocator's history and CUPTI read different clocks, the former in microseconds.
CLOCK_TOLERANCE_NS = 100_000


@dataclass(frozen=True)
class Histories:
    """From when to when the allocator's history is whole."""

    device: Ints
    begin_ns: Ints
    end_ns: Ints

    @classmethod
    def read(cls, records: Records, launched_ns: Ints) -> Self:
        """Join stretches that meet; to span all launches is to be whole for ever."""
        records = records[np.lexsort((records["begin_ns"], records["device"]))]
        device = records["device"].astype(np.int64)
        begin = int64(records["begin_ns"], "time of a history")
        end = int64(records["end_ns"], "time of a history")
        meets = (device[1:] == device[:-1]) & (begin[1:] <= end[:-1])
        first = np.append(True, ~meets)[: len(records)]
        last = np.append(~meets, True)[: len(records)]
        begin, end = begin[first], end[last]
        if len(launched_ns):
            begin = np.where(begin <= launched_ns.min(), BEFORE, begin)
            end = np.where(end >= launched_ns.max(), NEVER, end)
        return cls(device[first], begin, end)

    def __len__(self) -> int:
        """Return the number of stretches."""
        return len(self.device)

    def of(self, events: Records) -> tuple[npt.NDArray[np.bool_], Self]:
        """Tell which events are in a stretch, and return theirs."""
        row = np.full(len(events), -1, np.int64)
        time = events["host_ns"].astype(np.int64)
        for index in range(len(self)):  # one for each device, unless something broke
            inside = (events["device"] == self.device[index]) & (
                (time >= self.begin_ns[index]) & (time <= self.end_ns[index])
            )
            row[inside] = index
        known = row >= 0
        row = row[known]
        return known, type(self)(self.device[row], self.begin_ns[row], self.end_ns[row])


@dataclass(frozen=True)
class Lifetimes:
    """Address ranges, alive from `born_ns` until `died_ns`, for sure at `seen_ns`.

    Those whose birth nobody saw may be older.
    """

    address: Ints
    bytes: Ints
    born_ns: Ints
    died_ns: Ints
    seen_ns: Ints
    birth_seen: npt.NDArray[np.bool_]

    @classmethod
    def of_blocks(cls, events: Records, span: Histories) -> Self:
        """Pair the allocator's events into lifetimes.

        Parameters
        ----------
        events
            Those of times at which the history is whole.
        span
            Of each event, from when to when that is.
        """
        order = np.lexsort(
            (events["host_ns"], events["address"], span.begin_ns, events["device"])
        )
        order = order[~_repeats_a_birth(events[order], span.begin_ns[order])]
        events, begin, end = events[order], span.begin_ns[order], span.end_ns[order]
        same_as_next = _same_place(events, begin)
        follows = np.append(False, same_as_next)[: len(events)]
        followed = np.append(same_as_next, False)[: len(events)]

        time = events["host_ns"].astype(np.int64)
        is_free = events["action"] == FREE
        is_alloc = events["action"] == ALLOC
        after_birth = follows & ~np.append(True, is_free)[:-1]
        # Without a free in between, nobody saw how long the earlier block lived.
        next_is_free = np.append(is_free, False)[1:]
        died = np.where(next_is_free, np.append(time, NEVER)[1:], time)
        died = np.where(followed, died, end)
        # A block whose birth nobody saw was there before, if the place was not free.
        born = np.where(is_alloc | (follows & ~after_birth), time, begin)
        died = np.where(is_free, time, died)
        keep = ~is_free | ~after_birth
        return cls(
            events["address"][keep].astype(np.int64),
            events["bytes"][keep].astype(np.int64),
            born[keep],
            died[keep],
            time[keep],
            is_alloc[keep],
        )

    @property
    def end(self) -> Ints:
        """Return the first address after each range."""
        return self.address + self.bytes

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.address)

    def find(self, address: Ints, time_ns: Ints) -> Ints:
        """Return the row alive at each address and time, -1 where there is none."""
        row = np.full(len(address), -1, np.int64)
        if not len(self) or not len(address):
            return row
        starts, births = self._by_start
        place = np.searchsorted(starts, address)
        place[place == len(starts)] = 0
        place[starts[place] != address] = -1
        row = births.find(place, time_ns)
        # Most accesses name a block's start; the rest point into one.
        inner = np.flatnonzero(row < 0)
        if len(inner):
            known, place = np.unique(address[inner], return_inverse=True)
            births = _Births(self, *self._containing(known))
            row[inner] = births.find(place, time_ns[inner])
        return row

    @cached_property
    def _by_start(self) -> tuple[Ints, _Births]:
        starts, at = np.unique(self.address, return_inverse=True)
        return starts, _Births(self, np.arange(len(self)), at)

    def _containing(self, known: Ints) -> tuple[Ints, Ints]:
        """Return all pairs of a row and the index of a `known` address inside it."""
        low = np.searchsorted(known, self.address)
        count = np.searchsorted(known, self.end) - low
        rows = np.repeat(np.arange(len(self)), count)
        first = np.cumsum(count) - count
        return rows, np.arange(len(rows)) - np.repeat(first - low, count)


class _Births:
    """Lifetimes by the places they hold, and by when they were born there."""

    def __init__(self, lifetimes: Lifetimes, rows: Ints, at: Ints) -> None:
        self._times = np.unique(lifetimes.born_ns[rows])
        keys = self._keys(at, lifetimes.born_ns[rows])
        order = np.argsort(keys, kind="stable")
        self._sorted_keys = keys[order]
        self._rows, self._at = rows[order], at[order]
        self._born_ns = lifetimes.born_ns[self._rows]
        self._died_ns = lifetimes.died_ns[self._rows]

    def _keys(self, place: Ints, time_ns: Ints) -> Ints:
        born_before = np.searchsorted(self._times, time_ns, "right")
        return place * (len(self._times) + 1) + born_before

    def find(self, place: Ints, time_ns: Ints) -> Ints:
        """Return the row alive at each place and time, -1 where there is none."""
        keys = self._keys(place, time_ns)
        last_born = np.searchsorted(self._sorted_keys, keys, "right") - 1
        result = np.full(len(place), -1, np.int64)
        nearest = np.full(len(place), CLOCK_TOLERANCE_NS, np.int64)
        for found in (last_born, last_born + 1):
            queries = np.flatnonzero((found >= 0) & (found < len(self._rows)))
            queries = queries[self._at[found[queries]] == place[queries]]
            distance = self._distance(found[queries], time_ns[queries])
            better = distance <= nearest[queries]
            queries = queries[better]
            result[queries] = self._rows[found[queries]]
            nearest[queries] = distance[better] - 1  # the next must be strictly nearer
        return result

    def _distance(self, found: Ints, time_ns: Ints) -> Ints:
        """Return how long before its birth or after its death each time is."""
        born_ns, died_ns = self._born_ns[found], self._died_ns[found]
        early = np.where(born_ns > time_ns, born_ns - time_ns, 0)
        late = np.where(died_ns < time_ns, time_ns - died_ns, 0)
        return np.maximum(early, late)


def bytes_to_next_base(bases: Ints, places: Ints, ends: Ints) -> Ints:
    """Return how far it is from each place to the next base, or its allocation's end.

    All in one line of addresses in which allocations do not overlap; the bases ascend.
    """
    following = np.append(bases, NEVER)[np.searchsorted(bases, places, "right")]
    reach: Ints = np.minimum(following, ends) - places
    return reach


def _same_place(events: Records, begin_ns: Ints) -> npt.NDArray[np.bool_]:
    """Tell which events are at the place of the next, with no gap in between."""
    same: npt.NDArray[np.bool_] = begin_ns[:-1] == begin_ns[1:]
    for name in ("address", "device"):
        same &= events[name][:-1] == events[name][1:]
    return same


def _repeats_a_birth(events: Records, begin_ns: Ints) -> npt.NDArray[np.bool_]:
    """Tell what is listed as alive after the history saw it being born."""
    repeats = np.zeros(len(events), bool)
    repeats[1:] = (
        _same_place(events, begin_ns)
        & (events["action"][1:] == ALIVE)
        & (events["action"][:-1] != FREE)
    )
    return repeats
