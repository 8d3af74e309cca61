"""The example job, on the simulated GPU, under the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAYERS = Path(__file__).parents[1] / "examples" / "layers.py"
SMALL = ("--layers", "3", "--dim", "1024", "--batch", "8")


def layers(*, steps: int, check: bool = True) -> list[str]:
    """Return the command of the example job at a size that takes a second."""
    options = [*SMALL, "--steps", str(steps), "--check" if check else "--no-check"]
    return [sys.executable, str(LAYERS), *options]


def parameter_hash(stdout: str) -> str:
    """Return the hash of its parameters, which the job prints last."""
    last = json.loads(stdout.splitlines()[-1])
    assert last["checked"]
    return str(last["sha256"])


def plain_hash(job: Sequence[str], env: Mapping[str, str]) -> str:
    """Run the job without transit; return the hash of its parameters."""
    done = subprocess.run(job, env=env, capture_output=True, text=True, check=True)
    return parameter_hash(done.stdout)
