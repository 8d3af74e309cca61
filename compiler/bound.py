"""The fastest step that the cost model allows, as a linear program.

No plan is faster: the program may split regions into any fractions, looks at memory
only at checkpoints, and at the link only in sums over slots. Its solution is also what
the planner rounds.

Out of the GPU, what is released is stored as the link allows; into it, loads are made
as early as memory allows. So only the bytes that wait to be stored, and those that were
loaded before they are needed, count at each checkpoint, not which ones they are: the
program grows with the number of gaps, not with that of gaps times slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.linear import LinearProgram, Term
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.slots import Slots

# Among equally fast steps the one that moves less: what this share of a transfer's
# time costs beside the step's.
TRAFFIC_WEIGHT = 1e-4
# The program's units, which keep its numbers near one.
MS = 1e6  # in ns
GIB = 512  # in pieces


@dataclass(frozen=True)
class Fractions:
    """The best step: what share of each region is where.

    `absent` is off the GPU in each gap of `Slots`, `in_place` is zero-copy in each run.
    """

    step_ns: float
    absent: Floats
    in_place: Floats
    slot_ns: Floats


def solve(model: Model, slots: Slots, link: Link) -> Fractions | None:
    """Return the best step of a model looked at in slots; None if nothing fits."""
    return _Bound(model, slots, link).solve()


class _Bound:
    """The program's variables by what they mean.

    By gap: `absent` (share off the GPU), `loaded` and `stored` (share copied, the latter
    summed up since the region was last written). By run: `in_place` (share that all
    accesses reach over the link), `written_in_place` (that all writes do). By slot:
    `step` (its time in ms), `load` and `store` (GiB moved in it), and at its checkpoint
    `away` (GiB absent), `early` (loaded before it is due), `late` (not yet stored).
    """

    def __init__(self, model: Model, slots: Slots, link: Link) -> None:
        self.model, self.slots, self.link = model, slots, link
        self.program = LinearProgram()
        gaps = slots.gaps
        self.size = model.num_pieces[gaps.region] / GIB
        self.is_live = ~gaps.dead
        self._add_choices()
        self._add_slots()
        self._add_copies()
        self._add_memory()
        self._add_time()

    def _add_choices(self) -> None:
        accesses, slots = self.model.accesses, self.slots
        count = slots.num_runs

        def runs_with(which: Bools) -> Bools:
            return sum_by(slots.run, which, count) > 0

        self.writes = runs_with(accesses.writes)
        possible = np.isfinite(accesses.link_ns) & ~accesses.rereads
        self.absent = self.program.columns(
            count, upper=np.where(self.slots.gaps.dead, 0.0, 1.0)
        )
        self.in_place = self.program.columns(
            count, upper=np.where(runs_with(~possible), 0.0, 1.0)
        )
        self.written_in_place = self.in_place.copy()
        mixed = np.flatnonzero(self.writes & runs_with(~accesses.writes))
        barred = runs_with(accesses.writes & ~possible)[mixed]
        self.written_in_place[mixed] = self.program.columns(
            len(mixed), upper=np.where(barred, 0.0, 1.0)
        )
        self._at_most(self.in_place[mixed], self.written_in_place[mixed])
        # Zero-copy is possible only where what was there before and is after is away.
        live = np.flatnonzero(self.is_live)
        gaps = slots.gaps
        self._at_most(self.in_place[gaps.run_after[live]], self.absent[live])
        self._at_most(self.written_in_place[gaps.run_before[live]], self.absent[live])

    def _at_most(self, smaller: Ints, larger: Ints) -> None:
        rows = np.arange(len(smaller))
        differ = smaller != larger
        self.program.at_most(
            np.zeros(len(rows)),
            Term(rows[differ], smaller[differ], 1.0),
            Term(rows[differ], larger[differ], -1.0),
        )

    def _add_slots(self) -> None:
        count, weight = len(self.slots), TRAFFIC_WEIGHT
        columns, link = self.program.columns, self.link
        self.step = columns(count, cost=1.0)
        self.load = columns(count, cost=weight * GIB / link.load / MS)
        self.store = columns(count, cost=weight * GIB / link.store / MS)
        self.away, self.early, self.late = (columns(count) for _ in range(3))

    def _add_copies(self) -> None:
        """Load what is away and used on the GPU; store what was written there once."""
        gaps, program = self.slots.gaps, self.program
        live = np.flatnonzero(self.is_live)
        self.loaded = program.columns(len(gaps), upper=np.where(gaps.dead, 0.0, 1.0))
        rows = np.arange(len(live))
        program.at_most(
            np.zeros(len(live)),
            Term(rows, self.absent[live], 1.0),
            Term(rows, self.loaded[live], -1.0),
            Term(rows, self.in_place[gaps.run_after[live]], -1.0),
        )
        self.previous, self.origin = self._since_written()
        dirty = np.flatnonzero(self.is_live & (self.origin >= 0))
        self.stored = program.columns(
            len(gaps), upper=np.where(self.origin < 0, 0.0, 1.0)
        )
        rows = np.arange(len(dirty))
        origin = self.origin[dirty]
        # What was written in place since it was dead or last stored is on the host.
        is_written = self.writes[gaps.run_before[origin]]
        program.at_most(
            np.zeros(len(dirty)),
            Term(rows, self.absent[dirty], 1.0),
            Term(rows, self.stored[dirty], -1.0),
            Term(
                rows[is_written],
                self.written_in_place[gaps.run_before[origin[is_written]]],
                -1.0,
            ),
        )
        again = np.flatnonzero(self.previous >= 0)
        self._at_most(self.stored[self.previous[again]], self.stored[again])

    def _since_written(self) -> tuple[Ints, Ints]:
        """Return, for each gap, the one before it and the first since a write.

        The first has none before it. Both are -1 if the host's copy is always good.
        """
        gaps = self.slots.gaps
        count = len(gaps)
        index = np.arange(count)
        is_first = np.r_[True, gaps.region[1:] != gaps.region[:-1]][:count]
        heads = np.flatnonzero(is_first)
        of_region = np.cumsum(is_first) - 1
        tails = np.r_[heads[1:], count] - 1
        before = np.where(is_first, tails[of_region], index - 1)
        starts = self.writes[gaps.run_before] | gaps.dead[before]
        latest = np.maximum.accumulate(np.where(starts, index, -1))
        latest = np.where(latest >= heads[of_region], latest, -1)
        around = latest[tails[of_region]]  # the last start of the region, or -1
        origin = np.where(latest >= 0, latest, around)
        previous = np.where(starts | (origin < 0), -1, before)
        # A dead gap ends what was written; nothing of it is stored.
        origin = np.where(gaps.dead, -1, origin)
        previous = np.where(gaps.dead, -1, previous)
        return previous, origin

    def _add_memory(self) -> None:
        gaps, program, count = self.slots.gaps, self.program, len(self.slots)
        slot = np.arange(count)
        following = (slot + 1) % count
        live = np.flatnonzero(self.is_live)
        self._add_away(live)
        # What is early: grows by loads, shrinks by what falls due.
        program.equal(
            np.zeros(count),
            Term(slot, self.early[following], 1.0),
            Term(slot, self.early, -1.0),
            Term(slot, self.load, -1.0),
            Term(gaps.due_slot[live], self.loaded[live], self.size[live]),
        )
        dirty = np.flatnonzero(self.origin >= 0)
        again = np.flatnonzero(self.previous >= 0)
        program.equal(
            np.zeros(count),
            Term(slot, self.late[following], 1.0),
            Term(slot, self.late, -1.0),
            Term(slot, self.store, 1.0),
            Term(gaps.released_slot[dirty], self.stored[dirty], -self.size[dirty]),
            Term(
                gaps.released_slot[again],
                self.stored[self.previous[again]],
                self.size[again],
            ),
        )
        checkpoint = self.slots.checkpoint
        room = (self.model.budget_pieces - self.model.live_pieces[checkpoint]) / GIB
        program.at_most(
            room,
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
            *self._in_place_at_checkpoints(),
        )
        program.at_most(
            np.zeros(count),
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
        )

    def _add_away(self, live: Ints) -> None:
        """Sum up what is absent at each checkpoint, each from the one before it."""
        gaps, program, count = self.slots.gaps, self.program, len(self.slots)
        covering = live[gaps.num_covered[live] > 0]
        first = gaps.first_covered[covering]
        stop = first + gaps.num_covered[covering]  # one turn after `first` at most
        size, absent = self.size[covering], self.absent[covering]
        later = np.arange(1, count)
        begins = (first > 0) & (gaps.num_covered[covering] < count)
        ends = (stop % count > 0) & (gaps.num_covered[covering] < count)
        program.equal(
            np.zeros(count - 1),
            Term(later - 1, self.away[later], 1.0),
            Term(later - 1, self.away[later - 1], -1.0),
            Term(first[begins] - 1, absent[begins], -size[begins]),
            Term(stop[ends] % count - 1, absent[ends], size[ends]),
        )
        at_zero = (first == 0) | (stop > count)
        none = np.zeros(1, np.int64)
        program.equal(
            np.zeros(1),
            Term(none, self.away[:1], 1.0),
            Term(
                np.zeros(int(at_zero.sum()), np.int64), absent[at_zero], -size[at_zero]
            ),
        )

    def _in_place_at_checkpoints(self) -> list[Term]:
        """Regions that the checkpoints' launches reach over the link take no memory."""
        accesses, slots = self.model.accesses, self.slots
        slot = slots.slot[accesses.position]
        at = np.flatnonzero(slots.checkpoint[slot] == accesses.position)
        size = self.model.num_pieces[accesses.region[at]] / GIB
        # Around such an access lie gaps that reach a checkpoint: it is its run.
        return [Term(slot[at], self.in_place[slots.run[at]], -size)]

    def _add_time(self) -> None:
        """A slot takes as long as its launches, and as its transfers each way."""
        accesses, slots, link = self.model.accesses, self.slots, self.link
        program, count = self.program, len(slots)
        slot = np.arange(count)
        duration = self.model.duration_ns / MS
        run, writes = slots.run, accesses.writes
        column = np.where(writes, self.written_in_place[run], self.in_place[run])
        used = np.flatnonzero(np.isfinite(accesses.link_ns) & ~accesses.rereads)
        column, position = column[used], accesses.position[used]
        link_ms = accesses.link_ns[used] / MS
        of_slot = slots.slot[position]
        needed = sum_by(position, link_ms, self.model.num_launches)
        slow = np.flatnonzero(needed > duration)
        extra = program.columns(len(slow))
        row_of = np.full(self.model.num_launches, -1)
        row_of[slow] = np.arange(len(slow))
        counts = row_of[position] >= 0
        program.at_most(
            duration[slow],
            Term(row_of[position[counts]], column[counts], link_ms[counts]),
            Term(np.arange(len(slow)), extra, -1.0),
        )
        program.at_most(
            -sum_by(slots.slot, duration, count),
            Term(slot, self.step, -1.0),
            Term(slots.slot[slow], extra, 1.0),
        )
        reads, writes = accesses.reads[used], writes[used]
        both_ways = np.where(reads & writes, 1.0, 0.5)
        for share, loads, stores in (
            (reads * 1.0, GIB / link.load / MS, 0.0),
            (writes * 1.0, 0.0, GIB / link.store / MS),
            (both_ways, GIB / link.both / MS / 2, GIB / link.both / MS / 2),
        ):
            program.at_most(
                np.zeros(count),
                Term(slot, self.step, -1.0),
                Term(slot, self.load, loads),
                Term(slot, self.store, stores),
                Term(of_slot, column, link_ms * share),
            )

    def solve(self) -> Fractions | None:
        values = self.program.solve()
        if values is None:
            return None
        slot_ms = values[self.step]
        return Fractions(
            step_ns=float(slot_ms.sum()) * MS,
            absent=np.where(self.is_live, values[self.absent], 1.0),
            in_place=values[self.in_place],
            slot_ns=slot_ms * MS,
        )
