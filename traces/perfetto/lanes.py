"""Spreads intervals over lanes, so that those of one lane do not overlap."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def assign_lanes(start_ns: Ints, end_ns: Ints) -> Ints:
    """Return a lane for each interval, counted from 0, and as few as possible.

    Parameters
    ----------
    start_ns
        Where intervals start, ascending.
    end_ns
        Where they end. An interval may start where another ends.
    """
    lanes = np.zeros(len(start_ns), np.int64)
    reach = np.maximum.accumulate(end_ns)
    alone = np.r_[True, start_ns[1:] >= reach[:-1]]
    starts = np.flatnonzero(alone[: len(start_ns)])
    sizes = np.diff(np.r_[starts, len(start_ns)])
    # Most work of a stream overlaps with nothing: only the clusters are walked.
    for first, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
        cluster = slice(first, first + size)
        lanes[cluster] = _walk(start_ns[cluster], end_ns[cluster])
    return lanes


def _walk(start_ns: Ints, end_ns: Ints) -> list[int]:
    lanes: list[int] = []
    busy: list[tuple[int, int]] = []  # until when, lane
    idle: list[int] = []
    num_lanes = 0
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        if idle:
            lane = heapq.heappop(idle)
        else:
            lane = num_lanes
            num_lanes += 1
        lanes.append(lane)
        heapq.heappush(busy, (end, lane))
    return lanes
