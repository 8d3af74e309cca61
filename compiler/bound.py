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

from transit.compiler import remaps
from transit.compiler.arrays import Bools, Floats, Ints, sum_by
from transit.compiler.haste import HastyLoads
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
    return _Bound(model, slots, link, whole_runs, most_absent).solve()


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
        self,
        model: Model,
        slots: Slots,
        link: Link,
        whole_runs: bool,
        most_absent: Floats | None,
    ) -> None:
        self.model, self.slots, self.link = model, slots, link
        self.whole_runs = whole_runs
        self.most_absent = (
            np.ones(len(slots.gaps)) if most_absent is None else most_absent
        )
        self.program = LinearProgram()
        gaps = slots.gaps
        self.size = model.num_pieces[gaps.region] / GIB
        self.is_live = ~gaps.dead
        self._add_choices()
        self._add_slots()
        self._add_copies()
        self._add_memory()
        self._add_time()
        self._add_haste()
        self._add_remaps()

    def _add_choices(self) -> None:
        accesses, slots = self.model.accesses, self.slots
        count = slots.num_runs

        def runs_with(which: Bools) -> Bools:
            return sum_by(slots.run, which, count) > 0

        self.writes = runs_with(accesses.writes)
        possible = accesses.may_be_in_place
        dead = self.slots.gaps.dead
        self.absent = self.program.columns(count, upper=np.where(dead, 0.0, 1.0))
        self.kept = self.program.columns(
            count, upper=np.where(dead & self.link.takes_time_to_map, 1.0, 0.0)
        )
        self.in_place = self.program.columns(
            count, upper=np.where(runs_with(~possible), 0.0, 1.0)
        )
        self.written_in_place = self.in_place.copy()
        is_mixed = self.writes & runs_with(~accesses.writes)
        mixed = np.flatnonzero(is_mixed & ~self.whole_runs)
        barred = runs_with(accesses.writes & ~possible)[mixed]
        self.written_in_place[mixed] = self.program.columns(
            len(mixed), upper=np.where(barred, 0.0, 1.0)
        )
        self.program.ordered(self.in_place[mixed], self.written_in_place[mixed])
        # Zero-copy is possible only where what was there before and is after is away.
        live = np.flatnonzero(self.is_live)
        gaps = slots.gaps
        self.program.ordered(self.in_place[gaps.run_after[live]], self.absent[live])
        self.program.ordered(
            self.written_in_place[gaps.run_before[live]], self.absent[live]
        )

    def _add_slots(self) -> None:
        count, weight = len(self.slots), TRAFFIC_WEIGHT
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
        gaps, program = self.slots.gaps, self.program
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
        born = np.flatnonzero(gaps.dead & self._is_mixed())
        rows = np.arange(len(born))
        program.at_most(
            np.zeros(len(born)),
            Term(rows, self.written_in_place[born], 1.0),
            Term(rows, self.in_place[born], -1.0),
            Term(rows, self.loaded[born], -1.0),
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
        self.program.ordered(self.stored[self.previous[again]], self.stored[again])

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
        program, count = self.program, len(self.slots)
        slot = np.arange(count)
        self._add_sum(self.away, self.absent, np.flatnonzero(self.is_live))
        self._add_sum(self.held, self.kept, np.flatnonzero(~self.is_live))
        self._add_loads(self.early, self.load, self.size)
        self._add_late()
        self._add_fixed()
        checkpoint = self.slots.checkpoint
        room = (self.model.budget_pieces - self.model.live_pieces[checkpoint]) / GIB
        program.at_most(
            room,
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
            Term(slot, self.held, 1.0),
            *self._in_place_at_checkpoints(),
        )
        program.at_most(
            np.zeros(count),
            Term(slot, self.away, -1.0),
            Term(slot, self.early, 1.0),
            Term(slot, self.late, 1.0),
        )

    def _add_loads(self, early: Ints, flow: Ints, amount: Floats) -> None:
        """What is early grows by what is loaded and shrinks by what falls due."""
        count = len(self.slots)
        slot = np.arange(count)
        self.program.equal(
            np.zeros(count),
            Term(slot, early[(slot + 1) % count], 1.0),
            Term(slot, early, -1.0),
            Term(slot, flow, -1.0),
            Term(self.slots.gaps.due_slot, self.loaded, amount),
        )

    def _add_stores(self, unstored: Ints, flow: Ints, amount: Floats) -> None:
        """What is unstored grows by what was written and shrinks by what is stored."""
        count = len(self.slots)
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
        return dirty, again, self.slots.gaps.released_slot[self.origin]

    def _add_late(self) -> None:
        """What is stored can be so once it is written, and must be when it leaves."""
        gaps, count = self.slots.gaps, len(self.slots)
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
        each = np.full(len(self.slots.gaps), 1 / MS)
        link = self.link
        self._add_loads(self.fixed_ahead, self.load_fixed, link.load_fixed_ns * each)
        self._add_stores(
            self.fixed_behind, self.store_fixed, link.store_fixed_ns * each
        )

    def _add_sum(self, totals: Ints, share: Ints, which: Ints) -> None:
        """Let totals be what the shares of some gaps are at each checkpoint."""
        gaps = self.slots.gaps
        covering = which[gaps.num_covered[which] > 0]
        self.program.sum_around(
            totals,
            gaps.first_covered[covering],
            gaps.num_covered[covering],
            share[covering],
            self.size[covering],
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
        used = np.flatnonzero(accesses.may_be_in_place)
        column, position = column[used], accesses.position[used]
        link_ms = accesses.link_ns[used] / MS
        of_slot = slots.slot[position]
        needed = sum_by(position, link_ms, self.model.num_launches)
        slow = np.flatnonzero(needed > duration)
        extra = program.columns(len(slow))
        self.slow, self.extra = slow, extra
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
        # Copies each way, alone and while the other way is in use too. What lies
        # between is had by turns: one way alone is a corner, both at once another.
        load, store = GIB / link.load / MS, GIB / link.store / MS
        both = GIB / link.both / MS
        for loads, stores, share in (
            (load, 0.0, reads * 1.0),
            (0.0, store, writes * 1.0),
            (load, max(both - load, 0.0), reads * np.where(writes, 1.0, load / both)),
            (
                max(both - store, 0.0),
                store,
                writes * np.where(reads, 1.0, store / both),
            ),
        ):
            program.at_most(
                np.zeros(count),
                Term(slot, self.step, -1.0),
                Term(slot, self.load, loads),
                Term(slot, self.store, stores),
                Term(slot, self.load_fixed, 1.0 if loads >= load else 0.0),
                Term(slot, self.store_fixed, 1.0 if stores >= store else 0.0),
                Term(of_slot, column, link_ms * share),
            )

    def _add_haste(self) -> None:
        """Loads within gaps that hardly last take their time while launches wait.

        Else the program would have what one launch writes over the link loaded for the
        next one, while others compute.
        """
        born = np.flatnonzero(self.slots.gaps.dead & self._is_mixed())
        loads = HastyLoads.of(self.model, self.slots, self.link, born)
        count, slot_of = len(self.slots), self.slots.slot
        for length in (1, 2):
            within = loads.within(length)
            is_inside = within.launches_inside(self.model.num_launches)
            compute_ms = np.where(is_inside, 0.0, self.model.duration_ns / MS)
            of_slot = sum_by(slot_of, compute_ms, count)
            extra = np.flatnonzero(~is_inside[self.slow])
            windows = np.arange(count - length + 1)
            side, terms = np.zeros(len(windows)), []
            for nth in range(length):
                side -= of_slot[windows + nth]
                terms.append(Term(windows, self.step[windows + nth], -1.0))
                window = slot_of[self.slow[extra]] - nth
                fits = (window >= 0) & (window < len(windows))
                terms.append(Term(window[fits], self.extra[extra][fits], 1.0))
                window = within.first_slot - nth
                fits = (window >= 0) & (window < len(windows))
                fits &= within.due_slot < window + length
                column = self.loaded[within.gap[fits]]
                terms.append(Term(window[fits], column, within.load_ns[fits] / MS))
            self.program.at_most(side, *terms)

    def _add_remaps(self) -> None:
        self.remapped, self.remap_ms = self.step[:0], np.zeros(0)
        if not self.link.takes_time_to_map:
            return
        gaps = self.slots.gaps
        self.remapped, self.remap_ms = remaps.add(
            self.program,
            gaps,
            self.model.num_pieces[gaps.region],
            self.link,
            remaps.Columns(
                self.absent, self.kept, self.in_place, self.written_in_place
            ),
            step=self.step,
            weight=TRAFFIC_WEIGHT,
        )

    def _is_mixed(self) -> Bools:
        """Tell which runs may be written in place and otherwise not."""
        return np.asarray(self.in_place != self.written_in_place)

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
        ideal_ms = self.model.duration_ns.sum() / MS
        return float(max(cost_ms / (1 + 3 * w), ideal_ms))
