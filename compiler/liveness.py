"""Which gaps between two accesses hold nothing that is needed again.

What a block held is gone when the framework frees it. Between the last use of one
tensor and the first of the next in the same place nothing has to be copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from transit.compiler.arrays import Bools, Ints, column
from transit.compiler.lifetimes import FOREVER, Allocations
from transit.traces.reader import Trace

BEFORE = -1


@dataclass(frozen=True)
class Holders:
    """Ranges of allocations that hold something from one launch id to another.

    `start` and `stop` are bytes in an allocation; what is held is there for the launch
    `first_launch_id` and no longer for `stop_launch_id`.
    """

    allocation: Ints  # index into Allocations
    start: Ints
    stop: Ints
    first_launch_id: Ints
    stop_launch_id: Ints

    @classmethod
    def read(cls, trace: Trace, rank: int, allocations: Allocations) -> Self:
        """Read the blocks; allocations of which none is known count as one block."""
        table = trace.table(rank, "blocks")
        # Where the history has holes, what lies in them may be needed.
        if trace.manifest.rank(rank).losses.unknown_blocks:
            table = table.slice(0, 0)
        allocation = allocations.index_of(column(table, "allocation_id"))
        known = allocation >= 0
        start = column(table, "offset")[known]
        plain = np.setdiff1d(np.arange(len(allocations)), allocation)
        last = allocations.last_launch_id[plain]
        return cls(
            allocation=np.r_[allocation[known], plain],
            start=np.r_[start, np.zeros(len(plain), np.int64)],
            stop=np.r_[start + column(table, "bytes")[known], allocations.bytes[plain]],
            first_launch_id=np.r_[
                column(table, "alloc_launch_id", null=BEFORE)[known],
                allocations.first_launch_id[plain],
            ],
            stop_launch_id=np.r_[
                column(table, "free_launch_id", null=FOREVER)[known],
                np.where(last == FOREVER, FOREVER, last + 1),
            ],
        )


class Liveness:
    """Answers whether regions hold something at launches and from one to the next.

    Parameters
    ----------
    region, first, stop
        Region `region[i]` holds something at the launches first[i] <= id < stop[i].
    first_launch_id, last_launch_id
        The iteration to look at, both inside.
    """

    def __init__(
        self,
        region: Ints,
        first: Ints,
        stop: Ints,
        first_launch_id: int,
        last_launch_id: int,
    ) -> None:
        self._origin = first_launch_id - 1
        self._width = last_launch_id - self._origin + 3
        self._last = last_launch_id
        first = np.clip(first, self._origin, last_launch_id + 2) - self._origin
        stop = np.clip(stop, self._origin, last_launch_id + 2) - self._origin
        self._held = _union(region, first, stop - 1, self._width)
        # A step from launch x - 1 to x is survived by what is there for both.
        self._kept = _union(region, first + 1, stop - 1, self._width)

    def holds(self, region: Ints, launch_id: Ints) -> Bools:
        """Tell whether each region holds something at a launch."""
        return self._covers(self._held, region, launch_id, launch_id)

    def survives(self, region: Ints, after: Ints, until: Ints) -> Bools:
        """Tell whether something is held from one launch until another.

        Where `until` is not after `after`, it is of the next iteration.
        """
        wraps = until <= after
        end = np.where(wraps, self._last + 1, until)
        covered = self._covers(self._kept, region, after + 1, end)
        begin = np.full_like(until, self._origin + 2)
        again = self._covers(self._kept, region, begin, until)
        return covered & (~wraps | (until < begin) | again)

    def _covers(
        self, union: tuple[Ints, Ints], region: Ints, low: Ints, high: Ints
    ) -> Bools:
        starts, stops = union
        if not len(starts):
            return np.zeros(len(region), np.bool_)
        base = region * self._width - self._origin
        index = np.searchsorted(starts, base + low, side="right") - 1
        return np.asarray((index >= 0) & (stops[index] >= base + high))


def _union(region: Ints, low: Ints, high: Ints, width: int) -> tuple[Ints, Ints]:
    """Join ranges of integers, both ends inside, that touch in one region."""
    some = low <= high
    starts = region[some] * width + low[some]
    stops = region[some] * width + high[some]
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    if not len(starts):
        return starts, stops
    begins = np.r_[True, starts[1:] > stops[:-1] + 1]
    return starts[begins], stops[np.r_[begins[1:], True]]
