"""The iteration under a schedule, cut into stretches in which nothing changes."""

from __future__ import annotations

import numpy as np

from transit.compiler.arrays import Floats, sum_by
from transit.compiler.model import Model, sum_between
from transit.compiler.schedule import NEVER, Schedule


class Segments:
    """The iteration, cut where windows begin and end; times in ns, sizes in pieces."""

    def __init__(self, model: Model, schedule: Schedule) -> None:
        windows, count = schedule.windows, model.num_launches
        duration, free_load, free_store = _durations(model, schedule)
        ends = np.r_[windows.last, windows.written[windows.store]]
        readies = windows.ready[windows.ready != NEVER]
        cuts = np.r_[0, windows.first, (ends + 1) % count, readies]
        changes = [np.flatnonzero(np.diff(f)) + 1 for f in (free_load, free_store)]
        self.start = np.unique(np.concatenate([cuts, *changes]))
        self.duration = np.add.reduceat(duration, self.start)
        self.free_load, self.free_store = free_load[self.start], free_store[self.start]
        self.first = np.searchsorted(self.start, windows.first)
        self.last = np.searchsorted(self.start, windows.last, side="right") - 1
        self.written = np.searchsorted(self.start, windows.written, side="right") - 1
        ready = np.searchsorted(self.start, windows.ready)
        self.ready = np.where(windows.ready == NEVER, NEVER, ready)
        self.wraps = windows.last < windows.first
        self.pieces = schedule.parts.num_pieces[windows.part]
        resident = schedule.parts.num_pieces[schedule.resident].sum()
        fixed = np.maximum.reduceat(model.fixed_pieces, self.start)
        self.fixed = fixed + int(resident)
        held = sum_between(
            self.first, self.last + 1, self.wraps, self.pieces, len(self.start)
        )
        self.need = self.fixed + held

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.start)


def _durations(model: Model, schedule: Schedule) -> tuple[Floats, Floats, Floats]:
    """Return how long launches take, and what they leave of the link each way."""
    accesses, count = model.accesses, model.num_launches
    share = schedule.in_place / model.num_pieces[accesses.region]
    used = np.flatnonzero(share > 0)
    link_ns, position = accesses.link_ns[used] * share[used], accesses.position[used]
    duration = np.maximum(model.duration_ns, sum_by(position, link_ns, count))
    free = []
    for direction in (accesses.reads[used], accesses.writes[used]):
        busy = sum_by(position, link_ns * direction, count)
        with np.errstate(invalid="ignore", divide="ignore"):
            free.append(1.0 - np.nan_to_num(busy / duration))
    return duration, np.clip(free[0], 0, 1), np.clip(free[1], 0, 1)
