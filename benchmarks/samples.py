"""Predict the step of every policy for the sample traces, with less and less memory.

Needs no GPU: nothing is measured but the time that planning takes. Steps are those that
transit's cost model predicts, with the figures of one machine profile.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conversion import machine
from rich.console import Console
from rich.table import Table

from transit.compiler.compiler import compile_trace
from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.machine import DEFAULT_NAME, MachineProfile, load
from transit.compiler.policies import AUTO
from transit.errors import BudgetError
from transit.traces.reader import Trace

SAMPLES = Path(__file__).parents[1] / "traces" / "samples"
SHARES_PERCENT = (100, 90, 75, 60, 50, 40, 30)

Row = dict[str, Any]


def main() -> None:
    """Plan every sample with every budget and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="samples, separated by commas")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    known = sorted(path.parent.name for path in SAMPLES.glob("*/manifest.json"))
    names = options.only.split(",") if options.only else known
    profile = load(DEFAULT_NAME)
    samples = {name: predict_sample(SAMPLES / name, profile) for name in names}
    result = {
        "command": "python benchmarks/samples.py"
        + (f" --only {options.only}" if options.only else ""),
        "note": "steps are predicted by transit's cost model, not measured",
        "machine": machine(),
        "versions": {name: version(name) for name in ("numpy", "scipy")}
        | {"python": platform.python_version()},
        "profile": profile.model_dump(mode="json"),
        "samples": samples,
    }
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    for name, rows in samples.items():
        Console().print(table(name, rows))


def predict_sample(path: Path, profile: MachineProfile) -> list[Row]:
    """Plan a sample with each share of the memory that its job needs."""
    trace = Trace.open(path)
    peak_bytes = job_peak_bytes(trace)
    return [
        {"budget_percent": share} | predict(trace, profile, peak_bytes * share // 100)
        for share in SHARES_PERCENT
    ]


def predict(trace: Trace, profile: MachineProfile, budget_bytes: int) -> Row:
    """Return what every policy's step is predicted to be, in ms; None: does not fit."""
    began_s = time.monotonic()
    try:
        plan = compile_trace(
            trace, gpu_memory_bytes=budget_bytes, policy=AUTO, machine=profile
        )
    except BudgetError as error:
        return {"gpu_memory_bytes": budget_bytes, "error": str(error)}
    predicted = plan.prediction
    if predicted is None:
        raise SystemExit(f"{trace.path}: was not recorded on a {profile.gpu_name}")
    bound_ns = predicted.bound_step_ns or predicted.ideal_step_ns
    steps_ns = {AUTO: predicted.step_ns} | predicted.policies
    return {
        "gpu_memory_bytes": budget_bytes,
        "ideal_ms": predicted.ideal_step_ns / 1e6,
        "bound_ms": bound_ns / 1e6,
        "gap_percent": round(100 * (predicted.step_ns / bound_ns - 1), 2),
        "policies_ms": {
            name: None if ns is None else ns / 1e6 for name, ns in steps_ns.items()
        },
        "zero_copy_bytes": plan.summary.zero_copy_bytes,
        "window_bytes": plan.summary.window_bytes,
        "planning_s": round(time.monotonic() - began_s, 2),
    }


def table(name: str, rows: list[Row]) -> Table:
    """Return the steps of one sample in ms."""
    shown = Table(title=f"{name}: ms per step, predicted, not measured")
    planned = [row for row in rows if "error" not in row]
    policies = list(planned[0]["policies_ms"]) if planned else []
    columns = ("budget %", "ideal", "bound", "gap %", *policies, "planning s")
    for column in columns:
        shown.add_column(column, justify="right")
    for row in rows:
        budget = str(row["budget_percent"])
        if "error" in row:
            shown.add_row(budget, row["error"])
            continue
        steps = [row["policies_ms"][policy] for policy in policies]
        shown.add_row(
            budget,
            f"{row['ideal_ms']:.2f}",
            f"{row['bound_ms']:.2f}",
            f"{row['gap_percent']:.2f}",
            *("-" if step is None else f"{step:.2f}" for step in steps),
            f"{row['planning_s']:.1f}",
        )
    return shown


if __name__ == "__main__":
    main()
