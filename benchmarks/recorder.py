"""Measure the recorder on real training jobs, on a GPU machine.

    python benchmarks/recorder.py --output benchmarks/results/recorder-h200.json

What it costs, beside torch.profiler, and what its traces know. Each part is saved as
soon as it is measured; --only repeats some of them and keeps the rest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import parts
from comparison import compare
from parts import RUN_TIMEOUT_S, Benchmark, Result, SkippedError, folder_bytes
from runner import PYTHON, PartError, Steps
from schedule import REST_STEPS, Schedule
from trace_coverage import describe, manifest_of

GPT = "examples/train_gpt.py"
# Deterministic, so that the losses show that nothing was changed.
OVERHEAD_JOBS = {
    "medium": [GPT, "--deterministic"],
    "launch-bound": [GPT, "--batch", "1", "--sequence", "128", "--deterministic"],
}
SCHEDULES = {
    "medium": Schedule(
        warm_up=5, skip=16, iterations=16, writing=20, after=15, profiled=12
    ),
    "launch-bound": Schedule(
        warm_up=20, skip=81, iterations=61, writing=120, after=60, profiled=31
    ),
}
COVERAGE_JOBS = {
    "eager": [GPT],
    "compiled": [GPT, "--compile"],
    "moe": ["examples/train_moe.py"],
    "conv": ["examples/train_conv.py"],
}
COVERAGE_ITERATIONS = 2
COVERAGE_STEPS = 12  # more than are recorded in any way: the recording ends the job
MOST_MANAGED_BYTES = 12 << 30  # no job here needs more
COVERAGE_TIMEOUT_S = 240  # torch.compile takes its time
FSDP_JOB = [GPT, "--fsdp", "--deterministic"]
FSDP_GPUS = 2
LAUNCHER = [
    *("-m", "torch.distributed.run", "--standalone"),
    *("--nproc-per-node", str(FSDP_GPUS)),
]


class RecorderBenchmark(Benchmark):
    """The parts, in the order they are run."""

    def job(self, job: list[str], steps: int) -> list[str]:
        """Return what runs one of the jobs for so many steps."""
        script, *options = job
        return [script, "--preset", self.args.preset, *options, "--steps", str(steps)]

    def record(self, trace: Path, job: list[str], options: list[str]) -> Steps:
        """Record a job; return its steps."""
        output = self.transit(
            "record", "-o", trace, "--force", *options,
            "--", PYTHON, *job,
            timeout=COVERAGE_TIMEOUT_S,
        )  # fmt: skip
        return Steps.parse(output)

    def overhead(self, name: str) -> Result:
        """Compare recorded steps with plain and with profiled ones, in turns."""
        schedule, trace = SCHEDULES[name], self.work / name
        rounds = []
        for index in range(self.args.rounds):
            runs: dict[str, Steps] = {}
            for kind in ("recorded", "plain") if index % 2 else ("plain", "recorded"):
                if kind == "recorded":
                    job = self.job(OVERHEAD_JOBS[name], schedule.steps)
                    runs[kind] = self.record(trace, job, record_options(schedule))
                else:
                    runs[kind] = self.run_profiled(OVERHEAD_JOBS[name], schedule)
            rounds.append(runs)
        return {**compare(schedule, rounds), **trace_figures(trace)}

    def run_profiled(self, job: list[str], schedule: Schedule) -> Steps:
        """Run a job by itself for as long as the other, then under the profiler."""
        first = ["--first", str(schedule.steps + REST_STEPS)]
        steps = ["--steps", str(schedule.profiled)]
        script = [PYTHON, "benchmarks/profiled.py", *first, *steps]
        command = [*script, *self.job(job, schedule.steps_with_profiler)]
        return Steps.parse(self.runner.run(command, timeout=RUN_TIMEOUT_S))

    def coverage(self, name: str) -> Result:
        """Record a job with everything that can be found out about its accesses."""
        trace = self.work / name
        options = ["--skip", "3", "--iterations", str(COVERAGE_ITERATIONS)]
        options.append("--exit-after")
        job = self.job(COVERAGE_JOBS[name], COVERAGE_STEPS)
        try:
            self.refuse_too_much_managed_memory(MOST_MANAGED_BYTES)
            steps = self.record(trace, job, [*options, "--audit"])
            audit = {}
        except PartError as error:
            steps = self.record(trace, job, options)
            audit = {"audited": {"error": str(error)}}
        size = {"trace_bytes": folder_bytes(trace)}
        return {**steps.summary(first=0), **size, **describe(trace), **audit}

    def fsdp(self) -> Result:
        """Record both ranks of a sharded job, in turns with plain runs."""
        gpus = self.ask_gpus("name")
        if len(gpus) < FSDP_GPUS:
            raise SkippedError(f"needs {FSDP_GPUS} GPUs, and there is {len(gpus)}")
        schedule, trace = SCHEDULES["medium"], self.work / "fsdp"
        job = [*LAUNCHER, *self.job(FSDP_JOB, schedule.steps)]
        rounds = []
        for _ in range(self.args.rounds):
            output = self.runner.run([PYTHON, *job], timeout=RUN_TIMEOUT_S)
            plain = Steps.parse(output)
            recorded = self.record(trace, job, record_options(schedule))
            rounds.append({"plain": plain, "recorded": recorded})
        figures = {"gpus": gpus, "ranks": manifest_of(trace)["ranks"]}
        return {**compare(schedule, rounds), **trace_figures(trace), **figures}


def record_options(schedule: Schedule) -> list[str]:
    """Return what makes `transit record` follow a schedule."""
    iterations = ["--iterations", str(schedule.iterations)]
    return ["--skip", str(schedule.skip), *iterations]


def trace_figures(trace: Path) -> Result:
    """Return the size of a trace and what its first rank knows."""
    return {"trace_bytes": folder_bytes(trace), "trace": describe(trace)}


PARTS: dict[str, Callable[[RecorderBenchmark], Result]] = {
    "machine": RecorderBenchmark.machine,
    **{
        f"overhead/{name}": partial(RecorderBenchmark.overhead, name=name)
        for name in OVERHEAD_JOBS
    },
    **{
        f"coverage/{name}": partial(RecorderBenchmark.coverage, name=name)
        for name in COVERAGE_JOBS
    },
    "fsdp": RecorderBenchmark.fsdp,
}


def parse_arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = parts.create_parser(__doc__, PARTS, minutes=9)
    parser.add_argument("--preset", default="medium")
    parser.add_argument("--rounds", type=int, default=3, help="of each comparison")
    return parts.parse_arguments(parser, PARTS)


if __name__ == "__main__":
    arguments = parse_arguments()
    sys.exit(parts.measure("recorder", RecorderBenchmark, PARTS, arguments))
