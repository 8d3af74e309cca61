"""Runs a PyTorch example as its user would, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from typing import Any

TIMEOUT_S = 300
LAUNCHER = ("-m", "torch.distributed.run")  # what torchrun is
# The models are tiny, and threads that wait for each other keep the cores from others.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def lines_of(script: str, *options: str, processes: int = 0) -> list[dict[str, Any]]:
    """Return what the example printed; with `processes`, under torchrun."""
    path = str(resources.files("transit.examples") / script)
    launcher = [*LAUNCHER, f"--nproc-per-node={processes}"] if processes else []
    command = [sys.executable, *launcher, path, "--device", "cpu", *options]
    done = subprocess.run(
        command,
        env=os.environ | ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def steps_of(script: str, *options: str, processes: int = 0) -> list[dict[str, Any]]:
    """Return the lines about steps."""
    lines = lines_of(script, *options, processes=processes)
    return [line for line in lines if "step" in line]
