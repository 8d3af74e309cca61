"""Policies: which regions leave the GPU when the job does not fit its budget.

A policy says how many pieces of each region become zero-copy, from the region's end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Ints
from transit.compiler.problem import Problem


@dataclass(frozen=True)
class Policy:
    """A way to choose, and what it may choose from."""

    may_spill: Callable[[Problem], Bools]
    choose: Callable[[Problem], Ints]
    why_spilled: str


def advise(problem: Problem) -> Ints:
    """Keep allocations that fit, in the order they are made; leave the others whole."""
    regions = problem.regions
    movable = np.where(regions.unexplained, 0, regions.num_pieces)
    # What must stay does so whatever becomes of the rest of its allocation.
    used = problem.resident(movable)
    kept = np.zeros(len(problem.allocations), np.bool_)
    pieces_of = np.bincount(
        regions.allocation, movable, len(problem.allocations)
    ).astype(np.int64)
    for index, pieces in enumerate(pieces_of):
        life = problem.lifetime(index)
        if used[life].max() + pieces <= problem.budget:
            used[life] += pieces
            kept[index] = True
    return np.where(kept[regions.allocation], 0, movable)


def reuse(problem: Problem) -> Ints:
    """Spill what costs least on the link first, and nothing that kernels re-read."""
    regions = problem.regions
    zero_copy = np.zeros(len(regions), np.int64)
    excess = problem.resident(zero_copy) - problem.budget
    # Among equals, what lies idle longest goes first.
    order = np.lexsort((-regions.idle_ns, regions.link_ns / regions.num_pieces))
    candidates = order[_streamed(problem)[order]]
    for region in candidates:
        life = problem.lifetime(regions.allocation[region])
        needed = int(excess[life].max())
        if needed > 0:
            zero_copy[region] = min(needed, regions.num_pieces[region])
            excess[life] -= zero_copy[region]
    _take_back(problem, zero_copy, excess, candidates[::-1])
    return zero_copy


def _take_back(
    problem: Problem, zero_copy: Ints, excess: Ints, costliest_first: Ints
) -> None:
    """Keep again what later choices made room for."""
    for region in costliest_first[zero_copy[costliest_first] > 0]:
        life = problem.lifetime(problem.regions.allocation[region])
        room = max(-int(excess[life].max()), 0)
        back = min(room, int(zero_copy[region]))
        zero_copy[region] -= back
        excess[life] += back


def _streamed(problem: Problem) -> Bools:
    return ~problem.regions.rereads & ~problem.regions.unexplained


def _anything(problem: Problem) -> Bools:
    return ~problem.regions.unexplained


POLICIES = {
    "reuse": Policy(_streamed, reuse, "costs least on the link"),
    "advise": Policy(_anything, advise, "past the budget in allocation order"),
}
AUTO = "auto"
"""What `transit.compiler.planner` does: memory comes and goes within the iteration."""
