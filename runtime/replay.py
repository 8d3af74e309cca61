"""Run a job under the shim with a plan, and tell what became of the plan."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transit.errors import PlanError
from transit.runtime import budget, flat_plan, job
from transit.runtime.devices import visible_devices
from transit.runtime.preload import shim_variables
from transit.runtime.runs import Run
from transit.runtime.simulated import simulated_variables
from transit.runtime.status import ProcessStatus, ShimState, read_run, report
from transit.runtime.step_time import deviation, expectations, slowest
from transit.units import format_bytes

if TYPE_CHECKING:
    from transit.compiler.plan import Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How a replayed job ended and what the shim did in it."""

    plan: Plan
    run: Run
    exit_code: int
    processes: list[ProcessStatus]

    def problems(self) -> list[str]:
        """Say where the job and the plan parted; empty when the plan was enacted."""
        if not self.processes:
            return [
                "the plan did nothing: no process of the job used CUDA under the shim"
            ]
        found = []
        for rank_plan in self.plan.ranks:
            for rank in rank_plan.ranks:
                statuses = [p for p in self.processes if p.rank == rank]
                found += _rank_problems(rank, len(rank_plan.allocations), statuses)
                if rank_plan.iteration.sequence is not None:
                    found += _window_problems(rank, statuses)
        found += [
            f"rank {process.rank}, process {process.pid}: {problem}"
            for process in self.processes
            for problem in budget.problems_of(process)
        ]
        planned = set(self.plan.rank_numbers)
        extra = sorted({p.rank for p in self.processes} - planned)
        if extra:
            found.append(f"ranks {extra} ran without a plan: it has {sorted(planned)}")
        return found

    @property
    def slowest(self) -> ProcessStatus | None:
        """The process whose measured step is longest, if any was measured."""
        return slowest(self.processes)

    def deviation(self) -> str | None:
        """Say how the measured step differs from the predicted one, and why."""
        process = self.slowest
        if process is None:
            return None
        return deviation(process, self.run.expected_of(process.rank))

    def to_json(self) -> dict[str, Any]:
        """Return the versioned status report."""
        planned = sum(len(r.allocations) * len(r.ranks) for r in self.plan.ranks)
        return report(
            self.processes,
            exit_code=self.exit_code,
            gpu_memory_bytes=self.plan.gpu_memory_bytes,
            allocations_planned=planned,
            problems=self.problems(),
            step=self._step(),
        )

    def _step(self) -> dict[str, Any]:
        process = self.slowest
        return {
            "measured_ns": process.measured_step_ns if process else None,
            "predicted_ns": max((e.step_ns for e in self.run.expected), default=None),
            "deviation": self.deviation(),
        }


def _rank_problems(
    rank: int, num_planned: int, statuses: Sequence[ProcessStatus]
) -> list[str]:
    replayed = [p for p in statuses if p.state is ShimState.REPLAYING]
    found = [
        f"rank {rank}, process {p.pid}: {p.message}" for p in statuses if p.message
    ]
    matched = sum(p.allocations_matched for p in replayed)
    if not replayed:
        found.append(f"rank {rank}: the plan was not on in any process")
    elif not matched and num_planned:
        found.append(
            f"rank {rank}: the plan did nothing: none of its {num_planned} allocations "
            "appeared; was it compiled for another job?"
        )
    elif matched < num_planned:
        found.append(
            f"rank {rank}: {matched} of {num_planned} planned allocations appeared; "
            "the job differs from the recorded one, or ended early"
        )
    if unmatched := sum(p.allocations_unmatched for p in replayed):
        found.append(
            f"rank {rank}: {unmatched} allocations were not as planned and stayed on "
            "the GPU: the memory used may exceed the budget"
        )
    if failures := sum(p.placement_failures for p in statuses):
        found.append(f"rank {rank}: {failures} placements failed")
    return found


def _window_problems(rank: int, statuses: Sequence[ProcessStatus]) -> list[str]:
    replayed = [p for p in statuses if p.state is ShimState.REPLAYING]
    found = []
    if replayed and not any(p.locks for p in replayed):
        found.append(
            f"rank {rank}: no window was enacted: the job's launches were never those "
            "of the plan's iteration; what has windows stayed in host memory"
        )
    if chunks := sum(p.loads_without_room for p in replayed):
        found.append(
            f"rank {rank}: {chunks} chunks of windows stayed in host memory, as there "
            "was no room when they were needed; more was on the GPU than planned"
        )
    if failures := sum(p.transfer_failures for p in replayed):
        found.append(f"rank {rank}: {failures} transfers of windows failed")
    return found


def replay_variables(
    run_dir: Path,
    *,
    backend: str,
    host_memory_bytes: int,
    strict: bool,
    simulated_gpu: bool,
) -> dict[str, str]:
    """Return the variables that make a job replay the flat plans of a run folder."""
    variables = shim_variables(run_dir) | {
        "TRANSIT_PLAN_DIR": str(run_dir / "plan"),
        "TRANSIT_BACKEND": backend,
        "TRANSIT_HOST_MEMORY_BYTES": str(host_memory_bytes),
    }
    if strict:
        variables["TRANSIT_STRICT"] = "1"
    return variables | (simulated_variables() if simulated_gpu else {})


def replay(
    plan: Plan,
    command: Sequence[str],
    *,
    host_memory_bytes: int,
    backend: str = "vmm",
    strict: bool = False,
    simulated_gpu: bool = False,
    any_gpu: bool = False,
) -> Replay:
    """Run a job with a plan.

    Parameters
    ----------
    plan
        The placements, as `transit.compiler.plan.load` returns them.
    command
        The job: a program and its arguments.
    host_memory_bytes
        What all its processes may have of this machine's memory for what is planned.
    backend
        ``vmm`` or ``uvm``.
    strict
        A placement that fails ends the job.
    simulated_gpu
        Run the job on the simulated GPU.
    any_gpu
        Accept a plan that was compiled for another GPU.
    """
    refuse_windows(plan, backend)
    if warning := budget.check_host_memory(_host_needs(plan), host_memory_bytes):
        log.warning("%s", warning)
    with tempfile.TemporaryDirectory(prefix="transit-replay-") as temporary:
        run_dir = Path(temporary)
        variables = replay_variables(
            run_dir,
            backend=backend,
            host_memory_bytes=host_memory_bytes,
            strict=strict,
            simulated_gpu=simulated_gpu,
        )
        if not any_gpu:
            check_gpu(plan, simulated_gpu=simulated_gpu)
        flat_plan.write_all(plan, run_dir / "plan")
        run = Run(
            pid=os.getpid(),
            command=tuple(command),
            gpu_memory_bytes=plan.gpu_memory_bytes,
            expected=expectations(plan),
        )
        run.write(run_dir)
        log.info("while it runs: transit status %d --watch", run.pid)
        exit_code = job.run(command, job.full_environment(variables))
        return Replay(
            plan=plan, run=run, exit_code=exit_code, processes=read_run(run_dir)
        )


def _host_needs(plan: Plan) -> list[int]:
    """Return what each rank has in host memory, if all of it is alive at once."""
    return [
        sum(
            placed.bytes
            for allocation in rank_plan.allocations
            for placed in allocation.placements
            if placed.placement != "resident"
        )
        for rank_plan in plan.ranks
        for _ in rank_plan.ranks
    ]


def refuse_windows(plan: Plan, backend: str) -> None:
    """Refuse a plan whose windows the shim cannot enact."""
    if plan.summary.window_bytes and backend != "vmm":
        raise PlanError(
            "the plan has windows (memory that comes and goes within an iteration), "
            f"and backend {backend} replays only what is resident or zero-copy; "
            "replay with --backend vmm, or compile with --policy reuse"
        )


def check_gpu(plan: Plan, *, simulated_gpu: bool) -> None:
    """Refuse a plan for another GPU than the ones a job sees here."""
    # Without the shim, which would count the question as a process of the job.
    variables = simulated_variables() if simulated_gpu else {}
    for device in visible_devices(job.full_environment(variables)):
        if device.name != plan.trace.gpu_name:
            raise PlanError(
                f"the plan was compiled for {plan.trace.gpu_name}, and this machine "
                f"has {device.name}; record and compile here, or pass --any-gpu"
            )
        if device.memory_bytes < plan.summary.peak_resident_bytes:
            raise PlanError(
                f"the plan keeps {format_bytes(plan.summary.peak_resident_bytes)} on "
                f"the GPU, and {device.name} has {format_bytes(device.memory_bytes)}; "
                "compile with a smaller --gpu-memory"
            )
