"""Which allocations a job has when, and how much of a GPU they take at each moment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transit.compiler.alike import groups
from transit.compiler.arrays import Bools, Ints, column, is_one_of
from transit.compiler.plan import PIECE_BYTES
from transit.traces.check import check_allocations
from transit.traces.reader import Trace

FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Allocations:
    """Allocations in the order they were made, alive from one launch to another.

    Both ends count: what came first within one launch id, a free or an allocation, is
    not recorded, so a plan must do with the worse.
    """

    allocation_id: Ints
    device: Ints
    ordinal: Ints  # -1: not movable
    bytes: Ints
    address: Ints
    first_launch_id: Ints
    last_launch_id: Ints

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.allocation_id)

    @property
    def num_pieces(self) -> Ints:
        """Pieces that each one occupies."""
        return -(-self.bytes // PIECE_BYTES)

    def index_of(self, allocation_id: Ints) -> Ints:
        """Find allocations by id; -1 where there is none of it."""
        index = np.searchsorted(self.allocation_id, allocation_id)
        found = np.r_[self.allocation_id, -1][index] == allocation_id
        return np.where(found, index, -1)

    def where(self, keep: Bools) -> Allocations:
        """Return some of the allocations."""
        return Allocations(
            self.allocation_id[keep],
            self.device[keep],
            self.ordinal[keep],
            self.bytes[keep],
            self.address[keep],
            self.first_launch_id[keep],
            self.last_launch_id[keep],
        )

    def by_device(self) -> Iterator[tuple[int, Allocations]]:
        """Return each GPU and the allocations on it."""
        for device in np.unique(self.device):
            yield int(device), self.where(self.device == device)


def read_allocations(trace: Trace, rank: int) -> Allocations:
    """Read the allocations that take up GPU memory; pinned host memory does not."""
    table = trace.table(rank, "allocations")
    allocations = Allocations(
        allocation_id=column(table, "allocation_id"),
        device=column(table, "device").astype(np.int64),
        ordinal=column(table, "ordinal"),
        bytes=column(table, "bytes"),
        address=column(table, "address").astype(np.int64),
        first_launch_id=column(table, "alloc_launch_id"),
        last_launch_id=column(table, "free_launch_id", null=FOREVER),
    )
    return allocations.where(~is_one_of(table, "api", "host"))


class Timeline:
    """Splits the recording into moments between which no allocation comes or goes."""

    def __init__(self, allocations: Allocations) -> None:
        comes = allocations.first_launch_id
        goes = allocations.last_launch_id
        self.moments = np.unique(np.r_[comes, goes[goes < FOREVER] + 1])
        self.first = np.searchsorted(self.moments, comes)
        self.last = np.searchsorted(self.moments, goes, side="right")

    def unmovable_pieces(self, allocations: Allocations) -> Ints:
        """Count what libraries keep at each moment; the driver packs small ones."""
        sizes = np.where(allocations.ordinal >= 0, 0, allocations.bytes)
        return -(-self.total(sizes) // PIECE_BYTES)

    def total(self, sizes: Ints) -> Ints:
        """Sum the sizes of the allocations alive at each moment."""
        changes = np.zeros(len(self.moments) + 1, np.int64)
        np.add.at(changes, self.first, sizes)
        np.subtract.at(changes, self.last, sizes)
        return np.cumsum(changes)[:-1]


def job_peak_bytes(trace: Trace) -> int:
    """Return the most GPU memory the job takes up at once, on the GPU that needs most.

    It counts as plans do: what can be moved in whole pieces.
    """
    peak_pieces = 0
    for rank, *_ in groups(trace):
        check_allocations(trace, rank)
        for _, gpu in read_allocations(trace, rank).by_device():
            timeline = Timeline(gpu)
            movable = timeline.total(np.where(gpu.ordinal >= 0, gpu.num_pieces, 0))
            pieces = movable + timeline.unmovable_pieces(gpu)
            peak_pieces = max(peak_pieces, int(pieces.max()))
    return peak_pieces * PIECE_BYTES
