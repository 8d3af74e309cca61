"""``transit compile --sweep``."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
from command_line import transit
from trace_factory import write_trace

from transit.traces.reader import Trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Make a trace whose machine is known."""
    path = write_trace(tmp_path / "trace")
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    profile["gpu_name"] = Trace.open(path).manifest.ranks[0].devices[0].name
    (path / "machine.json").write_text(json.dumps(profile))
    return path


def test_less_memory_never_makes_the_bound_shorter(trace: Path) -> None:
    done = transit("compile", trace, "--sweep", "--json")
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["sweep"]
    budgets = [point["gpu_memory_bytes"] for point in points]
    assert budgets == sorted(set(budgets), reverse=True)
    assert points[0]["share"] == pytest.approx(1.0)
    found = [p for p in points if p["predicted_step_ns"] is not None]
    assert found[0]["predicted_step_ns"] == found[0]["bound_step_ns"]
    bounds = [point["bound_step_ns"] for point in found]
    assert len(found) > 1
    assert bounds == sorted(bounds)
    assert all(p["predicted_step_ns"] >= p["bound_step_ns"] - 1 for p in found)


def test_the_table_says_that_nothing_was_measured(trace: Path) -> None:
    done = transit("compile", trace, "--sweep")
    assert "predicted" in done.stdout
    assert "not measured" in done.stdout


def test_a_profile_of_another_gpu_predicts_no_steps(trace: Path) -> None:
    done = transit("compile", trace, "--sweep", "--machine", "h200")
    assert done.returncode == 1
    assert "profile h200 is of another GPU" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sweep_takes_no_budget(trace: Path) -> None:
    done = transit("compile", trace, "--sweep", "--gpu-memory", "80%")
    assert done.returncode == 2
    assert "--sweep takes no --gpu-memory" in done.stderr
