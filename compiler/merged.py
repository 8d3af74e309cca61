"""Solve for regions that look alike together: the program's size is then bounded.

In slots, the tensors of a layer are touched at the same times, and with few slots those
of neighbouring layers too. As shares are of any size, one region as large as all that
are alike stands for them. The shares are then dealt out: the first of them leaves as a
whole before the next one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transit.compiler import bound, slots
from transit.compiler.arrays import Bools, Floats, Ints, mix
from transit.compiler.bound import Fractions
from transit.compiler.link import Link
from transit.compiler.model import Accesses, Model
from transit.compiler.slots import Slots


@dataclass(frozen=True)
class Merged:
    """A model in which one region stands for all that are alike in a cut.

    `gap` is, for each gap of the cut, that of the merged one that stands for it.
    """

    model: Model
    cut: Slots
    first_piece: Ints  # where each region begins among those it is merged with
    gap: Ints

    @classmethod
    def of(cls, model: Model, cut: Slots, used: Bools) -> Merged:
        """Merge."""
        accesses = model.accesses
        touched, starts = np.unique(accesses.region, return_index=True)
        looks = np.add.reduceat(
            np.where(used, _looks(model, cut), np.uint64(0)), starts
        )
        _, first, group = np.unique(looks, return_index=True, return_inverse=True)
        size = model.num_pieces[touched]
        total = np.bincount(group, size, len(first)).astype(np.int64)
        first_piece = np.zeros_like(model.num_pieces)
        first_piece[touched] = _sum_before(group, size)
        stands_for = np.arange(len(model.num_pieces))
        stands_for[touched] = touched[first][group]
        num_pieces = model.num_pieces.copy()
        num_pieces[touched[first]] = total
        merged = replace(
            model, num_pieces=num_pieces, accesses=_only(model, num_pieces, stands_for)
        )
        kept = stands_for[accesses.region] == accesses.region
        of_merged = slots.cut(merged, cut.checkpoint, used[kept])
        return cls(merged, of_merged, first_piece, _pair(cut, of_merged, stands_for))

    def solve(
        self,
        model: Model,
        cut: Slots,
        link: Link,
        *,
        spare_pieces: int,
        most_absent: Floats,
    ) -> Fractions | None:
        """Return shares for all gaps and runs of the cut that was merged."""
        least = np.ones(len(self.cut.gaps))
        np.minimum.at(least, self.gap, most_absent)
        solved = bound.solve(
            replace(self.model, budget_pieces=model.budget_pieces - spare_pieces),
            self.cut,
            link,
            whole_runs=True,
            most_absent=least,
        )
        if solved is None:
            return None
        return replace(
            solved,
            absent=self._deal_out(solved.absent, model, cut),
            in_place=self._deal_out(solved.in_place, model, cut),
        )

    def _deal_out(self, share: Floats, model: Model, cut: Slots) -> Floats:
        region = cut.gaps.region
        pieces = (share * self.model.num_pieces[self.cut.gaps.region])[self.gap]
        size = model.num_pieces[region]
        return np.clip((pieces - self.first_piece[region]) / size, 0.0, 1.0)


def _looks(model: Model, cut: Slots) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return numbers for each access that are equal where the program sees no more."""
    accesses = model.accesses
    slot = cut.slot[accesses.position]
    place = slot * 2 + (cut.checkpoint[slot] == accesses.position)
    flags = accesses.reads + 2 * accesses.writes + 4 * accesses.rereads
    flags = flags + 8 * accesses.dead
    looks = mix(mix(place) + place[accesses.following].astype(np.uint64))
    return mix(looks + flags.astype(np.uint64))


def _only(model: Model, num_pieces: Ints, stands_for: Ints) -> Accesses:
    """Keep the accesses of what stands for others, with the costs of all of them."""
    accesses = model.accesses
    region = accesses.region
    kept = stands_for[region] == region
    index = np.cumsum(kept) - 1
    more = (num_pieces / model.num_pieces)[region[kept]]
    return replace(
        accesses,
        region=region[kept],
        position=accesses.position[kept],
        reads=accesses.reads[kept],
        writes=accesses.writes[kept],
        rereads=accesses.rereads[kept],
        link_bytes=accesses.link_bytes[kept] * more,
        # Nothing is reached in place: what that costs differs among what is merged.
        link_ns=np.full(len(more), np.inf),
        following=index[accesses.following[kept]],
        dead=accesses.dead[kept],
    )


def _sum_before(group: Ints, size: Ints) -> Ints:
    """Sum up, for each entry, the sizes of those before it in its group."""
    order = np.argsort(group, kind="stable")
    sums = np.cumsum(size[order]) - size[order]
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    counts = np.diff(np.r_[begins, len(group)])
    before = np.empty_like(size)
    before[order] = sums - np.repeat(sums[begins], counts)
    return before


def _pair(cut: Slots, merged: Slots, stands_for: Ints) -> Ints:
    """Pair each gap with the one in its place of the region that stands for its own."""
    region = cut.gaps.region
    nth = np.arange(len(region)) - np.searchsorted(region, region)
    return np.searchsorted(merged.gaps.region, stands_for[region]) + nth
