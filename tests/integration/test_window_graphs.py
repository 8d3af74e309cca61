"""Windows of a job that runs a CUDA graph, which is launched as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from simulated_job import layers, parameter_hash

STEPS = 12
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "4000"}


@dataclass(frozen=True)
class Compiled:
    plan: Path
    job: list[str]
    plain_hash: str

    def document(self) -> Any:
        return json.loads(self.plan.read_text())


@pytest.fixture(scope="module")
def compiled(
    run_transit: RunTransit, tmp_path_factory: pytest.TempPathFactory
) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    job = [*layers(steps=STEPS), "--graph"]
    options = ["-o", folder / "trace", "--simulated-gpu"]
    recorded = run_transit(["record", *options, "--", *job])
    assert recorded.returncode == 0, recorded.stderr
    plan = folder / "plan.json"
    options = ["-o", plan, "--policy", "auto", "--gpu-memory", "70%"]
    done = run_transit(["compile", folder / "trace", *options])
    assert done.returncode == 0, done.stderr
    return Compiled(plan, job, parameter_hash(recorded.stdout))


def replay(
    run_transit: RunTransit, plan: Path, job: list[str], env: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """Return the hash of the job's parameters, and the status of its process."""
    status = plan.with_name("status.json")
    options = ["--plan", plan, "--status", status, "--simulated-gpu", "--any-gpu"]
    done = run_transit(["replay", *options, "--", *job], env=env)
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(status.read_text())["processes"]
    return parameter_hash(done.stdout), process


def test_windows_are_between_graphs(
    compiled: Compiled,
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(compiled.plan.read_text())
    found, process = replay(run_transit, plan, compiled.job, simgpu_env)
    assert found == compiled.plain_hash
    assert process["locks"] == 1
    assert process["windowed_peak_bytes"] > 0
    assert process["launches_planned"] > STEPS
    assert process["resident_peak_bytes"] <= compiled.document()["gpu_memory_bytes"]


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
    for allocation in value["ranks"][0]["allocations"]:
        placed, *rest = allocation["placements"]
        if rest or placed["placement"] != "resident":
            continue
        placed |= {
            "placement": "windowed",
            "windows": [window | {"write_back": write_back}],
        }
        summary["resident_bytes"] -= placed["bytes"]
        summary["window_bytes"] += placed["bytes"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(value))
    found, process = replay(run_transit, plan, compiled.job, simgpu_env | SLOW)
    assert found == compiled.plain_hash
    assert process["locks"] == 1
