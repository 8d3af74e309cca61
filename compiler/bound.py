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

from transit.compiler import launches, remaps
from transit.compiler.arrays import Floats, Ints
from transit.compiler.linear import LinearProgram, Term
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.slots import Slots
from transit.compiler.view import View

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


def solve(
    model: Model,
    slots: Slots,
    link: Link,
    *,
    whole_runs: bool = False,
    most_absent: Floats | None = None,
) -> Fractions | None:
    """Return the best step of a model looked at in slots; None if nothing fits.

    With `whole_runs` all accesses of a run are alike, as those of schedules are.
    """
    program = _Bound(View.of(model, slots), link, whole_runs, most_absent)
    program.add_launches(model, slots)
    return program.solve()


def solve_view(
    view: View,
    link: Link,
    *,
    whole_runs: bool = False,
    most_absent: Floats | None = None,
) -> Fractions | None:
    """Return the best step as far as a view tells; None if nothing fits."""
    program = _Bound(view, link, whole_runs, most_absent)
    program.add_slot_times()
    return program.solve()


class _Bound:
    """The program's variables by what they mean.

    By gap: `absent` (share off the GPU) or, if it is dead, `kept` (share that takes up
    memory all the same), `loaded` and `stored` (share copied, the
    latter summed up since the region was last written). By run: `in_place` (share that
    all accesses reach over the link), `written_in_place` (that all writes do). By slot:
    `step` (its time in ms), `load` and `store` (GiB moved in it), and at its checkpoint
    `away` (GiB absent), `early` (loaded before it is due), `late` (not yet stored).
    """

    def __init__(
        self, view: View, link: Link, whole_runs: bool, most_absent: Floats | None
    ) -> None:
        self.view, self.gaps, self.runs, self.link = view, view.gaps, view.runs, link
        self.num_slots = len(view.slot_ns)
        self.whole_runs = whole_runs
        self.most_absent = (
            np.ones(len(self.gaps)) if most_absent is None else most_absent
        )
        self.program = LinearProgram()
        self.size = view.num_pieces / GIB
        self.is_live = ~self.gaps.dead
        self._add_choices()
        self._add_slots()
        self._add_copies()
        self._add_memory()
        self._add_transfer_times()
        self._add_remaps()

    def _add_choices(self) -> None:
        gaps, runs, program = self.gaps, self.runs, self.program
        count, dead = len(gaps), gaps.dead
        self.absent = program.columns(count, upper=np.where(dead, 0.0, 1.0))
        self.kept = program.columns(
            count, upper=np.where(dead & self.link.takes_time_to_map, 1.0, 0.0)
        )
        self.in_place = program.columns(
            count, upper=np.where(runs.may_be_in_place, 1.0, 0.0)
        )
        self.written_in_place = self.in_place.copy()
        mixed = np.flatnonzero(runs.is_mixed & ~self.whole_runs)
        may_be = runs.may_be_written_in_place[mixed]
        self.written_in_place[mixed] = program.columns(
            len(mixed), upper=np.where(may_be, 1.0, 0.0)
        )
        program.ordered(self.in_place[mixed], self.written_in_place[mixed])
        # Zero-copy is possible only where what was there before and is after is away.
        live = np.flatnonzero(self.is_live)
        program.ordered(self.in_place[gaps.run_after[live]], self.absent[live])
        program.ordered(self.written_in_place[gaps.run_before[live]], self.absent[live])

    def _add_slots(self) -> None:
        count, weight = self.num_slots, TRAFFIC_WEIGHT
        columns, link = self.program.columns, self.link
        self.step = columns(count, cost=1.0)
        self.load = columns(count, cost=weight * GIB / link.load / MS)
        self.store = columns(count, cost=weight * GIB / link.store / MS)
        self.away, self.early, self.late = (columns(count) for _ in range(3))
        self.held = columns(count)  # GiB of what is dead
        self.unstored, self.used = (columns(count) for _ in range(2))
        # What transfers cost apart from their bytes, in ms, and what of it is ahead.
        self.load_fixed, self.store_fixed = (columns(count, cost=weight) for _ in "ab")
        self.fixed_ahead, self.fixed_behind = (columns(count) for _ in "ab")

    def _add_copies(self) -> None:
        """Load what is away and used on the GPU; store what was written there once."""
        gaps, program = self.gaps, self.program
        live = np.flatnonzero(self.is_live)
        self.loaded = program.columns(
            len(gaps), upper=np.where(gaps.dead, 1.0, self.most_absent)
        )
        limited = live[self.most_absent[live] < 1]
        rows = np.arange(len(limited))
        program.at_most(
            self.most_absent[limited],
            Term(rows, self.absent[limited], 1.0),
            Term(rows, self.in_place[gaps.run_before[limited]], -1.0),
        )
        rows = np.arange(len(live))
        program.at_most(
            np.zeros(len(live)),
            Term(rows, self.absent[live], 1.0),
            Term(rows, self.loaded[live], -1.0),
            Term(rows, self.in_place[gaps.run_after[live]], -1.0),
        )
        # What comes into being in host memory has to be loaded for other accesses.
        born = self._born()
        rows = np.arange(len(born))
        program.at_most(
            np.zeros(len(born)),
            Term(rows, self.written_in_place[born], 1.0),
            Term(rows, self.in_place[born], -1.0),
            Term(rows, self.loaded[born], -1.0),
        )
        self.previous, self.origin = self.view.since_written()
        dirty = np.flatnonzero(self.is_live & (self.origin >= 0))
        self.stored = program.columns(
            len(gaps), upper=np.where(self.origin < 0, 0.0, 1.0)
        )
        rows = np.arange(len(dirty))
        origin = self.origin[dirty]
        # What was written in place since it was dead or last stored is on the host.
        is_written = self.runs.writes[gaps.run_before[origin]]
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
        self.program.ordered(self.stored[self.previous[again]], self.stored[again])

    def _add_memory(self) -> None:
        program, count = self.program, self.num_slots
        slot = np.arange(count)
        self._add_sum(self.away, self.absent, np.flatnonzero(self.is_live))
        self._add_sum(self.held, self.kept, np.flatnonzero(~self.is_live))
        self._add_loads(self.early, self.load, self.size)
        self._add_late()
        self._add_fixed()
        program.at_most(
            self.view.room_pieces / GIB,
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
            Term(slot, self.held, 1.0),
            self._in_place_at_checkpoints(),
        )
        program.at_most(
            np.zeros(count),
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
        )

    def _add_loads(self, early: Ints, flow: Ints, amount: Floats) -> None:
        """What is early grows by what is loaded and shrinks by what falls due."""
        count = self.num_slots
        slot = np.arange(count)
        self.program.equal(
            np.zeros(count),
            Term(slot, early[(slot + 1) % count], 1.0),
            Term(slot, early, -1.0),
            Term(slot, flow, -1.0),
            Term(self.gaps.due_slot, self.loaded, amount),
        )

    def _add_stores(self, unstored: Ints, flow: Ints, amount: Floats) -> None:
        """What is unstored grows by what was written and shrinks by what is stored."""
        count = self.num_slots
        slot = np.arange(count)
        dirty, again, written = self._stores()
        self.program.equal(
            np.zeros(count),
            Term(slot, unstored[(slot + 1) % count], 1.0),
            Term(slot, unstored, -1.0),
            Term(slot, flow, 1.0),
            Term(written[dirty], self.stored[dirty], -amount[dirty]),
            Term(written[again], self.stored[self.previous[again]], amount[again]),
        )

    def _stores(self) -> tuple[Ints, Ints, Ints]:
        """Return gaps with stores, those with earlier ones too, and slots of writes."""
        dirty = np.flatnonzero(self.origin >= 0)
        again = dirty[self.previous[dirty] >= 0]
        return dirty, again, self.gaps.released_slot[self.origin]

    def _add_late(self) -> None:
        """What is stored can be so once it is written, and must be when it leaves."""
        gaps, count = self.gaps, self.num_slots
        slot = np.arange(count)
        self._add_stores(self.unstored, self.store, self.size)
        # Between its last write and its leaving, it is no matter if it is stored.
        _, again, written = self._stores()
        first = (written[again] + 1) % count
        covered = (gaps.released_slot[again] + 1 - first) % count
        self.program.sum_around(
            self.used,
            np.r_[first, first],
            np.r_[covered, covered],
            np.r_[self.stored[again], self.stored[self.previous[again]]],
            np.r_[self.size[again], -self.size[again]],
        )
        self.program.at_most(
            np.zeros(count),
            Term(slot, self.unstored, 1.0),
            Term(slot, self.used, -1.0),
            Term(slot, self.late, -1.0),
        )

    def _add_fixed(self) -> None:
        """Moving a share of a region costs that share of its fixed time, or more.

        Like copies it comes before a load is due, and after a store's last write.
        """
        each = np.full(len(self.gaps), 1 / MS)
        link = self.link
        self._add_loads(self.fixed_ahead, self.load_fixed, link.load_fixed_ns * each)
        self._add_stores(
            self.fixed_behind, self.store_fixed, link.store_fixed_ns * each
        )

    def _add_sum(self, totals: Ints, share: Ints, which: Ints) -> None:
        """Let totals be what the shares of some gaps are at each checkpoint."""
        gaps = self.gaps
        covering = which[gaps.num_covered[which] > 0]
        self.program.sum_around(
            totals,
            gaps.first_covered[covering],
            gaps.num_covered[covering],
            share[covering],
            self.size[covering],
        )

    def _in_place_at_checkpoints(self) -> Term:
        """Regions that the checkpoints' launches reach over the link take no memory."""
        # Around such an access lie gaps that reach a checkpoint: it is its run.
        at = np.flatnonzero(self.runs.is_at_checkpoint)
        return Term(self.runs.slot[at], self.in_place[at], -self.size[at])

    def add_slot_times(self) -> None:
        """A slot takes as long as its launches."""
        slot = np.arange(self.num_slots)
        self.program.at_most(-self.view.slot_ns / MS, Term(slot, self.step, -1.0))

    def add_launches(self, model: Model, slots: Slots) -> None:
        """A slot takes as long as its launches, with what they reach over the link."""
        program, slot = self.program, np.arange(self.num_slots)
        extra = launches.add_extra(
            program, model, slots, self.in_place, self.written_in_place
        )
        program.at_most(
            -self.view.slot_ns / MS,
            Term(slot, self.step, -1.0),
            Term(slots.slot[extra.launch], extra.column, 1.0),
        )
        launches.add_haste(
            program,
            model,
            slots,
            self.link,
            extra,
            step=self.step,
            loaded=self.loaded,
            born=self._born(),
        )

    def _add_transfer_times(self) -> None:
        """A slot takes as long as what crosses the link in it, each way."""
        count, link, runs = self.num_slots, self.link, self.runs
        slot = np.arange(count)
        # Copies each way, alone and while the other way is in use too. What lies
        # between is had by turns: one way alone is a corner, both at once another.
        load, store = GIB / link.load / MS, GIB / link.store / MS
        both = GIB / link.both / MS
        for loads, stores, reads, writes in (
            (load, 0.0, 1.0, 0.0),
            (0.0, store, 0.0, 1.0),
            (load, max(both - load, 0.0), load / both, 0.0),
            (max(both - store, 0.0), store, 0.0, store / both),
        ):
            written_ns = runs.writes_ns * writes + runs.both_ns
            self.program.at_most(
                np.zeros(count),
                Term(slot, self.step, -1.0),
                Term(slot, self.load, loads),
                Term(slot, self.store, stores),
                Term(slot, self.load_fixed, 1.0 if loads >= load else 0.0),
                Term(slot, self.store_fixed, 1.0 if stores >= store else 0.0),
                Term(runs.slot, self.in_place, runs.reads_ns * reads / MS),
                Term(runs.slot, self.written_in_place, written_ns / MS),
            )

    def _add_remaps(self) -> None:
        self.remapped, self.remap_ms = self.step[:0], np.zeros(0)
        if not self.link.takes_time_to_map:
            return
        self.remapped, self.remap_ms = remaps.add(
            self.program,
            self.gaps,
            self.view.num_pieces,
            self.link,
            remaps.Columns(
                self.absent, self.kept, self.in_place, self.written_in_place
            ),
            step=self.step,
            weight=TRAFFIC_WEIGHT,
        )

    def _born(self) -> Ints:
        """Return dead gaps, after which a run may first be written in place."""
        is_mixed = self.in_place != self.written_in_place
        return np.flatnonzero(self.gaps.dead & is_mixed)

    def solve(self) -> Fractions | None:
        values = self.program.solve()
        if values is None:
            return None
        return Fractions(
            step_ns=self._least_ms(values) * MS,
            absent=np.where(self.is_live, values[self.absent], 1.0 - values[self.kept]),
            in_place=values[self.in_place],
            slot_ns=values[self.step] * MS,
        )

    def _least_ms(self, values: Floats) -> float:
        """Return a time that no step beats, given the program's best values.

        The program minimises T + w C: time, and weighted time C of copies and remaps.
        The fastest step, T*, has C* <= 3 T*: each way copies last no longer than their
        slots, and remaps no longer than the step. So T + w C <= T* + w C* <=
        (1 + 3 w) T*. And launches take their time.
        """
        link, w = self.link, TRAFFIC_WEIGHT
        load_ms = values[self.load].sum() * (GIB / link.load / MS)
        store_ms = values[self.store].sum() * (GIB / link.store / MS)
        fixed_ms = values[self.load_fixed].sum() + values[self.store_fixed].sum()
        moved_ms = load_ms + store_ms + fixed_ms + values[self.remapped] @ self.remap_ms
        cost_ms = values[self.step].sum() + w * moved_ms
        ideal_ms = self.view.slot_ns.sum() / MS
        return float(max(cost_ms / (1 + 3 * w), ideal_ms))
