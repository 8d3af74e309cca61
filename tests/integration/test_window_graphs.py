"""Windows of a job that runs CUDA graphs, which are launched as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from windowed_plans import STEPS_JOB, Step, download, laps, scale

from transit.compiler import machine

LAPS = 12
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "4000"}
A, B, C = (0, 0, 4), (1, 0, 4), (2, 0, 1)
PIECES = (4, 4, 1)


def graph(*steps: Step) -> Step:
    return {"op": "capture", "steps": steps}


# One graph uses A, the other B, both use C.
ITERATION = [
    download(C),
    graph(scale(A, A), scale(C, C)),
    graph(scale(B, B), scale(C, C, 0.75)),
]


@dataclass(frozen=True)
class Compiled:
    plan: Path
    job: list[str | Path]
    plain_output: str

    def document(self) -> Any:
        return json.loads(self.plan.read_text())


@pytest.fixture(scope="module")
def compiled(
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    program, trace, plan = (folder / name for name in ("steps.json", "trace", "plan"))
    steps = laps(ITERATION, LAPS)
    program.write_text(json.dumps({"pieces": PIECES, "allocated": 3, "steps": steps}))
    job = [sys.executable, STEPS_JOB, program]
    plain = subprocess.run(job, env=simgpu_env, capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    recorded = run_transit(["record", "-o", trace, "--simulated-gpu", "--", *job])
    assert recorded.returncode == 0, recorded.stderr
    options = ["--policy", "auto", "--gpu-memory", "70%", "-o", plan]
    options += ["--machine", _machine_without_zero_copy(folder)]
    done = run_transit(["compile", trace, *options])
    assert done.returncode == 0, done.stderr
    return Compiled(plan, job, plain.stdout)


def _machine_without_zero_copy(folder: Path) -> Path:
    """Describe a machine on which memory that does not fit can only come and go."""
    profile = machine.load("h200").model_dump(mode="json")
    for way in ("read", "write", "both"):
        profile[f"zero_copy_{way}_bytes_per_s"] = None
    path = folder / "machine.json"
    path.write_text(json.dumps(profile))
    return path


def replay(
    run_transit: RunTransit, plan: Path, compiled: Compiled, env: Mapping[str, str]
) -> dict[str, Any]:
    """Check what the job's memory held; return the status of its process."""
    status = plan.with_name("status.json")
    options = ["--plan", plan, "--status", status, "--simulated-gpu", "--any-gpu"]
    done = run_transit(["replay", *options, "--", *compiled.job], env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == compiled.plain_output
    process: dict[str, Any]
    (process,) = json.loads(status.read_text())["processes"]
    assert process["locks"] == 1
    return process


def test_windows_are_between_graphs(
    compiled: Compiled,
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(compiled.plan.read_text())
    process = replay(run_transit, plan, compiled, simgpu_env)
    document = compiled.document()
    per_lap_bytes = document["summary"]["window_bytes"]
    assert per_lap_bytes > 0
    assert process["h2d_bytes"] >= LAPS // 2 * per_lap_bytes
    assert process["launches_planned"] > LAPS
    assert process["resident_peak_bytes"] <= document["gpu_memory_bytes"]


@pytest.mark.parametrize("write_back", [False, True])
def test_a_graph_may_use_what_the_plan_does_not_know(
    write_back: bool,
    compiled: Compiled,
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    """Another graph than the recorded one looks the same when it is launched."""
    value = compiled.document()
    window = {"issue": 0, "first": 0, "last": 0, "written": 0, "load": True}
    summary = value["summary"]
    (placed,) = value["ranks"][0]["allocations"][C[0]]["placements"]
    assert placed["placement"] == "resident"
    placed |= {
        "placement": "windowed",
        "windows": [window | {"write_back": write_back}],
    }
    summary["resident_bytes"] -= placed["bytes"]
    summary["window_bytes"] += placed["bytes"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(value))
    replay(run_transit, plan, compiled, simgpu_env | SLOW)
