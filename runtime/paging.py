"""Run a job under the shim without a plan: its memory is paged on demand."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transit.errors import BudgetError
from transit.runtime import job
from transit.runtime.budget import problems_of
from transit.runtime.devices import visible_devices
from transit.runtime.preload import shim_variables
from transit.runtime.runs import Run
from transit.runtime.simulated import simulated_variables
from transit.runtime.status import ProcessStatus, ShimState, read_run, report
from transit.units import MemorySize, format_bytes

log = logging.getLogger(__name__)

SMALLEST_BUDGET_BYTES = 2 << 20  # one piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged:
    """How a job ended, and what paging did in it."""

    gpu_memory_bytes: int
    exit_code: int
    processes: list[ProcessStatus]
    policy: str | None = None  # of managed memory; None: on mapped chunks

    def problems(self) -> list[str]:
        """Say what was not as asked for; empty if all was."""
        if not self.processes:
            return ["no process of the job used CUDA under the shim: nothing was paged"]
        return [
            f"rank {process.rank}, process {process.pid}: {problem}"
            for process in self.processes
            for problem in self._problems_of(process)
        ]

    def _problems_of(self, process: ProcessStatus) -> list[str]:
        found = [process.message] if process.message else []
        if process.state is not ShimState.PAGING:
            found.append("its memory was not paged")
        if failures := process.placement_failures:
            found.append(f"{failures} allocations were left to the driver")
        if failures := process.transfer_failures:
            found.append(f"{failures} transfers failed")
        return found + problems_of(process)

    def to_json(self) -> dict[str, Any]:
        """Return the versioned status report."""
        return report(
            self.processes,
            exit_code=self.exit_code,
            gpu_memory_bytes=self.gpu_memory_bytes,
            policy=self.policy,
            problems=self.problems(),
        )


def paging_variables(
    run_dir: Path,
    gpu_memory_bytes: int,
    *,
    host_memory_bytes: int,
    policy: str | None,
    prefetch: bool,
    strict: bool,
    simulated_gpu: bool,
) -> dict[str, str]:
    """Return the variables that make the shim page a job's memory."""
    variables = shim_variables(run_dir) | {
        "TRANSIT_PAGING_BYTES": str(gpu_memory_bytes),
        "TRANSIT_PAGING_AHEAD": str(int(prefetch)),
        "TRANSIT_HOST_MEMORY_BYTES": str(host_memory_bytes),
    }
    if policy:
        variables["TRANSIT_PAGING_POLICY"] = policy
    if strict:
        variables["TRANSIT_STRICT"] = "1"
    return variables | (simulated_variables() if simulated_gpu else {})


def budget_bytes(
    size: MemorySize, headroom: MemorySize | None = None, *, simulated_gpu: bool
) -> int:
    """Return a budget in bytes, shares being of the smallest GPU here.

    Less the headroom, for what the driver takes itself.

    Raises
    ------
    BudgetError
        No GPU has so much, nothing can be done with so little, or a share is asked for
        and there is no GPU.
    """
    variables = simulated_variables() if simulated_gpu else {}
    devices = visible_devices(job.full_environment(variables))
    memory_bytes = min((device.memory_bytes for device in devices), default=None)
    if memory_bytes is None and size.unit == "%":
        raise BudgetError(
            "--gpu-memory is a share of the GPU's memory, and there is no GPU to be "
            "seen; transit doctor says why"
        )
    budget = size.bytes_of(memory_bytes or 0)
    if headroom:
        budget -= headroom.bytes_of(memory_bytes or 0)
    if budget < SMALLEST_BUDGET_BYTES:
        raise BudgetError(
            f"--gpu-memory leaves {format_bytes(budget)}, and memory moves in pieces "
            f"of {format_bytes(SMALLEST_BUDGET_BYTES)}; give more"
        )
    if memory_bytes is not None and budget > memory_bytes:
        raise BudgetError(
            f"--gpu-memory is {format_bytes(budget)}, and the GPU has "
            f"{format_bytes(memory_bytes)}; give less"
        )
    return budget


def run_paged(
    command: Sequence[str],
    gpu_memory_bytes: int,
    *,
    host_memory_bytes: int,
    policy: str | None = None,
    prefetch: bool = False,
    strict: bool = False,
    simulated_gpu: bool = False,
) -> Paged:
    """Run a job whose memory is paged on demand.

    Parameters
    ----------
    command
        The job: a program and its arguments.
    gpu_memory_bytes
        What each process of it may have on the GPU.
    host_memory_bytes
        What all of them may have of this machine's memory behind that.
    policy
        Make its memory managed memory, that comes and goes by this policy: ``base``,
        ``prefetch`` or ``advise``.
    prefetch
        Without a policy: bring ahead, beside other work, what was used next the last
        time. Right only for kernels that use no memory but what their launches name.
    strict
        Memory that cannot be paged ends the job.
    simulated_gpu
        Run the job on the simulated GPU.
    """
    with tempfile.TemporaryDirectory(prefix="transit-run-") as temporary:
        run_dir = Path(temporary)
        variables = paging_variables(
            run_dir,
            gpu_memory_bytes,
            host_memory_bytes=host_memory_bytes,
            policy=policy,
            prefetch=prefetch,
            strict=strict,
            simulated_gpu=simulated_gpu,
        )
        run = Run(
            pid=os.getpid(), command=tuple(command), gpu_memory_bytes=gpu_memory_bytes
        )
        run.write(run_dir)
        log.info("while it runs: transit status %d --watch", run.pid)
        exit_code = job.run(command, job.full_environment(variables))
        return Paged(
            gpu_memory_bytes=gpu_memory_bytes,
            policy=policy,
            exit_code=exit_code,
            processes=read_run(run_dir),
        )
