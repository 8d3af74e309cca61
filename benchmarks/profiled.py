"""Run a training script by itself, then for some steps under torch.profiler.

    python benchmarks/profiled.py --first 40 --steps 10 examples/train_gpt.py --steps 64

The first 40 steps are the script's own. Then 10 are profiled with the GPU's activities
only, and after a rest 10 with those of the CPU as well, each with the profiler's
defaults. The end of an optimizer step starts and stops it, as it does transit's
recorder. Says what was collected in a JSON line for each.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path
from typing import Any

from schedule import PROFILES, profiled_steps
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, supported_activities

WANTED = ([ProfilerActivity.CUDA], [ProfilerActivity.CPU, ProfilerActivity.CUDA])


class StepProfiler:
    """Starts and stops the profiler between steps."""

    def __init__(self, first: int, steps: int) -> None:
        self._steps = profiled_steps(first, steps)
        self._activities = dict(zip(PROFILES, WANTED, strict=True))
        self._num_steps = 0
        self._profile: Any = None

    def on_step(self, *_: object) -> None:
        """Count a step; torch calls this at the end of each."""
        self._num_steps += 1
        for name, steps in self._steps.items():
            if self._num_steps == steps.start:
                self._start(self._activities[name])
            elif self._num_steps == steps.stop:
                self._stop(name)

    def _start(self, wanted: list[Any]) -> None:
        activities = supported_activities().intersection(wanted)
        if activities:  # without a GPU, there may be none
            self._profile = profile(activities=activities)
            self._profile.start()

    def _stop(self, name: str) -> None:
        if self._profile is None:
            return
        self._profile.stop()
        events = len(self._profile.profiler.kineto_results.events())
        print(json.dumps({"profiled": name, "events": events}), flush=True)
        self._profile = None


def main() -> None:
    """Run the script as its own command would."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, required=True, help="step to profile")
    parser.add_argument("--steps", type=int, required=True, help="to profile each way")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    register_optimizer_step_post_hook(StepProfiler(args.first, args.steps).on_step)
    sys.path[0] = str(args.script.parent)
    sys.argv = [str(args.script), *args.arguments]
    runpy.run_path(str(args.script), run_name="__main__")


if __name__ == "__main__":
    main()
