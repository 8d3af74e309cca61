"""What a policy decides about: one GPU's regions, lifetimes and budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Ints
from transit.compiler.lifetimes import Allocations, Timeline
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.regions import Regions


@dataclass(frozen=True)
class Problem:
    """One GPU of one rank; sizes are in pieces of 2 MiB.

    `first` and `last` are the moments between which each allocation lives, and
    `unmovable` is what libraries keep at each moment. `moments` are the launch ids at
    which they begin.
    """

    allocations: Allocations
    regions: Regions
    budget: int
    unmovable: Ints
    moments: Ints
    first: Ints
    last: Ints

    @classmethod
    def build(
        cls, gpu: Allocations, regions: Regions, *, gpu_memory_bytes: int
    ) -> Problem:
        """Lay out the lifetimes of all the allocations of one GPU."""
        timeline = Timeline(gpu)
        movable = gpu.ordinal >= 0
        return cls(
            allocations=gpu.where(movable),
            regions=regions,
            budget=gpu_memory_bytes // PIECE_BYTES,
            unmovable=timeline.unmovable_pieces(gpu),
            moments=timeline.moments,
            first=timeline.first[movable],
            last=timeline.last[movable],
        )

    def lifetime(self, allocation: int) -> slice:
        """Return the moments an allocation lives through."""
        return slice(int(self.first[allocation]), int(self.last[allocation]))

    def unmovable_at(self, launch_ids: Ints) -> Ints:
        """Count the pieces that libraries keep at some launches."""
        return self.unmovable[self._moments_of(launch_ids)]

    def resident_at(self, launch_ids: Ints, zero_copy: Ints) -> Ints:
        """Count the pieces on the GPU at some launches, as `resident` does."""
        return self.resident(zero_copy)[self._moments_of(launch_ids)]

    def _moments_of(self, launch_ids: Ints) -> Ints:
        moment = np.searchsorted(self.moments, launch_ids, side="right") - 1
        return np.maximum(moment, 0)

    def resident(self, zero_copy: Ints) -> Ints:
        """Count the pieces on the GPU at each moment.

        Parameters
        ----------
        zero_copy
            How many pieces of each region are zero-copy.
        """
        kept = self.regions.num_pieces - zero_copy
        change = np.zeros(len(self.unmovable) + 1, np.int64)
        np.add.at(change, self.first[self.regions.allocation], kept)
        np.subtract.at(change, self.last[self.regions.allocation], kept)
        return self.unmovable + np.cumsum(change)[:-1]

    def peak(self, zero_copy: Ints) -> int:
        """Return the most pieces that are on the GPU at any moment."""
        return int(self.resident(zero_copy).max())
