"""How long a step is predicted to be with more and with less GPU memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from transit.compiler.compiler import compile_trace
from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.machine import BackendName, MachineProfile
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.policies import AUTO
from transit.errors import BudgetError, MachineError
from transit.traces.reader import Trace

NUM_POINTS = 8


@dataclass(frozen=True)
class Point:
    """A budget and the step of policy `auto` with it.

    Times are null where no schedule was found that keeps to the budget.
    """

    gpu_memory_bytes: int
    share: float
    predicted_step_ns: int | None
    bound_step_ns: int | None


def sweep(
    trace: Trace,
    machine: MachineProfile,
    backend: BackendName = "vmm",
    num_points: int = NUM_POINTS,
) -> Iterator[Point]:
    """Plan for budgets from all that the job needs down to the least it can do with.

    Each takes about as long as compiling does.

    Raises
    ------
    MachineError
        If the profile is of another GPU than the recording: no time is known then.
    """
    peak_bytes = job_peak_bytes(trace)

    def point(gpu_memory_bytes: int) -> tuple[Point, int]:
        share = gpu_memory_bytes / peak_bytes
        try:
            plan = compile_trace(
                trace,
                gpu_memory_bytes=gpu_memory_bytes,
                policy=AUTO,
                machine=machine,
                backend=backend,
                compare=False,
            )
        except BudgetError:
            if gpu_memory_bytes >= peak_bytes:
                raise
            return Point(gpu_memory_bytes, share, None, None), 0
        if plan.prediction is None:
            raise MachineError(
                f"machine profile {machine.name} is of another GPU than the "
                "recording, so no step can be predicted; `transit calibrate` "
                "measures one"
            )
        step_ns, bound_ns = plan.prediction.step_ns, plan.prediction.bound_step_ns
        found = Point(gpu_memory_bytes, share, step_ns, bound_ns)
        return found, plan.summary.smallest_budget_bytes

    whole, smallest_bytes = point(peak_bytes)
    yield whole
    budgets = np.linspace(peak_bytes, smallest_bytes, num_points)[1:]
    rounded = np.ceil(budgets / PIECE_BYTES).astype(np.int64) * PIECE_BYTES
    smaller = {int(size) for size in rounded if size < peak_bytes}
    for size in sorted(smaller, reverse=True):
        yield point(size)[0]
