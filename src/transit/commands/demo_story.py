"""The demonstration: the three commands on a small job, told as it happens."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import textwrap
from importlib import resources
from pathlib import Path
from typing import Any

from transit.commands.show import show
from transit.errors import TransitError
from transit.runtime import job
from transit.runtime.simulated import simulated_variables
from transit.units import format_bytes

log = logging.getLogger(__name__)

GPU_MEMORY = "70%"
BACKENDS = ("vmm", "uvm")
PLAN_ROWS = 5
COMMAND_COLUMNS = 70


def tell(folder: Path) -> None:
    """Run the job plainly, recorded and replayed; compare its parameters."""
    script = str(resources.files("transit.examples").joinpath("layers.py"))
    print(
        "A small training job, four layers with Adam, on a simulated GPU. Its memory\n"
        "and its numbers are real, computed on the CPU; its speed means nothing, so\n"
        "none is shown."
    )
    print("\n1. The job as it is:")
    plain = _run([sys.executable, script], shown="python layers.py", folder=folder)
    print(f"   trained; parameters {plain[:16]}")

    print("\n2. Record what its launches touch (not which way: that takes iterations,")
    print("   which only PyTorch jobs mark of themselves):")
    options = ["-o", "trace", "--no-directions", "--simulated-gpu"]
    _transit(folder, "record", *options, script=script)

    print(f"\n3. Compile a plan for {GPU_MEMORY} of the memory it needs:")
    _transit(folder, "compile", "trace", "--gpu-memory", GPU_MEMORY, "-o", "plan.json")

    print("\n4. Look at the plan:")
    _print_command(f"transit show plan.json --rows {PLAN_ROWS}")
    show(folder / "plan.json", rows=PLAN_ROWS)

    for number, backend in enumerate(BACKENDS, start=5):
        print(f"\n{number}. Replay it with that plan, backend {backend}:")
        _replay(folder, backend, script, plain)
    print(
        "\nSame parameters, bit for bit, with part of the memory on the host.\n"
        "On a machine with a GPU: transit record -o trace/ -- python train.py"
    )


def _replay(folder: Path, backend: str, script: str, expected: str) -> None:
    status = f"status-{backend}.json"
    arguments = ["--plan", "plan.json", "--backend", backend, "--status", status]
    found = _transit(
        folder, "replay", *arguments, "--strict", "--simulated-gpu", script=script
    )
    if found != expected:
        raise TransitError(
            f"the job's parameters differ under the {backend} backend: {found[:16]} "
            f"instead of {expected[:16]}; please report this"
        )
    done: dict[str, Any] = json.loads((folder / status).read_text())["processes"][0]
    print(
        f"   parameters {found[:16]}, the same; "
        f"{format_bytes(done['resident_peak_bytes'])} were on the GPU and "
        f"{format_bytes(done['zero_copy_peak_bytes'])} on the host"
    )


def _transit(folder: Path, *arguments: str, script: str | None = None) -> str:
    command = ["transit", *arguments]
    quiet = [] if log.isEnabledFor(logging.INFO) else ["--quiet"]
    actual = [sys.executable, "-m", "transit", *quiet, *arguments]
    if script is None:
        return _run(actual, shown=shlex.join(command), folder=folder)
    shown = f"{shlex.join(command)} -- python layers.py"
    return _run([*actual, "--", sys.executable, script], shown=shown, folder=folder)


def _run(command: list[str], *, shown: str, folder: Path) -> str:
    """Run a command, and return the hash that the job printed last, if it did."""
    _print_command(shown)
    done = subprocess.run(
        command,
        cwd=folder,
        env=_clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise TransitError(
            f"the demo stopped: `{shown}` {job.describe_exit(done.returncode)}; "
            "transit doctor may know why"
        )
    last_line = done.stdout.strip().splitlines()[-1:]
    if not last_line or "sha256" not in last_line[0]:
        return ""
    return str(json.loads(last_line[0])["sha256"])


def _print_command(command: str) -> None:
    lines = textwrap.wrap(
        command, COMMAND_COLUMNS, break_long_words=False, break_on_hyphens=False
    )
    print("   $ " + " \\\n       ".join(lines), flush=True)


def _clean_environment() -> dict[str, str]:
    """Leave out the user's settings for their own jobs; add the simulated GPU."""
    kept = ("TRANSIT_LIB_DIR", "TRANSIT_LOG")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TRANSIT_") or name in kept
    }
    return environment | simulated_variables()
