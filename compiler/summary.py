"""The short account of a plan that `transit compile --json` prints."""

from __future__ import annotations

from typing import Any

from transit.compiler.plan import Plan

VERSION = 1


def summarize(plan: Plan) -> dict[str, Any]:
    """Return the plan's totals; what is not exact is named ``estimated_``."""
    summary = plan.summary
    return {
        "version": VERSION,
        "policy": plan.policy,
        "machine": plan.machine.name,
        "gpu_memory_bytes": plan.gpu_memory_bytes,
        "fits_without_spilling": summary.job_peak_bytes <= plan.gpu_memory_bytes,
        "ranks": len(plan.ranks),
        # Ranks may differ (pipeline stages do): the longest iteration.
        "iteration_launches": max(rank.iteration.launches for rank in plan.ranks),
        "iteration_confidence": min(rank.iteration.confidence for rank in plan.ranks),
        "iteration_found_by": plan.ranks[0].iteration.found_by,
        **summary.model_dump(),
    }
