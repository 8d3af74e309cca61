"""The benchmark that predicts the sample traces' steps."""

from __future__ import annotations

import samples
from rich.console import Console

from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.machine import load
from transit.traces.reader import Trace

TRACE = samples.SAMPLES / "gpt-medium-h200"


def test_with_all_its_memory_a_step_is_ideal_and_little_memory_is_an_error() -> None:
    trace, profile = Trace.open(TRACE), load("h200")
    peak_bytes = job_peak_bytes(trace)
    whole = samples.predict(trace, profile, peak_bytes)
    assert whole["policies_ms"]["auto"] == whole["ideal_ms"] == whole["bound_ms"]
    assert whole["gap_percent"] == 0
    assert whole["window_bytes"] == 0
    little = samples.predict(trace, profile, peak_bytes // 100)
    assert "--gpu-memory" in little["error"]
    rows = [{"budget_percent": 100} | whole, {"budget_percent": 1} | little]
    console = Console(width=200, record=True)
    console.print(samples.table("gpt", rows))
    assert "predicted, not measured" in console.export_text()
