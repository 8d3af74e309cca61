"""The policy `auto`: the schedule that the linear program's best step suggests.

The program is solved, its shares are rounded to pieces and the schedule is simulated.
What rounding breaks and slots do not see is mended by solving again: with checkpoints
where memory was short, with a little less memory, or with slots of another length. The
schedule with the shortest simulated step is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from transit.compiler import bound, schedule, simulator, slots
from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.bound import Fractions
from transit.compiler.link import Link
from transit.compiler.merged import Merged
from transit.compiler.model import Model
from transit.compiler.schedule import Schedule
from transit.compiler.simulator import Simulated
from transit.compiler.slots import Slots
from transit.compiler.view import View

# Steps this close to the bound are good enough.
CLOSE = 1.005
# Where a program would have more gaps, its slots are fewer: it would take too long.
MAX_GAPS = 8_000
# With more accesses, regions that are alike are planned together, in smaller programs.
MANY_ACCESSES = 5_000
MAX_MERGED_GAPS = 4_000
MAX_USED_GAPS = 20_000
# The bound for many accesses: more slots hardly raise it, and take far longer.
BOUND_SLOTS = 64
MAX_BOUND_GAPS = 2_000
FEWEST_SLOTS = 16
MAX_MENDINGS = 6
LEFT_OVER_PIECES = 2
SPARE_WHEN_STUCK = 200  # leave this part of the memory free
# Memory of what is dead for a shorter time is kept, if the step takes no longer.
KEEP_NS = (np.inf, 4e6, 1e6)
ALIKE = 1.005


@dataclass(frozen=True)
class _Try:
    """A way to solve: with how many slots, how much room to spare, how fast a link.

    And as if remaps took so many times as long: the program spreads them over the whole
    step, but one that comes too late has everything behind it wait.
    """

    num_slots: int
    spare_memory: float
    link_share: float
    remap_factor: float = 1.0


# A slot for every launch sees every moment at which memory is full.
EVERY_LAUNCH = 1 << 31
TRIES = (
    _Try(200, 0.003, 0.9),
    _Try(EVERY_LAUNCH, 0.0, 1.0),
    _Try(EVERY_LAUNCH, 0.003, 0.9),
)
TRIES_WITH_REMAPS = (
    _Try(200, 0.003, 1.0, 2.0),
    _Try(200, 0.02, 1.0, 1.3),
    _Try(200, 0.003, 0.9, 2.0),
    _Try(EVERY_LAUNCH, 0.003, 1.0, 1.5),
)
# To map host memory takes longest of all, and is put off least.
HOME_FACTOR = 10.0


@dataclass(frozen=True)
class Planned:
    """A schedule, the step it is predicted to make, and a bound that none can beat."""

    schedule: Schedule
    simulated: Simulated
    bound_ns: float


class NothingFitsError(Exception):
    """No schedule keeps to the budget."""


def plan(model: Model, link: Link, *, many_accesses: float = MANY_ACCESSES) -> Planned:
    """Find a schedule whose step is short.

    Parameters
    ----------
    model
        What to schedule.
    link
        What moving windows costs.
    many_accesses
        With more than so many, regions that are alike are planned together: far
        quicker, and less near to the bound.

    Raises
    ------
    NothingFitsError
        If the budget is too small for some launch.
    """
    everything = schedule.all_resident(model)
    if schedule.needed_pieces(model, everything).max() <= model.budget_pieces:
        simulated = simulator.simulate(model, everything, link)
        return Planned(everything, simulated, float(model.duration_ns.sum()))
    if len(model.accesses) > many_accesses and (found := plan_merged(model, link)):
        return found
    best: Planned | None = None
    bounds: dict[int, Fractions] = {}  # by the number of slots
    for way in TRIES_WITH_REMAPS if link.takes_time_to_map else TRIES:
        cut = _cut(model, way.num_slots)
        if len(cut) not in bounds:
            loose = bound.solve(model, cut, link)
            if loose is None:
                raise NothingFitsError
            bounds[len(cut)] = loose
        found = _mended(model, cut, link, bounds[len(cut)].slot_ns, way)
        if found and (not best or found.simulated.step_ns < best.simulated.step_ns):
            best = found
        highest_ns = max(known.step_ns for known in bounds.values())
        if best and best.simulated.step_ns <= CLOSE * highest_ns:
            break
    if best is None:
        raise NothingFitsError
    return replace(best, bound_ns=highest_ns)


def plan_merged(model: Model, link: Link) -> Planned | None:
    """Plan regions that are alike together, in few slots; simulate what fits first.

    Quick, and less good than `plan`. None if nothing was found to fit.

    Raises
    ------
    NothingFitsError
        If no schedule can keep to the budget.
    """
    bound_ns = merged_bound_ns(model, link)
    num_slots = TRIES[0].num_slots
    while True:
        checkpoint = _checkpoints(model, num_slots)
        used = longest_gaps(model, checkpoint, MAX_USED_GAPS)
        cut = slots.cut(model, checkpoint, used)
        # What would be in place differs among what is alike otherwise.
        merged = Merged.of(View.of(model, cut).with_nothing_in_place())
        if len(merged.view.gaps) <= MAX_MERGED_GAPS or len(cut) <= FEWEST_SLOTS:
            break
        num_slots = len(cut) // 2
    slot_ns = sum_by(cut.slot, model.duration_ns, len(cut))
    most = _most_absent(model, cut, link, slot_ns)
    spare = 0
    for _ in range(MAX_MENDINGS):
        choice = merged.solve(link, spare_pieces=spare, most_absent=most)
        if choice is None:
            break
        rounded = schedule.round_off(model, cut, choice)
        excess = schedule.needed_pieces(model, rounded) - model.budget_pieces
        # Between checkpoints more is needed than at them: leave room for it.
        if excess.max() > 0:
            spare += int(excess.max())
            continue
        found = _simulate(model, cut, choice, link)
        if found is None:
            spare += 1 + model.budget_pieces // SPARE_WHEN_STUCK
            continue
        return replace(found, bound_ns=bound_ns)
    return None


def merged_bound_ns(model: Model, link: Link) -> float:
    """Return a step that no schedule beats, from a program that is small.

    Raises
    ------
    NothingFitsError
        If no schedule can keep to the budget.
    """
    num_slots = BOUND_SLOTS
    while True:
        cut = slots.cut(model, _checkpoints(model, num_slots))
        view = Merged.of(View.of(model, cut)).view
        if len(view.gaps) <= MAX_BOUND_GAPS or len(cut) <= FEWEST_SLOTS:
            break
        num_slots = len(cut) // 2
    best = bound.solve_view(view, link)
    if best is None:
        raise NothingFitsError
    return best.step_ns


def longest_gaps(model: Model, checkpoint: Ints, count: int) -> Bools:
    """Choose gaps that free most memory for longest, and the longest of each region.

    Of those that reach a checkpoint.
    """
    accesses = model.accesses
    lasts_ns = accesses.gaps_last(np.r_[0.0, np.cumsum(model.duration_ns)])
    lasts_ns = np.where(slots.reaches(model, checkpoint), lasts_ns, -1.0)
    frees = lasts_ns * model.num_pieces[accesses.region]
    chosen = np.zeros(len(accesses), np.bool_)
    chosen[np.argsort(-frees, kind="stable")[:count]] = True
    order = np.lexsort((-lasts_ns, accesses.region))
    chosen[order[np.unique(accesses.region[order], return_index=True)[1]]] = True
    return chosen


def _cut(model: Model, num_slots: int) -> Slots:
    """Cut into so many slots, or as many as keep the program small."""
    while True:
        cut = slots.cut(model, _checkpoints(model, num_slots))
        if len(cut.gaps) <= MAX_GAPS or len(cut) <= FEWEST_SLOTS:
            return cut
        num_slots = min(num_slots, len(cut)) // 2


def _mended(
    model: Model, cut: Slots, link: Link, slot_ns: Floats, way: _Try
) -> Planned | None:
    """Round and simulate; where memory is short, look there too and solve again.

    Where rounding has left memory over, solve with as much more.
    """
    slower = replace(
        link,
        load=link.load * way.link_share,
        store=link.store * way.link_share,
        both=link.both * way.link_share,
        map_ns=link.map_ns * way.remap_factor,
        unmap_ns=link.unmap_ns * way.remap_factor,
        map_home_ns=link.map_home_ns * way.remap_factor * HOME_FACTOR,
    )
    spare = int(model.budget_pieces * way.spare_memory)
    best: Planned | None = None
    for _ in range(MAX_MENDINGS):
        choice = bound.solve(
            replace(model, budget_pieces=model.budget_pieces - spare),
            cut,
            slower,
            whole_runs=True,
            most_absent=_most_absent(model, cut, slower, slot_ns),
        )
        if choice is None:
            break
        rounded = schedule.round_off(model, cut, choice)
        excess = schedule.needed_pieces(model, rounded) - model.budget_pieces
        if excess.max() > 0:
            if best:
                break
            spare += max(int(excess[cut.checkpoint].max()), 0)
            finer = np.union1d(cut.checkpoint, _peaks(excess))
            slot_ns = _spread(slot_ns, cut, finer, model)
            cut = slots.cut(model, finer)
            continue
        found = _simulate(model, cut, choice, link)
        if found is None:
            spare += 1 + model.budget_pieces // SPARE_WHEN_STUCK
            continue
        if best and found.simulated.step_ns >= best.simulated.step_ns:
            break
        best = found
        if way.spare_memory or excess.max() >= -LEFT_OVER_PIECES:
            break
        spare += int(excess.max())  # rounding left memory over: use it
    return best


def _simulate(
    model: Model, cut: Slots, choice: Fractions, link: Link
) -> Planned | None:
    """Simulate a choice, and keep memory of what is dead unless that costs time.

    None if it would wait for ever.
    """
    found = []
    for keep_ns in KEEP_NS:
        rounded = schedule.round_off(model, cut, choice, keep_ns=keep_ns)
        with suppress(simulator.StuckError):
            simulated = simulator.simulate(model, rounded, link)
            found.append(Planned(rounded, simulated, np.inf))
    least_ns = min((planned.simulated.step_ns for planned in found), default=0.0)
    return next(
        (p for p in found if p.simulated.step_ns <= ALIKE * least_ns),
        None,
    )


def _peaks(excess: Ints) -> Ints:
    """Return the position of the most in each stretch that exceeds the budget."""
    above = np.flatnonzero(excess > 0)
    stretch = np.cumsum(np.diff(above, prepend=above[:1]) > 1)
    order = np.lexsort((above, -excess[above], stretch))
    _, first = np.unique(stretch[order], return_index=True)
    return above[order[first]]


def _checkpoints(model: Model, count: int) -> Ints:
    """Spread checkpoints evenly over time, each at its slot's fullest moment."""
    if count >= model.num_launches:
        return np.arange(model.num_launches)
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


def _most_absent(model: Model, cut: Slots, link: Link, slot_ns: Floats) -> Floats:
    """Bound the share of each region that can leave and come back within a gap.

    The program looks at sums and does not see that it is the same data that has to be
    stored and loaded again.
    """
    gaps = cut.gaps
    launch_ns = _spread(slot_ns, cut, np.arange(len(cut.slot)), model)
    lasts_ns = model.accesses.gaps_last(np.r_[0.0, np.cumsum(launch_ns)])[gaps.access]
    size = model.num_pieces[gaps.region]
    share = np.clip(lasts_ns * link.both / size, 0.0, 1.0)
    return np.where(share * size < 1, 0.0, share)
