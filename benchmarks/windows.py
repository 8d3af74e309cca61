"""Measure replays whose memory comes and goes, beside the job by itself.

    python benchmarks/windows.py --output benchmarks/results/windows-h200.json

Each part is one job: examples/train_gpt.py in deterministic mode, recorded once, then
under plans for shares of the memory it needs, with a run by itself before each. --only
measures some parts again and keeps the rest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import parts
from parts import Benchmark, Result
from runner import PYTHON, Steps

# Of the first ones, some are gone before the job is found in the plan's iteration.
WARM_UP_STEPS = 7
PLAIN_STEPS = 8
PLAIN_WARM_UP_STEPS = 2


@dataclass(frozen=True)
class Job:
    """A training job, the shares of its memory, and how long one of its runs may be."""

    options: tuple[str, ...]
    shares: tuple[int, ...]
    timeout_s: float

    def command(self, steps: int) -> list[str]:
        """Return its command for so many steps."""
        script = [PYTHON, "examples/train_gpt.py", "--deterministic", *self.options]
        return [*script, "--steps", str(steps)]


JOBS = {
    "medium-8": Job(("--preset", "medium"), (75, 60, 50), 60),
    "medium-32": Job(("--preset", "medium", "--batch", "32"), (75, 60, 50), 90),
    "large": Job(("--preset", "large"), (60, 50, 30), 150),
}


class Windows(Benchmark):
    """The benchmark's parts, in the order they are run."""

    def measure(self, name: str) -> Result:
        """Record a job, and replay it under a plan for each share of its memory."""
        job = JOBS[name]
        self.transit(
            "record", "-o", self.work / name, "--iterations", "3", "--exit-after",
            "--force", "--", *job.command(PLAIN_STEPS), timeout=job.timeout_s,
        )  # fmt: skip
        result: Result = {}
        plains = []
        for share in job.shares:
            plains.append(self.run_plain(job))
            result[f"{share} %"] = self.replay(name, share, plains[-1].losses)
        plain_ms = [plain.median_ms(PLAIN_WARM_UP_STEPS) for plain in plains]
        return {
            "plain_median_step_ms": statistics.median(plain_ms),
            "plain": [plain.summary(PLAIN_WARM_UP_STEPS) for plain in plains],
            **result,
        }

    def run_plain(self, job: Job) -> Steps:
        """Run the job without transit."""
        command = job.command(PLAIN_STEPS)
        return Steps.parse(self.runner.run(command, timeout=job.timeout_s))

    def replay(self, name: str, share: int, losses: list[str]) -> Result:
        """Compile and replay; compare as many losses as there are of both."""
        job, plan = JOBS[name], self.work / f"{name}-{share}.json"
        compiled = self.transit(
            "compile", self.work / name, "--policy", "auto", "--gpu-memory",
            f"{share}%", "-o", plan, "--force", "--json", timeout=300,
        )  # fmt: skip
        status = plan.with_suffix(".status")
        output = self.transit(
            "replay", "--plan", plan, "--try-windows", "--status", status, "--force",
            "--", *job.command(WARM_UP_STEPS + 5), timeout=job.timeout_s,
        )  # fmt: skip
        run, predicted = Steps.parse(output), json.loads(compiled)
        step_ms = run.median_ms(WARM_UP_STEPS)
        return {
            **run.summary(WARM_UP_STEPS),
            "losses_identical": run.losses[: len(losses)] == losses,
            "predicted_step_ms": predicted["predicted_step_ms"],
            "bound_step_ms": predicted["bound_step_ms"],
            "over_bound": step_ms / predicted["bound_step_ms"],
            "gpu_memory_bytes": predicted["gpu_memory_bytes"],
            "status": json.loads(status.read_text()),
        }


PARTS: dict[str, Callable[[Windows], Result]] = {
    "machine": Windows.machine,
    **{name: partial(Windows.measure, name=name) for name in JOBS},
}


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = parts.create_parser(__doc__, PARTS, minutes=20)
    return parts.parse_arguments(parser, PARTS)


if __name__ == "__main__":
    sys.exit(parts.measure("windows", Windows, PARTS, parse_arguments()))
