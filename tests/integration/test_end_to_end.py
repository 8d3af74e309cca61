"""Record, compile and replay on the simulated GPU; the numbers must not change."""

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
from transit.traces.reader import Trace

STEPS = 6


@dataclass(frozen=True)
class Recorded:
    trace: Path
    plain_hash: str
    recorded_hash: str
    stderr: str


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
    return Recorded(trace, plain, parameter_hash(done.stdout), done.stderr)


def compile_plan(
    run_transit: RunTransit, trace: Path, path: Path, *options: str
) -> Plan:
    done = run_transit(["compile", trace, "-o", path, *options])
    assert done.returncode == 0, done.stderr
    return load(path)


def replay(
    run_transit: RunTransit, plan: Path, backend: str, *options: str
) -> tuple[str, dict[str, Any]]:
    status = plan.with_name(f"status-{backend}.json")
    done = run_transit(
        [
            *("replay", "--plan", plan, "--backend", backend, "--status", status),
            *("--strict", "--simulated-gpu", *options, "--", *layers(steps=STEPS)),
        ]
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return parameter_hash(done.stdout), json.loads(status.read_text())


def test_recording_leaves_the_numbers_alone(recorded: Recorded) -> None:
    assert recorded.recorded_hash == recorded.plain_hash


def test_recording_is_complete(recorded: Recorded) -> None:
    manifest = Trace.open(recorded.trace).manifest
    assert manifest.ended == "completed"
    (rank,) = manifest.ranks
    assert rank.kernel_launches > 0
    assert rank.kernel_launches == rank.kernel_activities
    assert rank.kernel_launches == rank.kernel_launches_with_access
    assert rank.launches_seen_by_hooks == rank.launches_seen_by_cupti
    assert rank.losses.dropped == rank.losses.torn == 0
    assert "next: transit compile" in recorded.stderr


def test_recording_leaves_only_the_trace(recorded: Recorded) -> None:
    assert list(recorded.trace.parent.iterdir()) == [recorded.trace]


@pytest.mark.parametrize("backend", ["vmm", "uvm"])
@pytest.mark.parametrize(
    ("policy", "gpu_memory"), [("reuse", "70%"), ("advise", "50%"), ("reuse", "100%")]
)
def test_replay_enacts_the_plan_and_keeps_the_numbers(
    backend: str,
    policy: str,
    gpu_memory: str,
    recorded: Recorded,
    run_transit: RunTransit,
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.json"
    options = ["--policy", policy, "--gpu-memory", gpu_memory]
    plan = compile_plan(run_transit, recorded.trace, path, *options)
    assert bool(plan.summary.zero_copy_bytes) == (gpu_memory != "100%")

    found_hash, status = replay(run_transit, path, backend)
    assert found_hash == recorded.plain_hash
    assert status["problems"] == []
    (process,) = status["processes"]
    assert process["state"] == "replaying"
    assert process["backend"] == backend
    assert process["allocations_matched"] == status["allocations_planned"]
    assert process["allocations_unmatched"] == 0
    # The job frees at its end: all of its allocations were alive at once.
    assert process["zero_copy_peak_bytes"] == plan.summary.zero_copy_bytes
    assert process["resident_peak_bytes"] == plan.summary.resident_bytes
    assert process["resident_peak_bytes"] <= plan.gpu_memory_bytes
    assert process["resident_bytes"] == process["zero_copy_bytes"] == 0
    assert process["kernel_launches"] > 0


def test_show_knows_the_kernels(recorded: Recorded, run_transit: RunTransit) -> None:
    done = run_transit(["show", recorded.trace, "--json"])
    assert done.returncode == 0, done.stderr
    names = {kernel["name"] for kernel in json.loads(done.stdout)["kernels"]}
    assert {"matmul", "adam", "tanh_forward"} <= names


def test_a_plan_that_needs_more_host_memory_is_refused(
    recorded: Recorded, run_transit: RunTransit, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    plan = compile_plan(run_transit, recorded.trace, path, "--gpu-memory", "70%")
    options = ["replay", "--plan", path, "--simulated-gpu", "--host-memory"]
    need_bytes = plan.summary.zero_copy_bytes
    enough = run_transit([*options, str(need_bytes), "--", *layers(steps=2)])
    assert enough.returncode == 0, enough.stderr
    assert "of host memory of " in enough.stderr
    little = run_transit([*options, str(need_bytes - 1), "--", *layers(steps=2)])
    assert little.returncode == 1
    assert "give more --host-memory" in little.stderr
    assert little.stdout == ""


def test_a_larger_job_than_recorded_is_noticed(
    recorded: Recorded, run_transit: RunTransit, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    compile_plan(run_transit, recorded.trace, path, "--gpu-memory", "70%")
    job = [*layers(steps=2), "--layers", "4"]
    done = run_transit(["replay", "--plan", path, "--simulated-gpu", "--", *job])
    assert done.returncode == 0, done.stderr  # the job itself is fine
    assert "not as planned" in done.stderr
    parameter_hash(done.stdout)

    strict = run_transit(
        ["replay", "--plan", path, "--strict", "--simulated-gpu", "--", *job]
    )
    assert strict.returncode == 1


def test_demo(run_transit: RunTransit, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = run_transit(["demo", "--keep", folder])
    assert done.returncode == 0, done.stderr
    assert "Same parameters, bit for bit" in done.stdout
    assert "which adds" not in done.stderr  # a simulated GPU has no speed
    assert "warning" not in done.stderr
    assert "costs least on the link" in done.stdout  # the plan is shown
    assert load(folder / "plan.json").summary.zero_copy_bytes > 0
    for backend in ("vmm", "uvm"):
        status = json.loads((folder / f"status-{backend}.json").read_text())
        assert status["problems"] == []


def test_demo_says_nothing_else_when_quiet(run_transit: RunTransit) -> None:
    done = run_transit(["--quiet", "demo"])
    assert done.returncode == 0
    assert "Same parameters, bit for bit" in done.stdout
    assert done.stderr == ""


def test_doctor_finds_the_simulated_gpu(run_transit: RunTransit) -> None:
    done = run_transit(["doctor", "--simulated-gpu", "--json"])
    findings = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
    for check in ("libraries", "shim loads", "gpu", "cupti"):
        assert findings[check]["verdict"] == "ok", findings[check]
    assert "simulated" in findings["gpu"]["detail"]
    assert done.returncode == 0
