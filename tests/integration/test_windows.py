"""Record, compile with windows, replay: the numbers and the budget are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import RunTransit
from simulated_job import layers, parameter_hash, plain_hash

from transit.compiler.plan import Plan, load

STEPS = 8
SLOW = {"TRANSIT_SIM_SLOW_COPY_US": "3000"}


@dataclass(frozen=True)
class Recorded:
    trace: Path
    job: list[str]
    plain_hash: str


@pytest.fixture(scope="module")
def recorded(
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Recorded:
    trace = tmp_path_factory.mktemp("recorded") / "trace"
    job = layers(steps=STEPS)
    plain = plain_hash(job, simgpu_env)
    done = run_transit(["record", "-o", trace, "--simulated-gpu", "--", *job])
    assert done.returncode == 0, done.stderr
    return Recorded(trace, job, plain)


def compile_plan(
    run_transit: RunTransit, recorded: Recorded, path: Path, gpu_memory: str
) -> Plan:
    options = ["--policy", "auto", "--gpu-memory", gpu_memory]
    done = run_transit(["compile", recorded.trace, "-o", path, *options])
    assert done.returncode == 0, done.stderr
    return load(path)


def replay(
    run_transit: RunTransit,
    recorded: Recorded,
    plan: Path,
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Replay, check what the job found, and return the status of its process."""
    status = plan.with_name("status.json")
    options = ["--plan", plan, "--status", status, "--strict", "--force"]
    done = run_transit(
        ["replay", *options, "--simulated-gpu", "--", *recorded.job], env=env
    )
    assert done.returncode == 0, done.stderr
    assert parameter_hash(done.stdout) == recorded.plain_hash
    report = json.loads(status.read_text())
    assert report["problems"] == []
    (process,) = report["processes"]
    assert process["allocations_matched"] == report["allocations_planned"]
    return dict(process)


@pytest.mark.parametrize(("gpu_memory", "copies"), [("80%", "slow"), ("30%", "quick")])
def test_windows_keep_the_numbers_and_the_budget(
    gpu_memory: str,
    copies: str,
    recorded: Recorded,
    run_transit: RunTransit,
    simgpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    plan = compile_plan(run_transit, recorded, path, gpu_memory)
    assert plan.summary.window_bytes > 0
    env = simgpu_env | SLOW if copies == "slow" else simgpu_env
    process = replay(run_transit, recorded, path, env)
    assert process["gpu_peak_bytes"] <= plan.gpu_memory_bytes
    assert process["windowed_peak_bytes"] == plan.summary.window_bytes
    assert process["resident_bytes"] == process["windowed_bytes"] == 0
    assert process["h2d_bytes"] > 0
    assert process["d2h_bytes"] > 0
    assert process["transfer_failures"] == 0
    assert process["loads_without_room"] == 0
    assert process["locks"] == 1
    # All but what comes before the plan is recognised, and after the last step.
    followed = process["launches_planned"]
    assert followed > (STEPS - 3) * plan_length(plan)
    assert process["launches_elsewhere"] == process["launches_skipped"] == 0


def plan_length(plan: Plan) -> int:
    """Return how many calls submit the plan's iteration."""
    calls = plan.ranks[0].iteration.calls()
    assert calls is not None
    return len(calls.signature)
