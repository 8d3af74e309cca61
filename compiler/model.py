"""The problem that plans solve: one GPU's share of the steady iteration, as arrays.

Positions are places in the iteration, which goes around: after the last launch comes
the first. Between two accesses of a region that follow each other lies a *gap*, in
which the region may be off the GPU. A gap is *dead* if nothing that the region holds is
needed after it: then nothing has to be copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.iteration import SteadyIteration
from transit.compiler.liveness import Holders, Liveness
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.problem import Problem
from transit.compiler.regions import Regions, overlaps


@dataclass(frozen=True)
class Accesses:
    """What launches do to regions: one entry per region and position, so sorted.

    `link_ns` is how long the link is busy if the whole region is zero-copy. `following`
    is the region's next access, around the iteration; the gap after an access has the
    access's index. `dead` tells of that gap. The access after a dead gap `writes`: what
    it finds is new, and the host has no copy of it.
    """

    region: Ints
    position: Ints
    reads: Bools
    writes: Bools
    rereads: Bools
    link_bytes: Floats
    link_ns: Floats
    following: Ints
    dead: Bools

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.region)

    @cached_property
    def wraps(self) -> Bools:
        """Whether the gap after each access goes around the iteration's end."""
        return np.asarray(self.position[self.following] <= self.position)

    @cached_property
    def may_be_in_place(self) -> Bools:
        """Whether launches may reach the region in host memory: no kernel re-reads."""
        return np.asarray(np.isfinite(self.link_ns) & ~self.rereads)

    def gaps_last(self, clock: Floats) -> Floats:
        """Return what passes in the gap after each access.

        Parameters
        ----------
        clock
            What has passed when each launch begins and, last, at the iteration's end.
        """
        before, after = self.position, self.position[self.following]
        around = np.where(self.wraps, clock[-1], 0.0)
        return np.asarray(clock[after] - clock[before + 1] + around)


@dataclass(frozen=True)
class Model:
    """One GPU of one rank; sizes are in pieces of 2 MiB.

    `fixed_pieces` is what no plan can move, at each position.
    """

    duration_ns: Floats
    fixed_pieces: Ints
    budget_pieces: int
    num_pieces: Ints  # of each region
    accesses: Accesses

    @classmethod
    def build(
        cls, problem: Problem, iteration: SteadyIteration, holders: Holders
    ) -> Self:
        """Gather what plans are made from.

        Regions that launches touch through pointers no scan can see, and regions that
        no launch touches, are not among the accesses: the former are always on the
        GPU, the latter need not be.
        """
        regions = problem.regions
        call = _calls(iteration)
        fixed = problem.unmovable_at(iteration.launch_ids)
        unexplained = np.where(regions.unexplained, regions.num_pieces, 0)
        return cls(
            duration_ns=sum_by(
                call, np.nan_to_num(iteration.duration_ns), iteration.num_launches
            ),
            fixed_pieces=fixed + int(unexplained.sum()),
            budget_pieces=problem.budget,
            num_pieces=regions.num_pieces,
            accesses=_accesses(problem, iteration, holders),
        )

    @property
    def num_launches(self) -> int:
        """Launches in the iteration."""
        return len(self.duration_ns)

    @cached_property
    def live_pieces(self) -> Ints:
        """Pieces that hold something at each position, with what is fixed."""
        accesses = self.accesses
        pieces = self.num_pieces[accesses.region]
        dead = np.flatnonzero(accesses.dead)
        touched = np.zeros(len(self.num_pieces), np.bool_)
        touched[accesses.region] = True
        absent = sum_between(
            accesses.position[dead] + 1,
            accesses.position[accesses.following[dead]],
            accesses.wraps[dead],
            pieces[dead],
            self.num_launches,
        )
        return self.fixed_pieces + int(self.num_pieces[touched].sum()) - absent

    @cached_property
    def needed_pieces(self) -> Ints:
        """Pieces that the launch at each position touches, with what is fixed."""
        accesses = self.accesses
        touched = np.bincount(
            accesses.position,
            self.num_pieces[accesses.region],
            minlength=self.num_launches,
        )
        return self.fixed_pieces + touched.astype(np.int64)


def sum_between(
    start: Ints, stop: Ints, wraps: Bools, values: Ints, count: int
) -> Ints:
    """Add up, at each position, the values of the ranges [start, stop) around it."""
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, start, values)
    np.subtract.at(change, stop, values)
    return np.cumsum(change)[:-1] + int(values[wraps].sum())


def _accesses(
    problem: Problem, iteration: SteadyIteration, holders: Holders
) -> Accesses:
    lists = problem.regions.accesses
    # Regions and positions only rise: what is equal lies together.
    movable = ~problem.regions.unexplained[lists.region]
    region, position = lists.region[movable], lists.position[movable]
    position = _calls(iteration)[position]
    differs = (np.diff(region, prepend=-1) != 0) | (np.diff(position, prepend=-1) != 0)
    heads = np.flatnonzero(differs)

    def merged(values: npt.NDArray[Any], with_: np.ufunc) -> npt.NDArray[Any]:
        if not len(heads):
            return values[movable]
        return np.asarray(with_.reduceat(values[movable], heads))

    region, position = region[heads], position[heads]
    following = _following(region)
    overwrites = merged(lists.overwrites, np.logical_and)
    survives = _survivors(problem, iteration, holders, region, position, following)
    dead = ~survives | overwrites.astype(np.bool_)[following]
    writes = merged(lists.writes, np.logical_or).astype(np.bool_)
    # A hash does not see zeros written over zeros.
    writes[following[dead]] = True
    return Accesses(
        region=region,
        position=position,
        reads=merged(lists.reads, np.logical_or).astype(np.bool_),
        writes=writes,
        rereads=merged(lists.rereads, np.logical_or).astype(np.bool_),
        link_bytes=merged(lists.link_bytes, np.add),
        link_ns=merged(lists.link_ns, np.add),
        following=following,
        dead=dead,
    )


def _calls(iteration: SteadyIteration) -> Ints:
    """Return where what is submitted with each launch begins.

    Nothing comes or goes while a graph runs: all that its nodes do counts as done by
    the first one.
    """
    return np.searchsorted(iteration.launch_ids, iteration.launch_ids)


def _following(region: Ints) -> Ints:
    """Return the index of each access's next one of the same region, cyclically."""
    following = np.arange(1, len(region) + 1)
    is_last = np.r_[region[1:] != region[:-1], True][: len(region)]
    is_first = np.r_[True, is_last[:-1]][: len(region)]
    following[is_last] = np.flatnonzero(is_first)
    return following


def _survivors(
    problem: Problem,
    iteration: SteadyIteration,
    holders: Holders,
    region: Ints,
    position: Ints,
    following: Ints,
) -> Bools:
    """Tell whether what is in a region at each access is still there at the next."""
    ids = iteration.launch_ids
    bounds, bases = _region_bytes(problem.regions, problem)
    start = bases[holders.allocation] + holders.start
    stop = bases[holders.allocation] + holders.stop
    held, holder = overlaps(bounds, start, stop)
    liveness = Liveness(
        held,
        holders.first_launch_id[holder],
        holders.stop_launch_id[holder],
        int(ids[0]),
        int(ids[-1]),
    )
    after, until = ids[position], ids[position[following]]
    # Where no block is known at an access, the history does not tell.
    known = liveness.holds(region, after) & liveness.holds(region, until)
    return np.asarray(~known | liveness.survives(region, after, until))


def _region_bytes(regions: Regions, problem: Problem) -> tuple[Ints, Ints]:
    """Lay allocations in a row: the regions' bounds and the allocations' bases."""
    pieces = problem.allocations.num_pieces
    bases = np.r_[0, np.cumsum(pieces)]
    bounds = np.r_[bases[regions.allocation] + regions.first_piece, bases[-1]]
    return bounds * PIECE_BYTES, bases * PIECE_BYTES
