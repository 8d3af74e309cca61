"""A coarser view of the iteration: slots of launches, and what matters at their starts.

Memory is only looked at where a slot begins, its *checkpoint*. Between two gaps that
reach a checkpoint a region's accesses form a *run*. Looking at fewer moments and at
sums over slots leaves out constraints and adds none: what is a bound in this view is
one in the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Ints
from transit.compiler.model import Model


@dataclass(frozen=True)
class Gaps:
    """Gaps that reach a checkpoint, sorted by region and position.

    Each has the index of its access before it (`access`), of the runs around it, and
    the slot from which it can be stored and that in which its load is due. It covers
    the `num_covered` checkpoints from `first_covered` on, around the iteration.
    """

    access: Ints
    region: Ints
    run_before: Ints
    run_after: Ints
    dead: Bools
    released_slot: Ints
    due_slot: Ints
    first_covered: Ints
    num_covered: Ints

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.access)


@dataclass(frozen=True)
class Slots:
    """Slot `s` begins with the launch at `checkpoint[s]`; the first is at position 0.

    `run` is that of each access; a run is known by the gap before it.
    """

    checkpoint: Ints
    slot: Ints  # of each position
    gaps: Gaps
    run: Ints

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.checkpoint)

    @property
    def num_runs(self) -> int:
        """Runs of accesses: as many as gaps."""
        return len(self.gaps)


def cut(model: Model, checkpoint: Ints, used: Bools | None = None) -> Slots:
    """Look at a model at some checkpoints: sorted positions, from 0 on.

    With `used`, regions can leave only in the gaps after these accesses: of each region
    one at least, which reaches a checkpoint.
    """
    accesses, count = model.accesses, len(checkpoint)
    slot = np.searchsorted(checkpoint, np.arange(model.num_launches), side="right") - 1
    after, until = accesses.position, _until(model)
    around = _around(model, checkpoint)
    reached = reaches(model, checkpoint)
    if used is not None:
        reached = reached & used
    first = np.searchsorted(around, after, side="right")
    covered = np.searchsorted(around, until) - first
    index = np.flatnonzero(reached)
    nth = np.cumsum(reached) - 1
    run = _runs(accesses.region, reached, nth)
    before_due = np.searchsorted(around, until) - 1  # a load is due before its launch
    return Slots(
        checkpoint=checkpoint,
        slot=slot,
        gaps=Gaps(
            access=index,
            region=accesses.region[index],
            run_before=run[index],
            run_after=run[accesses.following[index]],
            dead=accesses.dead[index],
            released_slot=slot[after[index]],
            due_slot=before_due[index] % count,
            first_covered=first[index] % count,
            num_covered=covered[index],
        ),
        run=run,
    )


def reaches(model: Model, checkpoint: Ints) -> Bools:
    """Tell of which accesses the gap after them reaches a checkpoint.

    Every region has one, as its gaps go all the way around.
    """
    around = _around(model, checkpoint)
    next_one = around[np.searchsorted(around, model.accesses.position)]
    return np.asarray(next_one <= _until(model))


def _until(model: Model) -> Ints:
    """Return where the gap after each access ends, which may be an iteration later."""
    accesses, turn = model.accesses, model.num_launches
    return accesses.position[accesses.following] + np.where(accesses.wraps, turn, 0)


def _around(model: Model, checkpoint: Ints) -> Ints:
    turn = model.num_launches
    return np.concatenate([checkpoint, checkpoint + turn, [2 * turn]])


def _runs(region: Ints, reached: Bools, nth: Ints) -> Ints:
    """Number each access's run as the gap that precedes it, around its region."""
    preceding = np.r_[-1, nth[:-1]][: len(region)]
    is_first = np.r_[True, region[1:] != region[:-1]][: len(region)]
    is_last = np.r_[is_first[1:], True][: len(region)]
    # The last gap of a region precedes its first accesses.
    last_gap = nth[is_last][np.cumsum(is_first) - 1]
    first_gap_of_region = (nth - reached)[is_first][np.cumsum(is_first) - 1] + 1
    return np.asarray(np.where(preceding < first_gap_of_region, last_gap, preceding))
