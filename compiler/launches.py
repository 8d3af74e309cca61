"""What single launches add to the linear program, which otherwise sees slots.

The program is a bound without it, and a better one with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Ints, sum_by
from transit.compiler.haste import HastyLoads
from transit.compiler.linear import LinearProgram, Term
from transit.compiler.link import Link
from transit.compiler.model import Model
from transit.compiler.slots import Slots

MS = 1e6  # in ns


@dataclass(frozen=True)
class Extra:
    """Columns for what launches take longer as they reach memory over the link."""

    launch: Ints
    column: Ints  # in ms


def add_extra(
    program: LinearProgram,
    model: Model,
    slots: Slots,
    in_place: Ints,
    written_in_place: Ints,
) -> Extra:
    """Add how much longer launches take, of those that may; columns are by run."""
    accesses, run = model.accesses, slots.run
    used = np.flatnonzero(accesses.may_be_in_place)
    of_run = np.where(accesses.writes, written_in_place[run], in_place[run])
    position, link_ms = accesses.position[used], accesses.link_ns[used] / MS
    duration = model.duration_ns / MS
    needed = sum_by(position, link_ms, model.num_launches)
    slow = np.flatnonzero(needed > duration)
    extra = program.columns(len(slow))
    row_of = np.full(model.num_launches, -1)
    row_of[slow] = np.arange(len(slow))
    counts = row_of[position] >= 0
    program.at_most(
        duration[slow],
        Term(row_of[position[counts]], of_run[used][counts], link_ms[counts]),
        Term(np.arange(len(slow)), extra, -1.0),
    )
    return Extra(slow, extra)


def add_haste(
    program: LinearProgram,
    model: Model,
    slots: Slots,
    link: Link,
    extra: Extra,
    *,
    step: Ints,
    loaded: Ints,
    born: Ints,
) -> None:
    """Loads within gaps that hardly last take their time while launches wait.

    Else the program would have what one launch writes over the link loaded for the
    next one, while others compute.
    """
    loads = HastyLoads.of(model, slots, link, born)
    count, slot_of = len(slots), slots.slot
    for length in (1, 2):
        within = loads.within(length)
        is_inside = within.launches_inside(model.num_launches)
        compute_ms = np.where(is_inside, 0.0, model.duration_ns / MS)
        of_slot = sum_by(slot_of, compute_ms, count)
        outside = np.flatnonzero(~is_inside[extra.launch])
        windows = np.arange(count - length + 1)
        side, terms = np.zeros(len(windows)), []
        for nth in range(length):
            side -= of_slot[windows + nth]
            terms.append(Term(windows, step[windows + nth], -1.0))
            window = slot_of[extra.launch[outside]] - nth
            fits = _inside(window, len(windows))
            terms.append(Term(window[fits], extra.column[outside][fits], 1.0))
            window = within.first_slot - nth
            fits = _inside(window, len(windows)) & (within.due_slot < window + length)
            column = loaded[within.gap[fits]]
            terms.append(Term(window[fits], column, within.load_ns[fits] / MS))
        program.at_most(side, *terms)


def _inside(window: Ints, count: int) -> Bools:
    return np.asarray((window >= 0) & (window < count))
