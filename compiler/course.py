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
    come and go. The bytes cross the link until the next stretch starts: those that
    launches read and write in place, and those that are loaded and stored for windows,
    which are counted, chunk by chunk, where a chunk ends.
    """

    step_ns: float
    start_ns: Floats
    wait_ns: Floats
    fixed_pieces: Ints
    resident_pieces: Ints
    windowed_pieces: Ints
    read_bytes: Floats
    written_bytes: Floats
    loaded_bytes: Floats
    stored_bytes: Floats

    @classmethod
    def of_static(
        cls,
        problem: Problem,
        launch_ids: Ints,
        zero_copy: Ints,
        launch_ns: Floats,
        read_bytes: Floats,
        written_bytes: Floats,
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
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            loaded_bytes=np.zeros_like(launch_ns),
            stored_bytes=np.zeros_like(launch_ns),
        )

    @classmethod
    def of_windows(
        cls,
        model: Model,
        planned: Planned,
        read_bytes: Floats,
        written_bytes: Floats,
    ) -> Self:
        """Describe a simulated step; the bytes are what each launch moves in place."""
        timeline, schedule = planned.simulated.timeline, planned.schedule
        start = timeline.position
        fixed = np.maximum.reduceat(model.fixed_pieces, start)
        resident = int(schedule.parts.num_pieces[schedule.resident].sum())
        return cls(
            step_ns=planned.simulated.step_ns,
            start_ns=timeline.start_ns,
            wait_ns=timeline.stall_ns,
            fixed_pieces=fixed,
            resident_pieces=np.full_like(fixed, resident),
            windowed_pieces=timeline.used_pieces - fixed - resident,
            read_bytes=np.add.reduceat(read_bytes, start),
            written_bytes=np.add.reduceat(written_bytes, start),
            loaded_bytes=timeline.loaded_pieces.astype(np.float64) * PIECE_BYTES,
            stored_bytes=timeline.stored_pieces.astype(np.float64) * PIECE_BYTES,
        )
