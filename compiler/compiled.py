"""What compiling leads to: the plan, and what is known beside it of each GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from transit.compiler.choice import Choice
from transit.compiler.course import Course
from transit.compiler.plan import PIECE_BYTES, Plan
from transit.compiler.problem import Problem
from transit.compiler.totals import GpuTotals


@dataclass(frozen=True)
class GpuResult:
    """What was found for one GPU of one rank.

    `in_place_bytes` is what an iteration moves over the link without windows: by the
    ordinal of an allocation, offsets of ranges in it and their bytes.
    """

    rank: int
    device: int
    totals: GpuTotals
    course: Course
    in_place_bytes: dict[int, list[tuple[int, float]]]

    @classmethod
    def of(
        cls,
        rank: int,
        device: int,
        problem: Problem,
        choice: Choice,
        rivals_ns: dict[str, float | None],
        steps: int,
    ) -> Self:
        """Take it from a choice, as `GpuTotals.of` does."""
        regions, ordinal = problem.regions, problem.allocations.ordinal
        in_place_bytes: dict[int, list[tuple[int, float]]] = {}
        for chosen in choice.ranges:
            if chosen.in_place_bytes:
                first = int(regions.first_piece[chosen.region]) + chosen.first_piece
                owner = int(ordinal[regions.allocation[chosen.region]])
                moved = first * PIECE_BYTES, chosen.in_place_bytes
                in_place_bytes.setdefault(owner, []).append(moved)
        totals = GpuTotals.of(problem, choice, rivals_ns, steps)
        return cls(rank, device, totals, choice.course, in_place_bytes)


@dataclass(frozen=True)
class Compiled:
    """A plan, and each GPU of the first of every group of ranks that do the same."""

    plan: Plan
    gpus: list[GpuResult]
