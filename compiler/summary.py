"""The short account of a plan that `transit compile --json` prints."""

from __future__ import annotations

from typing import Any

from transit.compiler.plan import Plan, Prediction

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
        "ranks": len(plan.rank_numbers),
        # Ranks may differ (pipeline stages do): the longest iteration.
        "iteration_launches": max(rank.iteration.launches for rank in plan.ranks),
        "iteration_steps": max(rank.iteration.steps for rank in plan.ranks),
        "iteration_confidence": min(rank.iteration.confidence for rank in plan.ranks),
        "iteration_found_by": plan.ranks[0].iteration.found_by,
        **summary.model_dump(),
        **_predictions(plan.prediction),
    }


def _predictions(prediction: Prediction | None) -> dict[str, Any]:
    """Return what is expected of a step; null where nothing is known."""
    if prediction is None:
        names = ("predicted_step_ms", "bound_step_ms", "gap_percent", "ideal_step_ms")
        return {name: None for name in (*names, "policies", "h2d_bytes", "d2h_bytes")}
    gap = prediction.gap
    return {
        "predicted_step_ms": _ms(prediction.step_ns),
        "bound_step_ms": _ms(prediction.bound_step_ns),
        "gap_percent": None if gap is None else round(gap * 100, 2),
        "ideal_step_ms": _ms(prediction.ideal_step_ns),
        "policies": {name: _ms(ns) for name, ns in prediction.policies.items()},
        "h2d_bytes": prediction.h2d_bytes_per_iteration,
        "d2h_bytes": prediction.d2h_bytes_per_iteration,
    }


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e6
