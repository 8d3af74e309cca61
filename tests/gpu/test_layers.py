"""The small cuda-python job on a real GPU: the PTX the simulated GPU also runs."""

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

JOB = [sys.executable, str(files("transit.examples") / "layers.py")]
RunTransit = Callable[..., subprocess.CompletedProcess[str]]


def last_line(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


def test_layers_train_the_same_under_zero_copy(
    backend: str, run_transit: RunTransit, gpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    plain = subprocess.run(
        JOB, env=gpu_env, capture_output=True, text=True, timeout=120
    )
    assert plain.returncode == 0, plain.stderr
    trace, plan = tmp_path / "trace", tmp_path / "plan.json"
    record = run_transit(["record", "-o", trace, "--", *JOB], env=gpu_env)
    assert record.returncode == 0, record.stderr
    assert last_line(record.stdout) == last_line(plain.stdout)
    budget = ["--gpu-memory", "80%", "--policy", "advise", "--json"]
    compiled = run_transit(["compile", trace, *budget, "-o", plan], env=gpu_env)
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["zero_copy_bytes"] > 0
    replay = run_transit(
        ["replay", "--plan", plan, "--backend", backend, "--strict", "--", *JOB],
        env=gpu_env,
    )
    assert replay.returncode == 0, replay.stderr
    assert last_line(replay.stdout) == last_line(plain.stdout)
