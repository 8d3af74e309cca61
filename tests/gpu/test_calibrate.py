"""Calibrating a real GPU; how fast it is, no test can know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from transit.compiler import machine

pytestmark = pytest.mark.gpu

SAMPLE = Path(__file__).parents[2] / "traces" / "samples" / "gpt-medium-h200"
RunTransit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.usefixtures("room_for_managed_memory")
def test_a_profile_of_this_machine_serves_to_compile(
    run_transit: RunTransit, gpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "machine.json"
    measured = run_transit(["calibrate", "-o", path, "--json"], env=gpu_env)
    assert measured.returncode == 0, measured.stderr
    assert "simulated" not in measured.stderr
    profile = machine.load(str(path))
    assert profile.has_zero_copy
    # Whatever the machine: its own memory is faster than what is behind a link.
    link = profile.h2d_bytes_per_s
    assert profile.hbm_bytes_per_s > link
    assert profile.l2_bytes_per_s > link
    assert profile.zero_copy_read_bytes_per_s < profile.hbm_bytes_per_s
    assert profile.fault_h2d_bytes_per_s < link

    options = ["--machine", path, "--gpu-memory", "80%", "--json"]
    compiled = run_transit(["compile", SAMPLE, *options], env=gpu_env)
    assert compiled.returncode == 0, compiled.stderr
    assert json.loads(compiled.stdout)["machine"] == profile.name
