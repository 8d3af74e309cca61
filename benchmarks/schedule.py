"""Which steps of a job are recorded or profiled, and which are compared."""

from __future__ import annotations

from dataclasses import dataclass

PROFILES = ("cuda", "cpu and cuda")  # what the profiler is asked for
REST_STEPS = 2  # behind what is no step like the others


def profiled_steps(first: int, steps: int) -> dict[str, range]:
    """Return the steps that are profiled each way, one way after the other."""
    starts = (first + index * (steps + REST_STEPS) for index in range(len(PROFILES)))
    return {
        profile: range(start, start + steps)
        for profile, start in zip(PROFILES, starts, strict=True)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The steps of a recorded job, and of the same job by itself and profiled.

    Steps count from 0. At the end of a step's optimizer the recording starts, stops, or
    goes over to the iteration that it inspects: that step is left out of comparisons.
    """

    warm_up: int
    skip: int
    iterations: int
    writing: int  # steps in which the trace is written
    after: int
    profiled: int  # each way

    @property
    def inspected(self) -> int:
        """The step in which directions are found; the recording ends with it."""
        return self.skip + self.iterations

    @property
    def windows(self) -> dict[str, range]:
        """The steps that are compared, by what is happening."""
        resumed = self.inspected + REST_STEPS
        written = resumed + self.writing
        return {
            "before": range(self.warm_up, self.skip - 1),
            "recording": range(self.skip, self.inspected - 1),
            "writing": range(resumed, written),
            "after": range(written, self.steps),
        }

    @property
    def steps(self) -> int:
        """Steps of the recorded job."""
        return self.inspected + REST_STEPS + self.writing + self.after

    @property
    def profiled_windows(self) -> dict[str, range]:
        """The steps under the profiler, behind those of the recorded job."""
        profiled = profiled_steps(self.steps + REST_STEPS, self.profiled)
        return {name: steps[:-1] for name, steps in profiled.items()}

    @property
    def steps_with_profiler(self) -> int:
        """Steps of the job that is profiled after as many as the recorded one has."""
        return max(steps.stop for steps in self.profiled_windows.values()) + REST_STEPS
