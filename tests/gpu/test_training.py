"""A real PyTorch training job, recorded and replayed on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")

JOB = [
    sys.executable,
    str(files("transit.examples") / "train_gpt.py"),
    *("--preset", "medium", "--batch", "2", "--steps", "8", "--deterministic"),
]
TIMEOUT_S = 300
RunTransit = Callable[..., subprocess.CompletedProcess[str]]


def losses(output: str) -> list[str]:
    steps = [line for line in output.splitlines() if line.startswith('{"step"')]
    return [json.loads(line)["loss_hex"] for line in steps]


@pytest.fixture(scope="module")
def plain_losses(gpu_env: Mapping[str, str]) -> list[str]:
    done = subprocess.run(
        JOB, env=gpu_env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return losses(done.stdout)


@pytest.fixture(scope="module")
def recorded(
    gpu_env: Mapping[str, str],
    run_transit: RunTransit,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[str]]:
    trace = tmp_path_factory.mktemp("recorded") / "trace"
    done = run_transit(
        ["record", "-o", trace, "--skip", "2", "--iterations", "4", "--", *JOB],
        env=gpu_env,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return trace, losses(done.stdout)


def compile_plan(
    run_transit: RunTransit, env: Mapping[str, str], trace: Path, budget: str
) -> tuple[Path, dict[str, Any]]:
    plan = trace.parent / f"plan-{budget.rstrip('%')}.json"
    done = run_transit(
        ["compile", trace, "--gpu-memory", budget, "-o", plan, "--force", "--json"],
        env=env,
    )
    assert done.returncode == 0, done.stderr
    return plan, json.loads(done.stdout)


def test_recording_changes_no_loss_and_misses_no_launch(
    recorded: tuple[Path, list[str]], plain_losses: list[str]
) -> None:
    trace, recorded_losses = recorded
    assert recorded_losses == plain_losses
    (rank,) = json.loads((trace / "manifest.json").read_text())["ranks"]
    assert rank["kernel_launches"] == rank["kernel_activities"] > 0
    assert rank["kernel_launches_with_access"] >= 0.99 * rank["kernel_launches"]


@pytest.mark.parametrize("budget", ["100%", "80%"])
def test_replay_keeps_the_losses_and_the_budget(
    budget: str,
    backend: str,
    recorded: tuple[Path, list[str]],
    plain_losses: list[str],
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    plan, summary = compile_plan(run_transit, gpu_env, recorded[0], budget)
    assert (summary["zero_copy_bytes"] > 0) == (budget == "80%")
    status_file = tmp_path / "status.json"
    options = ["--plan", plan, "--backend", backend, "--status", status_file]
    done = run_transit(
        ["replay", *options, "--strict", "--", *JOB], env=gpu_env, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == plain_losses
    status = json.loads(status_file.read_text())
    (process,) = status["processes"]
    assert process["state"] == "replaying"
    assert process["allocations_unmatched"] == 0
    assert process["zero_copy_peak_bytes"] == summary["zero_copy_bytes"]
    assert process["gpu_peak_bytes"] <= summary["gpu_memory_bytes"]


def test_a_compiled_model_trains_the_same(
    backend: str,
    recorded: tuple[Path, list[str]],
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
) -> None:
    """A plan of the eager job: what does not match stays resident, and is right."""
    plan, _ = compile_plan(run_transit, gpu_env, recorded[0], "100%")
    job = [*JOB, "--compile"]
    plain = subprocess.run(
        job, env=gpu_env, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert plain.returncode == 0, plain.stderr
    done = run_transit(
        ["replay", "--plan", plan, "--backend", backend, "--", *job],
        env=gpu_env,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == losses(plain.stdout)


@pytest.mark.parametrize("options", [[], ["--prefetch"]], ids=["between work", "ahead"])
def test_paging_keeps_losses_and_budget(
    options: list[str],
    plain_losses: list[str],
    run_transit: RunTransit,
    gpu_env: Mapping[str, str],
    tmp_path: Path,
) -> None:
    status = tmp_path / "status.json"
    arguments = ["--gpu-memory", "6GiB", "--status", status, *options]
    done = run_transit(["run", *arguments, "--", *JOB], env=gpu_env, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert losses(done.stdout) == plain_losses
    report = json.loads(status.read_text())
    assert report["problems"] == []
    (process,) = report["processes"]
    assert process["h2d_bytes"] > 0
    assert process["gpu_peak_bytes"] <= report["gpu_memory_bytes"]
