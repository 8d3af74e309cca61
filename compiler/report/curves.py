"""A step's course as curves of as many points as a chart has room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Floats, Ints
from transit.compiler.course import Course
from transit.compiler.plan import PIECE_BYTES

NUM_BINS = 240


@dataclass(frozen=True)
class Memory:
    """What is on the GPU in equal parts of the step: each at its fullest moment."""

    fixed_bytes: Floats
    resident_bytes: Floats
    windowed_bytes: Floats

    @classmethod
    def of(cls, course: Course) -> Memory:
        """Take, for each part of the step, the stretch that has most on the GPU."""
        fixed, resident = course.fixed_pieces, course.resident_pieces
        total = fixed + resident + course.windowed_pieces
        begins_ns = course.start_ns + course.wait_ns
        edges = np.linspace(0.0, course.step_ns, NUM_BINS + 1)
        # A part begins with what was there before.
        first = np.maximum(np.searchsorted(begins_ns, edges[:-1], side="right") - 1, 0)
        stop = np.maximum(np.searchsorted(begins_ns, edges[1:], side="left"), first + 1)
        fullest = [
            begin + int(np.argmax(total[begin:end]))
            for begin, end in zip(first, stop, strict=True)
        ]

        def of_fullest(pieces: Ints) -> Floats:
            return pieces[fullest].astype(np.float64) * PIECE_BYTES

        return cls(
            of_fullest(fixed),
            of_fullest(resident),
            of_fullest(course.windowed_pieces),
        )

    @property
    def total_bytes(self) -> Floats:
        """All that is on the GPU."""
        return self.fixed_bytes + self.resident_bytes + self.windowed_bytes


def bytes_in_bins(
    course: Course,
    in_place_bytes: Floats,
    window_bytes: Floats,
    *,
    window_bytes_per_s: float,
    bytes_per_s: float,
) -> Floats:
    """Return what crosses the link one way in equal parts of the step.

    Parameters
    ----------
    in_place_bytes, window_bytes
        What the course counts in each stretch.
    window_bytes_per_s, bytes_per_s
        The most that windows take of the link, and that crosses it at all.
    """
    windows = _in_time(course, window_bytes, window_bytes_per_s)
    moved = _in_time(course, in_place_bytes + windows, bytes_per_s)
    clock_ns = np.r_[course.start_ns, course.step_ns]
    edges = np.linspace(0.0, course.step_ns, NUM_BINS + 1)
    return np.diff(np.interp(edges, clock_ns, np.r_[0.0, np.cumsum(moved)]))


def _in_time(course: Course, moved_bytes: Floats, bytes_per_s: float) -> Floats:
    """Move bytes to where they crossed, from stretches that are too short for them.

    What is counted where it ends crossed before that, no faster than the link is: by
    the end of each stretch no more has crossed than lets what follows be in time.
    Around the step's end this goes on: what ends early began in the step before.
    """
    ends_ns = np.r_[course.start_ns[1:], course.step_ns]
    capacity = np.r_[0.0, ends_ns, course.step_ns + ends_ns] * bytes_per_s * 1e-9
    moved = np.r_[0.0, np.cumsum(np.r_[moved_bytes, moved_bytes])]
    needed = np.maximum.accumulate((moved - capacity)[::-1])[::-1] + capacity
    return np.diff(needed[: len(ends_ns) + 1])
