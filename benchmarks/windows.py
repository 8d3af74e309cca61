"""Measure replays whose memory comes and goes, beside the job by itself.

    python benchmarks/windows.py --output benchmarks/results/windows-h200.json

Each part is one job: an example in deterministic mode, recorded once, then under plans
for shares of the memory it needs, with a run by itself before each. Parts named paging
have no plan, and the memory of an earlier part's. --only measures some parts again and
keeps the rest.
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

PLAIN_WARM_UP_STEPS = 2
MEASURED_STEPS = 5


@dataclass(frozen=True)
class Job:
    """A training job, the shares of its memory, and how long one of its runs may be.

    Of its first steps some are gone before it is found in the plan's iteration:
    `warm_up_steps` do not count.
    """

    options: tuple[str, ...]
    shares: tuple[int, ...]
    timeout_s: float
    script: str = "train_gpt.py"
    record: tuple[str, ...] = ("--iterations", "3")
    warm_up_steps: int = 7

    def command(self) -> list[str]:
        """Return its command."""
        script = [PYTHON, f"examples/{self.script}", "--deterministic", *self.options]
        return [*script, "--steps", str(self.warm_up_steps + MEASURED_STEPS)]


MEDIUM = ("--preset", "medium")
LARGE = ("--preset", "large")
JOBS = {
    "medium-8": Job(MEDIUM, (75, 60, 50), 60),
    "medium-32": Job((*MEDIUM, "--batch", "32"), (75, 60, 50), 90),
    "large": Job(LARGE, (60, 50, 30), 150),
    "large-32-micro-batches": Job(
        (*LARGE, "--micro-batches", "32"), (50,), 300, warm_up_steps=4
    ),
    "compiled": Job((*MEDIUM, "--compile"), (70,), 120),
    "mixture-of-experts": Job(
        MEDIUM, (70,), 120, "train_moe.py", record=("--iterations", "3", "--audit")
    ),
    # Its allocator needs three steps to go around.
    "convolutions": Job(
        *(MEDIUM, (70,), 60, "train_conv.py"),
        record=("--iterations", "12"),
        warm_up_steps=30,
    ),
}
PAGED_JOB, PAGED_SHARE = "medium-32", "75 %"
PAGED_TIMEOUT_S = 150
PAGING = {"paging": (), "paging-prefetch": ("--prefetch",)}


class Windows(Benchmark):
    """The benchmark's parts, in the order they are run."""

    def measure(self, name: str) -> Result:
        """Record a job, and replay it under a plan for each share of its memory.

        First it runs by itself: torch.compile keeps what the next run then does not
        allocate memory for.
        """
        job = JOBS[name]
        result: Result = {}
        plains = []
        for share in job.shares:
            plains.append(self.run_plain(job))
            if not result:
                self.record(name)
            result[f"{share} %"] = self.replay(name, share, plains[-1].losses)
        plain_ms = [plain.median_ms(PLAIN_WARM_UP_STEPS) for plain in plains]
        return {
            "plain_median_step_ms": statistics.median(plain_ms),
            "plain": [plain.summary(PLAIN_WARM_UP_STEPS) for plain in plains],
            **result,
        }

    def record(self, name: str) -> None:
        """Record a job until its iterations are complete."""
        job = JOBS[name]
        self.transit(
            "record", "-o", self.work / name, *job.record, "--exit-after", "--force",
            "--", *job.command(), timeout=job.timeout_s,
        )  # fmt: skip

    def run_plain(self, job: Job) -> Steps:
        """Run the job without transit."""
        return Steps.parse(self.runner.run(job.command(), timeout=job.timeout_s))

    def replay(self, name: str, share: int, losses: list[str]) -> Result:
        """Compile and replay; compare the losses."""
        job, plan = JOBS[name], self.work / f"{name}-{share}.json"
        compiled = self.transit(
            "compile", self.work / name, "--policy", "auto", "--gpu-memory",
            f"{share}%", "-o", plan, "--force", "--json", timeout=300,
        )  # fmt: skip
        status = plan.with_suffix(".status")
        output = self.transit(
            "replay", "--plan", plan, "--status", status, "--force",
            "--", *job.command(), timeout=job.timeout_s,
        )  # fmt: skip
        run, predicted = Steps.parse(output), json.loads(compiled)
        step_ms = run.median_ms(job.warm_up_steps)
        return {
            **run.summary(job.warm_up_steps),
            "losses_identical": run.losses == losses,
            "predicted_step_ms": predicted["predicted_step_ms"],
            "bound_step_ms": predicted["bound_step_ms"],
            "over_bound": step_ms / predicted["bound_step_ms"],
            "gpu_memory_bytes": predicted["gpu_memory_bytes"],
            "status": json.loads(status.read_text()),
        }

    def page(self, name: str) -> Result:
        """Run a job in a share of its memory, without a plan."""
        job, status = JOBS[PAGED_JOB], self.work / f"{name}.status"
        budget_bytes = self.get(PAGED_JOB)[PAGED_SHARE]["gpu_memory_bytes"]
        plain = self.run_plain(job)
        output = self.transit(
            "run", "--gpu-memory", f"{budget_bytes}B", *PAGING[name], "--force",
            "--status", status, "--", *job.command(), timeout=PAGED_TIMEOUT_S,
        )  # fmt: skip
        run = Steps.parse(output)
        return {
            "plain_median_step_ms": plain.median_ms(PLAIN_WARM_UP_STEPS),
            PAGED_SHARE: {
                **run.summary(PLAIN_WARM_UP_STEPS),
                "losses_identical": run.losses == plain.losses,
                "gpu_memory_bytes": budget_bytes,
                "status": json.loads(status.read_text()),
            },
        }


PARTS: dict[str, Callable[[Windows], Result]] = {
    "machine": Windows.machine,
    **{name: partial(Windows.measure, name=name) for name in JOBS},
    **{name: partial(Windows.page, name=name) for name in PAGING},
}


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = parts.create_parser(__doc__, PARTS, minutes=40)
    return parts.parse_arguments(parser, PARTS)


if __name__ == "__main__":
    sys.exit(parts.measure("windows", Windows, PARTS, parse_arguments()))
