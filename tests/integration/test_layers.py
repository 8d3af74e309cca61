"""The example job: right numbers pass, wrong ones do not, and a run can be repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transit.examples import layers

SCRIPT = Path(layers.__file__)


def run_layers(
    env: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_job_learns_passes_its_check_and_repeats(simgpu_env: Mapping[str, str]) -> None:
    options = "--layers=2", "--dim=48", "--batch=40", "--steps=60"
    runs = [run_layers(simgpu_env, *options) for _ in range(2)]
    for run in runs:
        assert run.returncode == 0, run.stderr
    steps = [json.loads(line) for line in runs[0].stdout.splitlines()]
    summary = steps.pop()
    assert summary["checked"] is True
    assert [step["step"] for step in steps] == list(range(60))
    assert steps[-1]["loss"] < 0.75 * steps[0]["loss"]
    assert runs[1].stdout.splitlines()[-1] == runs[0].stdout.splitlines()[-1]


def test_a_graph_gives_the_same_numbers(simgpu_env: Mapping[str, str]) -> None:
    options = "--layers=2", "--dim=48", "--batch=16", "--steps=6"
    runs = [run_layers(simgpu_env, *options, *more) for more in ([], ["--graph"])]
    for run in runs:
        assert run.returncode == 0, run.stderr
    eager, graph = (
        [json.loads(line) for line in run.stdout.splitlines()] for run in runs
    )
    assert graph.pop() == eager.pop()
    assert [step["loss"] for step in graph] == [step["loss"] for step in eager]


@pytest.mark.parametrize("option", ["--layers=0", "--steps=-1", "--dim=x"])
def test_impossible_sizes_are_refused(
    simgpu_env: Mapping[str, str], option: str
) -> None:
    run = run_layers(simgpu_env, option)
    assert run.returncode == 2
    assert "Traceback" not in run.stderr


def small_run() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((32, 32), np.float32) / 6 for _ in range(3)]
    batches = [rng.standard_normal((8, 32), np.float32) for _ in range(4)]
    return [weight.astype(np.float32) for weight in weights], batches


def test_check_accepts_rounding() -> None:
    weights, batches = small_run()
    losses, state = layers.reference(weights, batches)
    rounded = [tensor * np.float32(1 + 1e-6) for tensor in state[1:]]
    nearly = [loss * (1 + 1e-6) for loss in losses]
    assert layers.mismatch(weights, batches, nearly, [state[0], *rounded]) is None


def test_check_sees_one_row_that_missed_the_last_update() -> None:
    weights, batches = small_run()
    losses, state = layers.reference(weights, batches)
    _, before = layers.reference(weights, batches[:-1])
    state[3][5] = before[3][5]
    problem = layers.mismatch(weights, batches, losses, state)
    assert problem is not None
    assert "layer 1: weight" in problem


def test_check_sees_nan_and_a_wrong_loss() -> None:
    weights, batches = small_run()
    losses, state = layers.reference(weights, batches)
    problem = layers.mismatch(weights, batches, [*losses[:-1], float("nan")], state)
    assert problem is not None
    assert problem.startswith("step 3")
    state[8][0, 0] = np.nan
    problem = layers.mismatch(weights, batches, losses, state)
    assert problem is not None
    assert "layer 2: second moment" in problem
