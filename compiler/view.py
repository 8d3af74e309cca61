"""What the linear program sees of a model: gaps, runs and slots, by numbers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.model import Accesses, Model
from transit.compiler.slots import Gaps, Slots


@dataclass(frozen=True)
class Runs:
    """What accesses between two gaps do; what is reached in place is so in one slot.

    `reads_ns` is how long the link is busy if all accesses of a run that only read
    reach the whole region in place; so are the others, for those that only write and
    that do both. A run is mixed if some accesses write and some do not.
    """

    slot: Ints  # that of its first access
    is_at_checkpoint: Bools
    reads_ns: Floats
    writes_ns: Floats
    both_ns: Floats
    writes: Bools
    is_mixed: Bools
    may_be_in_place: Bools
    may_be_written_in_place: Bools

    @classmethod
    def of(cls, accesses: Accesses, slots: Slots) -> Self:
        """Sum up the accesses of each run."""
        count, run = slots.num_runs, slots.run
        reads, writes = accesses.reads, accesses.writes
        possible = accesses.may_be_in_place

        def has(which: Bools) -> Bools:
            return sum_by(run, which, count) > 0

        def link_ns(which: Bools, allowed: Bools) -> Floats:
            used = np.flatnonzero(which & possible & allowed[run])
            return sum_by(run[used], accesses.link_ns[used], count)

        may_be, may_be_written = ~has(~possible), ~has(writes & ~possible)
        first = accesses.position[accesses.following[slots.gaps.access]]
        slot = slots.slot[first]
        return cls(
            slot=slot,
            is_at_checkpoint=slots.checkpoint[slot] == first,
            reads_ns=link_ns(~writes, may_be),
            writes_ns=link_ns(writes & ~reads, may_be_written),
            both_ns=link_ns(writes & reads, may_be_written),
            writes=has(writes),
            is_mixed=has(writes) & has(~writes),
            may_be_in_place=may_be,
            may_be_written_in_place=may_be_written,
        )

    def on_gpu(self) -> Self:
        """Let none reach a region in place."""
        never, nothing = np.zeros_like(self.writes), np.zeros_like(self.reads_ns)
        return replace(
            self,
            reads_ns=nothing,
            writes_ns=nothing,
            both_ns=nothing,
            may_be_in_place=never,
            may_be_written_in_place=never,
        )


@dataclass(frozen=True)
class View:
    """A model looked at in slots; a run has the number of the gap before it.

    By slot, how long its launches take, and the pieces that are free at its checkpoint
    with all on the GPU that is alive. By gap, the pieces of its region.
    """

    slot_ns: Floats
    room_pieces: Ints
    gaps: Gaps
    num_pieces: Ints
    runs: Runs

    @classmethod
    def of(cls, model: Model, slots: Slots) -> Self:
        """Look at a model."""
        return cls(
            slot_ns=sum_by(slots.slot, model.duration_ns, len(slots)),
            room_pieces=model.budget_pieces - model.live_pieces[slots.checkpoint],
            gaps=slots.gaps,
            num_pieces=model.num_pieces[slots.gaps.region],
            runs=Runs.of(model.accesses, slots),
        )

    def with_nothing_in_place(self) -> Self:
        """Let all runs have their regions on the GPU."""
        return replace(self, runs=self.runs.on_gpu())

    def since_written(self) -> tuple[Ints, Ints]:
        """Return, for each gap, the one before it and the first since a write.

        The first has none before it. Both are -1 if the host's copy is always good.
        """
        gaps = self.gaps
        count = len(gaps)
        index = np.arange(count)
        is_first = np.r_[True, gaps.region[1:] != gaps.region[:-1]][:count]
        heads = np.flatnonzero(is_first)
        of_region = np.cumsum(is_first) - 1
        tails = np.r_[heads[1:], count] - 1
        before = np.where(is_first, tails[of_region], index - 1)
        starts = self.runs.writes[gaps.run_before] | gaps.dead[before]
        latest = np.maximum.accumulate(np.where(starts, index, -1))
        latest = np.where(latest >= heads[of_region], latest, -1)
        around = latest[tails[of_region]]  # the last start of the region, or -1
        origin = np.where(latest >= 0, latest, around)
        previous = np.where(starts | (origin < 0), -1, before)
        # A dead gap ends what was written; nothing of it is stored.
        origin = np.where(gaps.dead, -1, origin)
        previous = np.where(gaps.dead, -1, previous)
        return previous, origin
