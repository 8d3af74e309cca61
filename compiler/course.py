"""How a GPU's predicted step goes: what is on it when, and what crosses the link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from transit.compiler.arrays import Floats, Ints
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.planner import Planned
from transit.compiler.problem import Problem


@dataclass(frozen=True)
class Course:
    """A step in stretches of launches; each entry is one, in order.

    From `start_ns` on, its first launch waits for `wait_ns`. When that begins, so many
    pieces are on the GPU: those that no plan can move, those that stay, and those that
    come and go. The bytes cross the link until the next stretch starts; what windows
    move is counted, chunk by chunk, where it ends.
    """

    step_ns: float
    start_ns: Floats
    wait_ns: Floats
    fixed_pieces: Ints
    resident_pieces: Ints
    windowed_pieces: Ints
    h2d_bytes: Floats
    d2h_bytes: Floats

    @classmethod
    def of_static(
        cls,
        problem: Problem,
        launch_ids: Ints,
        zero_copy: Ints,
        launch_ns: Floats,
        h2d_bytes: Floats,
        d2h_bytes: Floats,
    ) -> Self:
        """Describe a step in which nothing comes or goes; arrays are by launch."""
        regions = problem.regions
        movable = np.where(regions.unexplained, 0, regions.num_pieces)
        fixed = problem.resident_at(launch_ids, movable)
        ends_ns = np.cumsum(launch_ns)
        return cls(
            step_ns=float(ends_ns[-1]),
            start_ns=ends_ns - launch_ns,
            wait_ns=np.zeros_like(launch_ns),
            fixed_pieces=fixed,
            resident_pieces=problem.resident_at(launch_ids, zero_copy) - fixed,
            windowed_pieces=np.zeros_like(fixed),
            h2d_bytes=h2d_bytes,
            d2h_bytes=d2h_bytes,
        )

    @classmethod
    def of_windows(
        cls, model: Model, planned: Planned, h2d_bytes: Floats, d2h_bytes: Floats
    ) -> Self:
        """Describe a simulated step; the bytes are what each launch moves in place."""
        timeline, schedule = planned.simulated.timeline, planned.schedule
        start = timeline.position
        fixed = np.maximum.reduceat(model.fixed_pieces, start)
        resident = int(schedule.parts.num_pieces[schedule.resident].sum())
        loaded, stored = timeline.loaded_pieces, timeline.stored_pieces
        return cls(
            step_ns=planned.simulated.step_ns,
            start_ns=timeline.start_ns,
            wait_ns=timeline.stall_ns,
            fixed_pieces=fixed,
            resident_pieces=np.full_like(fixed, resident),
            windowed_pieces=timeline.used_pieces - fixed - resident,
            h2d_bytes=np.add.reduceat(h2d_bytes, start) + loaded * PIECE_BYTES,
            d2h_bytes=np.add.reduceat(d2h_bytes, start) + stored * PIECE_BYTES,
        )
