"""See regions that look alike as one: the program's size is then bounded.

In slots, the tensors of a layer are touched at the same times, and with few slots those
of neighbouring layers too. One region as large as all that are alike stands for them.

If a schedule's shares keep to constraints that are the same for each of them, so do the
mean shares, weighted by size. What differs among them counts as for the one for which
it is least. So no schedule of the regions beats the program of the merged view, as long
as each may leave wherever it may in the view that was merged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from transit.compiler import bound
from transit.compiler.arrays import Bools, Floats, Hashes, Ints, mix
from transit.compiler.bound import Fractions
from transit.compiler.link import Link
from transit.compiler.slots import Gaps
from transit.compiler.view import Runs, View


@dataclass(frozen=True)
class Merged:
    """A view in which one region stands for all that are alike in another view.

    `gap` is, for each gap of the latter, that of the former that stands for it.
    """

    view: View
    gap: Ints
    first_piece: Ints  # where each gap's region begins among those it is merged with
    num_pieces: Ints

    @classmethod
    def of(cls, view: View) -> Merged:
        """Merge."""
        begins = np.unique(view.gaps.region, return_index=True)[1]
        nth_region = np.cumsum(np.isin(np.arange(len(view.gaps)), begins)) - 1
        nth_gap = np.arange(len(view.gaps)) - begins[nth_region]
        looks = np.add.reduceat(_looks(view, nth_gap), begins)
        _, first, group = np.unique(looks, return_index=True, return_inverse=True)
        stands_for = first[group][nth_region]
        kept = stands_for == nth_region
        gap = (np.cumsum(kept) - 1)[begins[stands_for] + nth_gap]
        return cls(
            view=_merge(view, kept, gap),
            gap=gap,
            first_piece=_sum_before(group, view.num_pieces[begins])[nth_region],
            num_pieces=view.num_pieces,
        )

    def solve(
        self, link: Link, *, spare_pieces: int, most_absent: Floats
    ) -> Fractions | None:
        """Return shares for all gaps and runs of the view that was merged.

        The planner's, with memory to spare. Shares are dealt out: the first of alike
        regions leaves as a whole before the next one does.
        """
        least = np.ones(len(self.view.gaps))
        np.minimum.at(least, self.gap, most_absent)
        room = self.view.room_pieces - spare_pieces
        solved = bound.solve_view(
            replace(self.view, room_pieces=room),
            link,
            whole_runs=True,
            most_absent=least,
        )
        if solved is None:
            return None
        return replace(
            solved,
            absent=self._deal_out(solved.absent),
            in_place=self._deal_out(solved.in_place),
        )

    def _deal_out(self, share: Floats) -> Floats:
        pieces = (share * self.view.num_pieces)[self.gap]
        return np.clip((pieces - self.first_piece) / self.num_pieces, 0.0, 1.0)


def _looks(view: View, nth_gap: Ints) -> Hashes:
    """Return numbers for each gap that are equal where the program sees no more."""
    gaps, runs, looks = view.gaps, view.runs, mix(nth_gap)
    for seen in (
        gaps.dead,
        gaps.released_slot,
        gaps.due_slot,
        gaps.first_covered,
        gaps.num_covered,
        runs.slot,
        runs.is_at_checkpoint,
        runs.writes,
        runs.is_mixed,
        runs.may_be_in_place,
        runs.may_be_written_in_place,
        runs.reads_ns > 0,
        runs.writes_ns > 0,
        runs.both_ns > 0,
    ):
        looks = mix(looks + seen.astype(np.uint64))
    return looks


def _merge(view: View, kept: Bools, gap: Ints) -> View:
    """Let gaps that are kept stand for those that have their number."""
    count = int(kept.sum())
    num_pieces = np.bincount(gap, view.num_pieces, count).astype(np.int64)

    def of_all(link_ns: Floats) -> Floats:
        least = np.full(count, np.inf)
        np.minimum.at(least, gap, link_ns / view.num_pieces)
        return least * num_pieces

    gaps, runs = view.gaps, view.runs
    return View(
        slot_ns=view.slot_ns,
        room_pieces=view.room_pieces,
        gaps=Gaps(
            access=gaps.access[kept],
            region=gaps.region[kept],
            run_before=gap[gaps.run_before[kept]],
            run_after=gap[gaps.run_after[kept]],
            dead=gaps.dead[kept],
            released_slot=gaps.released_slot[kept],
            due_slot=gaps.due_slot[kept],
            first_covered=gaps.first_covered[kept],
            num_covered=gaps.num_covered[kept],
        ),
        num_pieces=num_pieces,
        runs=Runs(
            slot=runs.slot[kept],
            is_at_checkpoint=runs.is_at_checkpoint[kept],
            reads_ns=of_all(runs.reads_ns),
            writes_ns=of_all(runs.writes_ns),
            both_ns=of_all(runs.both_ns),
            writes=runs.writes[kept],
            is_mixed=runs.is_mixed[kept],
            may_be_in_place=runs.may_be_in_place[kept],
            may_be_written_in_place=runs.may_be_written_in_place[kept],
        ),
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
