"""Run a benchmark's commands within its time and read what they print."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# By name, found through PATH: results are published, and hold no paths of a machine.
PYTHON = Path(sys.executable).name
GRACE_S = 15


class PartError(Exception):
    """A part of a benchmark could not be measured; the others go on."""


@dataclass
class Runner:
    """Runs commands one after another until the time is used up."""

    deadline: float
    commands: list[str] = field(default_factory=list)

    def run(self, command: Sequence[str], *, timeout: float) -> str:
        """Return the standard output of `command`.

        Raises
        ------
        PartError
            It is not there, failed, or was not done within `timeout` seconds or before
            the deadline.
        """
        self.commands.append(shlex.join(command))
        allowed = min(timeout, self.deadline - time.monotonic())
        if allowed < 1:
            raise PartError("no time left")
        print(f"+ {self.commands[-1]}", file=sys.stderr, flush=True)
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise PartError(str(error)) from error
        try:
            output, errors = process.communicate(timeout=allowed)
        except subprocess.TimeoutExpired:
            output, errors = end(process)
            raise PartError(
                f"not done in {allowed:.0f} s: {last_lines(output + errors)}"
            ) from None
        except BaseException:
            end(process)
            raise
        if process.returncode:
            raise PartError(f"exit code {process.returncode}: {last_lines(errors)}")
        return output


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a command and everything it started, gently at first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=GRACE_S)
    return "", "could not be ended"


def last_lines(text: str) -> str:
    """Return the end of a command's output, enough to see why it failed."""
    return text.strip()[-1500:]


def environment() -> Mapping[str, str]:
    """Return this environment, in which PYTHON is the interpreter that runs this."""
    folder = str(Path(sys.executable).parent)
    return os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@dataclass(frozen=True, slots=True)
class Steps:
    """The step lines of one run of a PyTorch example."""

    lines: list[dict[str, Any]]
    events: dict[str, int] = field(default_factory=dict)
    """How many the profiler collected, by what it was asked for."""

    @classmethod
    def parse(cls, output: str) -> Steps:
        """Read the step lines among everything the job printed."""
        lines = [line for line in output.splitlines() if line.startswith('{"step"')]
        if not lines:
            raise PartError("the job printed no steps")
        profiles = [x for x in output.splitlines() if x.startswith('{"profiled"')]
        events = {x["profiled"]: x["events"] for x in map(json.loads, profiles)}
        return cls([json.loads(line) for line in lines], events)

    @property
    def losses(self) -> list[str]:
        """Every loss, exactly."""
        return [line["loss_hex"] for line in self.lines]

    def median_ms(self, first: int, stop: int | None = None) -> float:
        """Return the median step time of steps `first` to `stop`."""
        return statistics.median(float(line["ms"]) for line in self.lines[first:stop])

    def summary(self, first: int) -> dict[str, Any]:
        """Return what is kept of a run; step times count from step `first`."""
        last = self.lines[-1]
        return {
            "steps": len(self.lines),
            "median_step_ms": self.median_ms(first),
            "step_ms": [line["ms"] for line in self.lines],
            "peak_bytes": last["peak_bytes"],
            "reserved_bytes": last["reserved_bytes"],
        }
