"""The policy `auto`: the schedule that the linear program's best step suggests.

The program is solved, its shares are rounded to pieces and the schedule is simulated.
What rounding breaks and slots do not see is mended by solving again: with checkpoints
where memory was short, with a little less memory, or with slots of another length. The
schedule with the shortest simulated step is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from transit.compiler import bound, schedule, simulator, slots
from transit.compiler.arrays import Floats, Ints, sum_by
from transit.compiler.bound import Fractions
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.schedule import Schedule
from transit.compiler.simulator import Simulated
from transit.compiler.slots import Slots

# Slots to begin with, and how much of the time a gap lasts copies may take: the tries.
TRIES = ((200, 3.0), (200, 0.8), (64, 3.0), (600, 3.0))
# Steps this close to the bound are good enough.
CLOSE = 1.005
# A program of more gaps takes too long.
MAX_GAPS = 30_000
MAX_MENDINGS = 6


@dataclass(frozen=True)
class Planned:
    """A schedule, the step it is predicted to make, and the bound on any step's time."""

    schedule: Schedule
    simulated: Simulated
    bound_ns: float


class NothingFitsError(Exception):
    """No schedule keeps to the budget."""


def plan(model: Model, link: Link, *, time_limit_s: float = np.inf) -> Planned:
    """Find a schedule whose step is short.

    Parameters
    ----------
    model
        What to schedule.
    link
        What moving windows costs.
    time_limit_s
        Stop trying after so long, at the best schedule so far. What is found in a
        limited time may differ from machine to machine.

    Raises
    ------
    NothingFitsError
        If the budget is too small for some launch.
    """
    if model.live_pieces.max(initial=0) <= model.budget_pieces:
        everything = schedule.all_resident(model)
        simulated = simulator.simulate(model, everything, link)
        return Planned(everything, simulated, float(model.duration_ns.sum()))
    began_s = time.monotonic()
    best: Planned | None = None
    highest_ns = 0.0
    for num_slots, patience in TRIES:
        if best and time.monotonic() - began_s > time_limit_s:
            break
        cut = slots.cut(model, _checkpoints(model, num_slots))
        if len(cut.gaps) > MAX_GAPS and best:
            continue
        loose = bound.solve(model, cut, link)
        if loose is None:
            break
        highest_ns = max(highest_ns, loose.step_ns)
        for found in _mended(model, cut, link, loose, patience):
            if not best or found.simulated.step_ns < best.simulated.step_ns:
                best = found
        if best and best.simulated.step_ns <= CLOSE * highest_ns:
            break
    if best is None:
        raise NothingFitsError
    return replace(best, bound_ns=highest_ns)


def _mended(
    model: Model, cut: Slots, link: Link, loose: Fractions, patience: float
) -> Iterator[Planned]:
    """Round and simulate; where memory is short, look there too and solve again."""
    margin = 0
    checkpoint = cut.checkpoint
    slot_ns = loose.slot_ns
    for _ in range(MAX_MENDINGS):
        most = _most_absent(model, cut, link, slot_ns, patience)
        tighter = replace(model, budget_pieces=model.budget_pieces - margin)
        choice = bound.solve(tighter, cut, link, whole_runs=True, most_absent=most)
        if choice is None:
            return
        rounded = schedule.round_off(model, cut, choice)
        excess = schedule.needed_pieces(model, rounded) - model.budget_pieces
        if excess.max() > 0:
            margin += int(np.minimum(excess, excess[checkpoint].max()).max(initial=0))
            short = np.setdiff1d(_peaks(excess), checkpoint)
            checkpoint = np.union1d(checkpoint, short)
            slot_ns = _spread(slot_ns, cut, checkpoint, model)
            cut = slots.cut(model, checkpoint)
            margin = max(margin, 0) + (0 if len(short) else int(excess.max()))
            continue
        yield Planned(rounded, simulator.simulate(model, rounded, link), 0.0)
        return


def _peaks(excess: Ints) -> Ints:
    """Return the position of the most in each stretch that exceeds the budget."""
    above = np.flatnonzero(excess > 0)
    stretch = np.cumsum(np.diff(above, prepend=above[:1]) > 1)
    order = np.lexsort((above, -excess[above], stretch))
    _, first = np.unique(stretch[order], return_index=True)
    return above[order[first]]


def _checkpoints(model: Model, count: int) -> Ints:
    """Spread checkpoints evenly over time, each at its slot's fullest moment."""
    busy = np.r_[0.0, np.cumsum(model.duration_ns)]
    place = np.searchsorted(busy, np.linspace(0, busy[-1], count, endpoint=False))
    edges = np.unique(np.r_[0, np.minimum(place, model.num_launches - 1)])
    stretch = np.searchsorted(edges, np.arange(model.num_launches), side="right") - 1
    order = np.lexsort((-model.live_pieces, stretch))
    fullest = order[np.unique(stretch[order], return_index=True)[1]]
    return np.unique(np.r_[0, fullest])


def _spread(slot_ns: Floats, cut: Slots, checkpoint: Ints, model: Model) -> Floats:
    """Share out the times of slots to those of a finer cut, by the launches' times."""
    duration = model.duration_ns
    weight = duration + duration.sum() * 1e-9 / len(duration)
    share = slot_ns[cut.slot] * weight / sum_by(cut.slot, weight, len(cut))[cut.slot]
    return np.add.reduceat(share, checkpoint)


def _most_absent(
    model: Model, cut: Slots, link: Link, slot_ns: Floats, patience: float
) -> Floats:
    """Bound the share of each region that can leave and come back within a gap.

    The program looks at sums and does not see that it is the same data that has to be
    stored and loaded again.
    """
    gaps, accesses = cut.gaps, model.accesses
    busy = np.r_[0.0, np.cumsum(_spread(slot_ns, cut, np.arange(len(cut.slot)), model))]
    before = accesses.position[gaps.access]
    after = accesses.position[accesses.following[gaps.access]]
    lasts_ns = busy[after] - busy[before + 1] + np.where(after <= before, busy[-1], 0.0)
    size = model.num_pieces[gaps.region]
    share = np.clip(lasts_ns * patience * link.both / 2 / size, 0.0, 1.0)
    return np.where(share * size < 1, 0.0, share)
