"""Directions on the simulated GPU, from the job to the trace."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from conftest import RunTransit

from transit.traces.reader import Trace

JOB = Path(__file__).parents[1] / "pointer_array_job.py"
OPTIONS = ("record", "--simulated-gpu", "--iterations", "3", "--skip", "1")
POINTERS = 4  # ordinal


def test_read_and_written_memory_is_told_apart_in_all_iterations(
    run_transit: RunTransit, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    command = [*OPTIONS, "--directions", "-o", tmp_path / "trace"]
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
