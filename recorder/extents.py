"""How far an access reaches, when a launch names only an address.

From the framework allocator's history where there is one: to the end of the block that
was alive at the launch. Else to the next address that anything named in the
allocation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from transit.recorder.columns import NEVER, Ints
from transit.recorder.spool import Records

ALLOC, FREE, ALIVE_AT_START = 1, 2, 3  # BlockAction
BEFORE = np.iinfo(np.int64).min

# The allocator's history and CUPTI read different clocks, the former in microseconds.
CLOCK_TOLERANCE_NS = 100_000


@dataclass(frozen=True)
class Lifetimes:
    """Address ranges, alive from `born_ns` until `died_ns`, for sure at `seen_ns`."""

    address: Ints
    bytes: Ints
    born_ns: Ints
    died_ns: Ints
    seen_ns: Ints

    @classmethod
    def of_blocks(cls, events: Records) -> Self:
        """Pair the allocator's events into lifetimes."""
        order = np.lexsort((events["host_ns"], events["address"], events["device"]))
        events = _without_repeated_births(events[order])
        same_as_next = _same_place(events[:-1], events[1:])
        follows = np.append(False, same_as_next)[: len(events)]
        followed = np.append(same_as_next, False)[: len(events)]

        time = events["host_ns"].astype(np.int64)
        is_free = events["action"] == FREE
        after_birth = follows & ~np.append(True, is_free)[:-1]
        died = np.where(followed, np.append(time, NEVER)[1:], NEVER)
        born = np.where(events["action"] == ALLOC, time, BEFORE)
        # A free whose birth nobody saw is a block that was there before.
        died = np.where(is_free, time, died)
        keep = ~is_free | ~after_birth
        return cls(
            events["address"][keep].astype(np.int64),
            events["bytes"][keep].astype(np.int64),
            born[keep],
            died[keep],
            time[keep],
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
        known, place = np.unique(address, return_inverse=True)
        at = np.searchsorted(known, self.address)
        starts = np.flatnonzero(known[np.minimum(at, len(known) - 1)] == self.address)
        row = self._alive(starts, at[starts], place, time_ns)
        # Most accesses name a block's start; the rest point into one.
        inner = np.flatnonzero(row < 0)
        if len(inner):
            known, place = np.unique(address[inner], return_inverse=True)
            pairs, at = self._containing(known)
            row[inner] = self._alive(pairs, at, place, time_ns[inner])
        return row

    def _containing(self, known: Ints) -> tuple[Ints, Ints]:
        """Return all pairs of a row and the index of a `known` address inside it."""
        low = np.searchsorted(known, self.address)
        count = np.searchsorted(known, self.end) - low
        rows = np.repeat(np.arange(len(self)), count)
        first = np.cumsum(count) - count
        return rows, np.arange(len(rows)) - np.repeat(first - low, count)

    def _alive(self, rows: Ints, at: Ints, place: Ints, time_ns: Ints) -> Ints:
        """Choose among `rows`, which hold the places `at`, one for each query."""
        births = np.unique(self.born_ns[rows])

        def key(place: Ints, time_ns: Ints) -> Ints:
            return place * (len(births) + 1) + np.searchsorted(births, time_ns, "right")

        keys = key(at, self.born_ns[rows])
        order = np.argsort(keys, kind="stable")
        rows, at = rows[order], at[order]
        last_born = np.searchsorted(keys[order], key(place, time_ns), "right") - 1
        result = np.full(len(place), -1, np.int64)
        nearest = np.full(len(place), CLOCK_TOLERANCE_NS, np.int64)
        for found in (last_born, last_born + 1):
            queries = np.flatnonzero((found >= 0) & (found < len(rows)))
            queries = queries[at[found[queries]] == place[queries]]
            candidates = rows[found[queries]]
            distance = self._distance(candidates, time_ns[queries])
            better = distance <= nearest[queries]
            queries = queries[better]
            result[queries] = candidates[better]
            nearest[queries] = distance[better] - 1  # the next must be strictly nearer
        return result

    def _distance(self, rows: Ints, time_ns: Ints) -> Ints:
        """Return how long before its birth or after its death each time is."""
        early = np.where(self.born_ns[rows] > time_ns, self.born_ns[rows] - time_ns, 0)
        late = np.where(self.died_ns[rows] < time_ns, time_ns - self.died_ns[rows], 0)
        return np.maximum(early, late)


def bytes_to_next_base(bases: Ints, places: Ints, ends: Ints) -> Ints:
    """Return how far it is from each place to the next base, or its allocation's end.

    All in one line of addresses in which allocations do not overlap; the bases ascend.
    """
    following = np.append(bases, NEVER)[np.searchsorted(bases, places, "right")]
    reach: Ints = np.minimum(following, ends) - places
    return reach


def _same_place(left: Records, right: Records) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = (left["address"] == right["address"]) & (
        left["device"] == right["device"]
    )
    return same


def _without_repeated_births(events: Records) -> Records:
    """Drop what the snapshot lists as alive and the history saw being born."""
    repeated = np.zeros(len(events), bool)
    repeated[1:] = (
        _same_place(events[:-1], events[1:])
        & (events["action"][1:] == ALIVE_AT_START)
        & (events["action"][:-1] != FREE)
    )
    return events[~repeated]
