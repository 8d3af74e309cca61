"""What was measured: times of a few runs, and the rates they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The times of some runs of one thing."""

    what: str
    times_ns: tuple[float, ...]
    moved_bytes: int = 0
    """In each run; each way, if it goes both ways."""
    pieces: int = 1
    """In each run, so many transfers."""

    @property
    def median_ns(self) -> float:
        """The time of a run."""
        return median(self.times_ns)

    @property
    def bytes_per_s(self) -> float:
        """The rate of a run."""
        return self.moved_bytes / self.median_ns * 1e9

    @property
    def piece_bytes(self) -> int:
        """Bytes of a transfer."""
        return self.moved_bytes // self.pieces

    @property
    def piece_ns(self) -> float:
        """Time per transfer."""
        return self.median_ns / self.pieces

    @property
    def spread(self) -> float:
        """How far apart the runs are, as a share of the median."""
        return (max(self.times_ns) - min(self.times_ns)) / self.median_ns


def measure(
    what: str,
    run: Callable[[], float],
    *,
    moved_bytes: int = 0,
    pieces: int = 1,
    prepare: Callable[[], object] = lambda: None,
) -> Measurement:
    """Run something once to warm up, then several times; it returns its own time."""
    times_ns = []
    for _ in range(RUNS + 1):
        prepare()
        times_ns.append(run())
    return Measurement(
        what=what,
        times_ns=tuple(times_ns[1:]),
        moved_bytes=moved_bytes,
        pieces=pieces,
    )


def split_fixed(small: Measurement, large: Measurement) -> tuple[float, float]:
    """Tell what transfers take per byte and what each takes on top.

    Returns
    -------
    tuple[float, float]
        Bytes per second, and nanoseconds per transfer.
    """
    more_ns = large.piece_ns - small.piece_ns
    more_bytes = large.piece_bytes - small.piece_bytes
    if more_ns <= 0 or more_bytes <= 0:
        return large.bytes_per_s, 0.0
    ns_per_byte = more_ns / more_bytes
    fixed_ns = small.piece_ns - small.piece_bytes * ns_per_byte
    if fixed_ns <= 0:
        return large.bytes_per_s, 0.0
    return 1e9 / ns_per_byte, fixed_ns
