"""Loads that have to be made within gaps in which hardly anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from transit.compiler.arrays import Bools, Floats, Ints
from transit.compiler.link import Link
from transit.compiler.model import Model, sum_between
from transit.compiler.slots import Slots

# During the gap less is computed than this share of the load takes.
MOST_COMPUTED = 0.25


@dataclass(frozen=True)
class HastyLoads:
    """Loads, by gap, that come after one launch ends and before another one begins.

    From the slot of the former, `first_slot`, to the one in which the load is due.
    """

    gap: Ints
    begin: Ints
    end: Ints
    first_slot: Ints
    due_slot: Ints
    load_ns: Floats

    @classmethod
    def of(cls, model: Model, slots: Slots, link: Link, born: Ints) -> Self:
        """Find those of live gaps, and of what is written in place and then loaded.

        Parameters
        ----------
        born
            Dead gaps, after which a run may first write in place and then not be.
        """
        gaps, accesses = slots.gaps, model.accesses
        live = np.flatnonzero(~gaps.dead)
        index = np.arange(len(accesses))
        written = np.full(len(gaps), len(accesses))
        np.minimum.at(written, slots.run[accesses.writes], index[accesses.writes])
        last = np.zeros(len(gaps), np.int64)
        np.maximum.at(last, slots.run, index)
        gap = np.r_[live, born]
        before = np.r_[gaps.access[live], written[born]]
        after = np.r_[accesses.following[gaps.access[live]], last[born]]
        begin, end = accesses.position[before], accesses.position[after]
        busy = np.r_[0.0, np.cumsum(model.duration_ns)]
        computed = busy[end] - busy[np.minimum(begin + 1, len(busy) - 1)]
        load_ns = model.num_pieces[gaps.region[gap]] / link.load
        first_slot = slots.slot[begin]
        # What a checkpoint's launch needs is due in the slot before it.
        is_checkpoint = slots.checkpoint[slots.slot[end]] == end
        due_slot = slots.slot[end] - is_checkpoint
        chosen = (end > begin) & (computed < load_ns * MOST_COMPUTED) & (due_slot >= 0)
        return cls(gap, begin, end, first_slot, due_slot, load_ns)._where(chosen)

    def within(self, num_slots: int) -> Self:
        """Return the loads that fit into so many slots."""
        return self._where(self.due_slot - self.first_slot < num_slots)

    def launches_inside(self, num_launches: int) -> Bools:
        """Tell which launches run while one of the loads may."""
        inside = sum_between(
            self.begin + 1,
            self.end,
            np.zeros(len(self.gap), np.bool_),
            np.ones(len(self.gap), np.int64),
            num_launches,
        )
        return np.asarray(inside > 0)

    def _where(self, keep: Bools) -> Self:
        return type(self)(
            self.gap[keep],
            self.begin[keep],
            self.end[keep],
            self.first_slot[keep],
            self.due_slot[keep],
            self.load_ns[keep],
        )
