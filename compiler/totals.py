"""Add up what was chosen for the GPUs of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from transit.compiler.choice import Choice
from transit.compiler.plan import PIECE_BYTES, Prediction, RankPlan, Summary
from transit.compiler.problem import Problem


@dataclass(frozen=True)
class GpuTotals:
    """What one GPU's choice adds to the plan's; sizes are in pieces of 2 MiB.

    Times and bytes are of an iteration, which has so many steps.
    """

    steps: int
    job_peak_pieces: int
    peak_pieces: int
    smallest_pieces: int
    unmovable_pieces: int
    ideal_ns: float
    planned_ns: float
    bound_ns: float | None
    h2d_bytes: float
    d2h_bytes: float
    rivals_ns: dict[str, float | None]

    @classmethod
    def of(
        cls,
        problem: Problem,
        choice: Choice,
        rivals_ns: dict[str, float | None],
        steps: int,
    ) -> Self:
        """Take them from a choice; `rivals_ns` is what other policies take."""
        nothing = np.zeros(len(problem.regions), np.int64)
        return cls(
            steps=steps,
            job_peak_pieces=problem.peak(nothing),
            peak_pieces=choice.peak_pieces,
            smallest_pieces=choice.smallest_pieces,
            unmovable_pieces=int(problem.unmovable.max()),
            ideal_ns=choice.ideal_ns,
            planned_ns=choice.step_ns,
            bound_ns=choice.bound_ns,
            h2d_bytes=choice.h2d_bytes,
            d2h_bytes=choice.d2h_bytes,
            rivals_ns=rivals_ns,
        )


def totals(ranks: list[RankPlan], gpus: list[GpuTotals], *, has_rates: bool) -> Summary:
    """Add up; the time is only known from rates of the GPU that was recorded."""

    def most(pieces: Iterable[int]) -> int:
        return max(pieces, default=0) * PIECE_BYTES

    total_bytes = {"resident": 0, "zero-copy": 0, "windowed": 0}
    for rank in ranks:
        for allocation in rank.allocations:
            for placed in allocation.placements:
                total_bytes[placed.placement] += placed.bytes * len(rank.ranks)
    link_bytes = sum(gpu.h2d_bytes + gpu.d2h_bytes for gpu in gpus)
    extra_ns = max((gpu.planned_ns - gpu.ideal_ns for gpu in gpus), default=0.0)
    return Summary(
        job_peak_bytes=most(gpu.job_peak_pieces for gpu in gpus),
        peak_resident_bytes=most(gpu.peak_pieces for gpu in gpus),
        resident_bytes=total_bytes["resident"],
        zero_copy_bytes=total_bytes["zero-copy"],
        window_bytes=total_bytes["windowed"],
        unmovable_bytes=most(gpu.unmovable_pieces for gpu in gpus),
        smallest_budget_bytes=most(gpu.smallest_pieces for gpu in gpus),
        estimated_link_bytes_per_iteration=round(link_bytes),
        estimated_extra_ns_per_iteration=(
            round(max(extra_ns, 0.0))
            if has_rates or not (total_bytes["zero-copy"] + total_bytes["windowed"])
            else None
        ),
    )


def predict(gpus: list[GpuTotals]) -> Prediction | None:
    """Foretell the job's step: that of the GPU which takes longest."""
    if not gpus:
        return None
    slowest = max(gpus, key=lambda gpu: gpu.planned_ns / gpu.steps)
    step_ns = slowest.planned_ns / slowest.steps
    bounds = [gpu.bound_ns / gpu.steps for gpu in gpus if gpu.bound_ns is not None]
    bound_ns = max(bounds) if len(bounds) == len(gpus) else None
    return Prediction(
        step_ns=round(step_ns),
        ideal_step_ns=round(max(gpu.ideal_ns / gpu.steps for gpu in gpus)),
        bound_step_ns=None if bound_ns is None else round(bound_ns),
        gap=round(step_ns / bound_ns - 1, 4) if bound_ns else None,
        policies=_slowest(gpus),
        h2d_bytes_per_iteration=round(slowest.h2d_bytes),
        d2h_bytes_per_iteration=round(slowest.d2h_bytes),
    )


def _slowest(gpus: list[GpuTotals]) -> dict[str, int | None]:
    """Return each policy's step; None where it does not fit one of the GPUs."""
    steps: dict[str, int | None] = {}
    for name in sorted(set.intersection(*(set(gpu.rivals_ns) for gpu in gpus))):
        times = [(gpu.rivals_ns[name], gpu.steps) for gpu in gpus]
        known = [round(ns / count) for ns, count in times if ns is not None]
        steps[name] = max(known) if len(known) == len(times) else None
    return steps
