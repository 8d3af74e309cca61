"""Measure record, compile and replay on a real training job, on a GPU machine.

    python benchmarks/skeleton.py --output benchmarks/results/skeleton-h200.json

Runs examples/train_gpt.py in deterministic mode throughout: a plan belongs to one
sequence of allocations, and another mode has another. Each part is saved as soon as
it is measured; --only repeats some of them and keeps the rest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import parts
from parts import RUN_TIMEOUT_S, Benchmark, Result, folder_bytes
from runner import PYTHON, PartError, Steps

BACKENDS = ("vmm", "uvm")
WARM_UP_STEPS = 5
MEASURED_DUPLEX_BYTES_PER_S = 50.9e9  # H200, copy engines, both directions at once
PLANS = {
    "nothing": ["--policy", "reuse"],  # the whole GPU: nothing has to leave
    "reuse": ["--policy", "reuse", "--gpu-memory", "80%"],
    "advise": ["--policy", "advise", "--gpu-memory", "80%"],
}


class Skeleton(Benchmark):
    """The benchmark's parts, in the order they are run."""

    def job(self, steps: int) -> list[str]:
        """Return the training job's command."""
        script = "examples/train_gpt.py"
        options = ["--preset", self.args.preset, "--steps", str(steps)]
        return [PYTHON, script, *options, "--deterministic"]

    def run_plain(self, steps: int) -> Steps:
        """Run the job without transit."""
        return Steps.parse(self.runner.run(self.job(steps), timeout=RUN_TIMEOUT_S))

    def run_replay(
        self, plan: str, backend: str, steps: int, timeout: float = RUN_TIMEOUT_S
    ) -> tuple[Steps, Result]:
        """Run the job under a plan; return its steps and what the shim reports."""
        if backend == "uvm":
            self.refuse_too_much_managed_memory(self.get("plain")["reserved_bytes"])
        status = self.work / f"status-{plan}-{backend}.json"
        output = self.transit(
            "replay", "--plan", self.work / f"{plan}.json", "--backend", backend,
            "--status", status, "--force", "--", *self.job(steps), timeout=timeout,
        )  # fmt: skip
        return Steps.parse(output), json.loads(status.read_text())

    def plain(self) -> Result:
        """The job by itself: the losses and times everything else is held against."""
        steps = self.run_plain(self.args.steps)
        return {**steps.summary(WARM_UP_STEPS), "losses_hex": steps.losses}

    def record(self) -> Result:
        """The job recorded, between two runs without: what recording costs."""
        skip, iterations = WARM_UP_STEPS, self.args.steps - 2 * WARM_UP_STEPS
        options = ["--skip", str(skip), "--iterations", str(iterations), "--force"]
        before = self.run_plain(self.args.steps)
        output = self.transit(
            "record", "-o", self.work / "trace", *options, "--",
            *self.job(self.args.steps), timeout=2 * RUN_TIMEOUT_S,
        )  # fmt: skip
        after = self.run_plain(self.args.steps)
        steps = Steps.parse(output)
        recorded_ms = steps.median_ms(skip, skip + iterations)
        plain_ms = statistics.mean(
            run.median_ms(skip, skip + iterations) for run in (before, after)
        )
        return {
            **steps.summary(WARM_UP_STEPS),
            "recorded_steps_median_ms": recorded_ms,
            "plain_steps_median_ms": plain_ms,
            "overhead": recorded_ms / plain_ms - 1,
            "losses_identical": steps.losses == self.get("plain")["losses_hex"],
            "trace_bytes": folder_bytes(self.work / "trace"),
            **trace_counts(self.work / "trace"),
        }

    def compile(self) -> Result:
        """The plans everything after this replays."""
        whole = self.get("machine")["gpu_memory_bytes"] >> 30
        summaries = {}
        for plan, options in PLANS.items():
            memory = [] if plan != "nothing" else ["--gpu-memory", f"{whole}GiB"]
            output = self.transit(
                "compile", self.work / "trace", *options, *memory,
                "-o", self.work / f"{plan}.json", "--force", "--json",
            )  # fmt: skip
            summaries[plan] = json.loads(output)
        return summaries

    def replay(self) -> Result:
        """Under plans that keep all and that spill: the same losses, to the bit?"""
        result = {}
        for plan in ("nothing", "reuse"):
            for backend in BACKENDS:
                result[f"{plan} {backend}"] = self.measure_replay(
                    plan, backend, self.args.steps, first=WARM_UP_STEPS
                )
        return result

    def advise(self) -> Result:
        """The paper's policy; far slower, so only a few steps of it."""
        return {
            f"advise {backend}": self.measure_replay(
                "advise", backend, steps=6, first=2, timeout=120
            )
            for backend in BACKENDS
        }

    def measure_replay(
        self, plan: str, backend: str, steps: int, *, first: int, timeout: float = 90
    ) -> Result:
        """Replay once; a failure is kept as such beside the others."""
        try:
            run, status = self.run_replay(plan, backend, steps, timeout)
        except PartError as error:
            print(f"{plan} on {backend}: {error}", file=sys.stderr, flush=True)
            return {"error": str(error)}
        plain = self.get("plain")
        spilled_bytes = self.get("compile")[plan]["zero_copy_bytes"]
        link = self.get("machine")["link"]["duplex_bytes_per_s"]
        return {
            **run.summary(first),
            "losses_identical": run.losses == plain["losses_hex"][: len(run.losses)],
            "status": status,
            "spilled_bytes": spilled_bytes,
            "bound_step_ms": plain["median_step_ms"]
            + spilled_bytes / MEASURED_DUPLEX_BYTES_PER_S * 1e3,
            "bound_here_step_ms": plain["median_step_ms"] + spilled_bytes / link * 1e3,
        }

    def overhead(self) -> Result:
        """Alternate plain runs and replays that spill nothing: what the shim costs."""
        medians: dict[str, list[float]] = {name: [] for name in ("plain", *BACKENDS)}
        errors: dict[str, str] = {}
        for _ in range(self.args.rounds):
            plain = self.run_plain(self.args.steps)
            medians["plain"].append(plain.median_ms(WARM_UP_STEPS))
            for backend in (name for name in BACKENDS if name not in errors):
                try:
                    run, _ = self.run_replay("nothing", backend, self.args.steps)
                except PartError as error:
                    errors[backend] = str(error)
                else:
                    medians[backend].append(run.median_ms(WARM_UP_STEPS))
        plain_ms = statistics.median(medians["plain"])
        overhead = {
            backend: statistics.median(medians[backend]) / plain_ms - 1
            for backend in BACKENDS
            if medians[backend]
        }
        return {"medians_ms": medians, "overhead": overhead, "failed": errors}

    def sample(self) -> Result:
        """Record a small trace to keep, and see that a plan comes out of it."""
        folder = self.args.sample or self.work / "sample"
        options = ["--no-directions", "--skip", "3", "--iterations", "2", "--force"]
        self.transit("record", "-o", folder, *options, "--", *self.job(steps=6))
        budget = ["--gpu-memory", "10GiB", "--json"]
        plan = json.loads(self.transit("compile", folder, *budget))
        return {"bytes": folder_bytes(folder), "plan": plan}


PARTS: dict[str, Callable[[Skeleton], Result]] = {
    "machine": Skeleton.machine,
    "plain": Skeleton.plain,
    "record": Skeleton.record,
    "compile": Skeleton.compile,
    "replay": Skeleton.replay,
    "sample": Skeleton.sample,
    "overhead": Skeleton.overhead,
    "advise": Skeleton.advise,
}


def trace_counts(trace: Path) -> Result:
    """Return what the recorder says about its completeness."""
    rank = json.loads((trace / "manifest.json").read_text())["ranks"][0]
    keys = (
        "launches_seen_by_hooks",
        "launches_seen_by_cupti",
        "kernel_launches",
        "kernel_activities",
        "kernel_launches_with_access",
        "losses",
    )
    return {key: rank[key] for key in keys}


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = parts.create_parser(__doc__, PARTS, minutes=8)
    parser.add_argument("--sample", type=Path, help="keep the small trace here")
    parser.add_argument("--preset", default="medium")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison")
    args = parts.parse_arguments(parser, PARTS)
    if args.steps < 3 * WARM_UP_STEPS:
        parser.error(f"--steps must be at least {3 * WARM_UP_STEPS}")
    args.sample = args.sample and args.sample.absolute()
    return args


if __name__ == "__main__":
    sys.exit(parts.measure("skeleton", Skeleton, PARTS, parse_arguments()))
