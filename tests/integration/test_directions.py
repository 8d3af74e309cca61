"""Directions on the simulated GPU, from the job to the trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from conftest import RunTransit
from simulated_job import layers

from transit.traces.reader import Trace

JOB = Path(__file__).parents[1] / "pointer_array_job.py"
OPTIONS = ("record", "--simulated-gpu", "--iterations", "3", "--skip", "1")
POINTERS = 4  # ordinal


def test_read_and_written_memory_is_told_apart_in_all_iterations(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    command = [*OPTIONS, "-o", tmp_path / "trace"]
    result = run_transit([*command, "--", sys.executable, JOB], env=dict(simgpu_env))
    assert result.returncode == 0, result.stderr
    trace = Trace.open(tmp_path / "trace")
    purposes = trace.table(0, "iterations").column("purpose").to_pylist()
    assert purposes == ["timing"] * 3 + ["direction"]
    rows = [
        row
        for row in trace.table(0, "accesses").to_pylist()
        if row["source"] == "parameter"
    ]
    found = {(row["allocation_id"], row["direction"]) for row in rows}
    assert (POINTERS, "read") in found
    assert all(row["direction_source"] == "checksum" for row in rows), rows
    assert {d for a, d in found if a == POINTERS} == {"read"}


def test_directions_can_be_done_without(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    command = [*OPTIONS, "--no-directions", "-o", tmp_path / "trace"]
    result = run_transit([*command, "--", sys.executable, JOB], env=dict(simgpu_env))
    assert result.returncode == 0, result.stderr
    assert "could not be looked into" not in result.stderr
    iterations = Trace.open(tmp_path / "trace").table(0, "iterations")
    assert iterations["purpose"].to_pylist() == ["timing"] * 3


def test_a_job_without_marks_is_recorded_all_the_same_and_told(
    run_transit: RunTransit, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    command = ["record", "--simulated-gpu", "--audit", "-o", trace]
    result = run_transit([*command, "--", *layers(steps=3)])
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "looked into" in line]
    assert "none was marked" in line
    checks = Trace.open(trace).manifest.rank(0).checks
    assert checks.missed_inspections == ["audit", "direction"]


def test_a_recovered_recording_says_what_was_wanted(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    """As it does when it is converted at once."""
    kill = "import os; os.kill(os.getppid(), 9); os.kill(os.getpid(), 9)"
    work = (
        "import sys; from transit.examples import layers;"
        "sys.argv = ['layers', '--steps', '2', '--dim', '64', '--batch', '8'];"
        f"layers.main(); {kill}"
    )
    command = ["record", "--simulated-gpu", "-o", tmp_path / "trace"]
    run_transit([*command, "--", sys.executable, "-c", work], env=dict(simgpu_env))
    (run_dir,) = tmp_path.iterdir()
    result = run_transit(["record", "--recover", run_dir, "-o", tmp_path / "trace"])
    assert result.returncode == 0, result.stderr
    assert "none was marked" in result.stderr
