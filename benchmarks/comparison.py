"""What recording and profiling cost: step times against those of plain steps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from runner import Steps
from schedule import Schedule

Result = dict[str, Any]
Round = dict[str, Steps]  # the same job plain (then profiled), and recorded
Average = Callable[[Sequence[float]], float]


def compare(schedule: Schedule, rounds: list[Round]) -> Result:
    """Return how much slower the steps are, the median over the rounds.

    `overhead` is by the median of a window of steps, `mean_overhead` by the mean, which
    outliers move.
    """
    steps = schedule.steps
    return {
        "schedule": {name: [w.start, w.stop] for name, w in windows(schedule).items()},
        "overhead": middle(rounds, schedule, statistics.median),
        "mean_overhead": middle(rounds, schedule, statistics.fmean),
        "by_round": [overheads(r, schedule, statistics.median) for r in rounds],
        "step_ms": step_times(rounds, schedule),
        "losses_identical": all(
            r["plain"].losses[:steps] == r["recorded"].losses for r in rounds
        ),
        "reserved_bytes": rounds[0]["plain"].lines[steps - 1]["reserved_bytes"],
        "profiler_events": rounds[0]["plain"].events,
        "rounds_ms": [
            {kind: [line["ms"] for line in run.lines] for kind, run in r.items()}
            for r in rounds
        ],
    }


def windows(schedule: Schedule) -> dict[str, range]:
    """Return all windows of a schedule."""
    return {**schedule.windows, **schedule.profiled_windows}


def middle(rounds: list[Round], schedule: Schedule, average: Average) -> Result:
    """Return each overhead's median over the rounds."""
    each = [overheads(runs, schedule, average) for runs in rounds]
    return {name: statistics.median(one[name] for one in each) for name in each[0]}


def overheads(runs: Round, schedule: Schedule, average: Average) -> dict[str, float]:
    """Return one round's overheads, as shares of the plain step.

    Within a run, steps are held against those before the recording; the plain run says
    how those would have changed anyway.
    """
    plain, recorded = runs["plain"], runs["recorded"]
    ratios = {
        name: time(recorded, window, average) / time(plain, window, average)
        for name, window in schedule.windows.items()
    }
    result = {name: ratio - 1 for name, ratio in ratios.items()}
    result["recording, within the run"] = ratios["recording"] / ratios["before"] - 1
    result["after, within the run"] = ratios["after"] / ratios["before"] - 1
    undisturbed = time(plain, schedule.windows["after"], average)
    for name, window in schedule.profiled_windows.items():
        if name in plain.events:
            profiled = time(plain, window, average)
            result[f"torch.profiler, {name}"] = profiled / undisturbed - 1
    return result


def step_times(rounds: list[Round], schedule: Schedule) -> Result:
    """Return the medians over the rounds of single steps, and of the plain step."""
    single = {
        "first of the recording": schedule.skip - 1,
        "last of the recording": schedule.inspected - 1,
        "inspected": schedule.inspected,
        "next": schedule.inspected + 1,
    }
    recording = schedule.windows["recording"]
    return {
        "plain": statistics.median(
            time(r["plain"], recording, statistics.median) for r in rounds
        ),
        **{
            name: statistics.median(r["recorded"].lines[step]["ms"] for r in rounds)
            for name, step in single.items()
        },
    }


def time(steps: Steps, window: range, average: Average) -> float:
    """Return the average time of a window's steps, in milliseconds."""
    return average([float(steps.lines[step]["ms"]) for step in window])
