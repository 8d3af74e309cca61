"""``transit run``."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transit.commands.options import (
    DryRun,
    Force,
    HostMemory,
    JobCommand,
    SimulatedGpu,
    print_dry_run,
    required_command,
)
from transit.errors import JobError
from transit.units import format_bytes, format_ns, parse_size

if TYPE_CHECKING:
    from transit.runtime.paging import Paged

log = logging.getLogger(__name__)


def run(
    gpu_memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            envvar="TRANSIT_GPU_MEMORY",
            help="GPU memory to use, per process: 40GiB, or 80% of what the GPU has.",
        ),
    ],
    command: JobCommand = None,
    headroom: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            envvar="TRANSIT_HEADROOM",
            help="Of --gpu-memory, what the driver takes itself: contexts, code.",
        ),
    ] = None,
    host_memory: HostMemory = None,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch",
            envvar="TRANSIT_PREFETCH",
            help="Move memory beside other work, and ahead of its use. Only for jobs "
            "whose kernels follow no pointers in memory: else the numbers go wrong.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            envvar="TRANSIT_STRICT",
            help="Fail when memory cannot be paged; without it the job goes on.",
        ),
    ] = False,
    status: Annotated[
        Path | None,
        typer.Option(
            envvar="TRANSIT_STATUS", help="Write what was done to this JSON file."
        ),
    ] = None,
    simulated_gpu: SimulatedGpu = False,
    dry_run: DryRun = False,
    force: Force = False,
) -> None:
    """Run a job in less GPU memory than it needs, without a plan.

    What the next kernel names is brought to the GPU, and what was used least recently
    leaves it. Slow, and needs no recording. The job's exit code is returned.

    Example: transit run --gpu-memory 40GiB -- python train.py
    """
    from transit.files import refuse_existing, write_text
    from transit.runtime.host_memory import bound_bytes
    from transit.runtime.paging import budget_bytes, paging_variables, run_paged

    job_command = required_command(command)
    size = parse_size(gpu_memory)
    if status:
        refuse_existing(status, overwrite=force)
    budget = budget_bytes(
        size,
        parse_size(headroom) if headroom else None,
        simulated_gpu=simulated_gpu,
    )
    host_memory_bytes = bound_bytes(host_memory)
    if dry_run:
        variables = paging_variables(
            Path("/tmp/transit-run-XXXXXXXX"),
            budget,
            host_memory_bytes=host_memory_bytes,
            prefetch=prefetch,
            strict=strict,
            simulated_gpu=simulated_gpu,
        )
        print_dry_run(variables, job_command)
        return
    if not simulated_gpu:
        log.warning(
            "that paging keeps a job's numbers was seen on the simulated GPU only: "
            "compare them with a run without transit"
        )
    result = run_paged(
        job_command,
        budget,
        host_memory_bytes=host_memory_bytes,
        prefetch=prefetch,
        strict=strict,
        simulated_gpu=simulated_gpu,
    )
    if status:
        write_text(status, json.dumps(result.to_json(), indent=1) + "\n")
    problems = _tell(result)
    if strict and problems and result.exit_code == 0:
        raise JobError("the job is done, and its memory was not paged as asked for")
    raise typer.Exit(result.exit_code)


def _tell(result: Paged) -> list[str]:
    """Say what moved, and what did not work."""
    from transit.runtime.budget import describe

    busy = [process for process in result.processes if process.is_busy]
    for process in busy:
        log.info(
            "rank %d (pid %d): at most %s on the GPU at once, of %s; %s could leave; "
            "%s copied to the GPU and %s back; threads of the job held back for %s",
            process.rank,
            process.pid,
            format_bytes(process.gpu_peak_bytes),
            format_bytes(result.gpu_memory_bytes),
            format_bytes(process.windowed_peak_bytes),
            format_bytes(process.h2d_bytes),
            format_bytes(process.d2h_bytes),
            format_ns(process.held_back_ns),
        )
        log.info("rank %d (pid %d): %s", process.rank, process.pid, describe(process))
        if process.loads_without_room:
            log.info(
                "rank %d (pid %d): %d times a chunk was used in host memory, as there "
                "was no room for all that a kernel names: slow; give more --gpu-memory",
                process.rank,
                process.pid,
                process.loads_without_room,
            )
    problems = result.problems()
    for problem in problems:
        log.warning("%s", problem)
    if any(process.h2d_bytes for process in busy):
        log.info(
            "next: a plan moves less, and in time: transit record -o trace -- COMMAND"
        )
    return problems
