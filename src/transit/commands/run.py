"""``transit run``."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
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
    from transit.runtime.status import ProcessStatus

log = logging.getLogger(__name__)


class Backend(StrEnum):
    """What memory is made of that comes and goes."""

    VMM = "vmm"
    UVM = "uvm"


class Policy(StrEnum):
    """How managed memory comes and goes."""

    BASE = "base"
    PREFETCH = "prefetch"
    ADVISE = "advise"


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
    backend: Annotated[
        Backend,
        typer.Option(
            envvar="TRANSIT_BACKEND",
            help="vmm: mapped chunks, exact; uvm: managed memory, which kernels reach "
            "wherever it is.",
        ),
    ] = Backend.VMM,
    policy: Annotated[
        Policy | None,
        typer.Option(
            envvar="TRANSIT_PAGING_POLICY",
            help="Of uvm. base: by page faults; prefetch (unless given): before the "
            "launch that names it; advise: what is allocated beyond SIZE stays in host "
            "memory.",
        ),
    ] = None,
    prefetch: Annotated[
        bool,
        typer.Option(
            "--prefetch",
            envvar="TRANSIT_PREFETCH",
            help="Of vmm: move memory beside other work, and ahead of its use. Only "
            "for jobs whose kernels follow no pointers in memory: else the numbers go "
            "wrong.",
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

    Example: transit run --backend uvm --gpu-memory 40GiB -- python train.py
    """
    from transit.files import refuse_existing, write_text
    from transit.runtime.host_memory import bound_bytes
    from transit.runtime.paging import budget_bytes, paging_variables, run_paged

    job_command = required_command(command)
    size = parse_size(gpu_memory)
    if status:
        refuse_existing(status, overwrite=force)
    managed_policy = _managed_policy(backend, policy, prefetch=prefetch)
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
            policy=managed_policy,
            prefetch=prefetch,
            strict=strict,
            simulated_gpu=simulated_gpu,
        )
        print_dry_run(variables, job_command)
        return
    if managed_policy and not simulated_gpu:
        log.warning(
            "that managed memory keeps a job's numbers was seen on the simulated GPU "
            "only: compare them with a run without transit"
        )
    result = run_paged(
        job_command,
        budget,
        host_memory_bytes=host_memory_bytes,
        policy=managed_policy,
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


def _managed_policy(
    backend: Backend, policy: Policy | None, *, prefetch: bool
) -> Policy | None:
    """Return the policy of managed memory; None for mapped chunks."""
    if backend is Backend.VMM:
        if policy:
            raise typer.BadParameter("--policy is for --backend uvm")
        return None
    if prefetch:
        raise typer.BadParameter(
            "--prefetch is for --backend vmm; here it is --policy prefetch"
        )
    return policy or Policy.PREFETCH


def _tell(result: Paged) -> list[str]:
    """Say what moved, and what did not work."""
    from transit.runtime.budget import describe

    busy = [process for process in result.processes if process.is_busy]
    for process in busy:
        name = f"rank {process.rank} (pid {process.pid})"
        log.info("%s: %s", name, _describe(process, result))
        log.info("%s: %s", name, describe(process))
        if process.loads_without_room:
            log.info(
                "%s: %d times a chunk was used in host memory, as there was no room "
                "for all that a kernel names: slow; give more --gpu-memory",
                name,
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


def _describe(process: ProcessStatus, result: Paged) -> str:
    if result.policy is None:
        return (
            f"at most {format_bytes(process.gpu_peak_bytes)} on the GPU at once, of "
            f"{format_bytes(result.gpu_memory_bytes)}; "
            f"{format_bytes(process.windowed_peak_bytes)} could leave; "
            f"{format_bytes(process.h2d_bytes)} copied to the GPU and "
            f"{format_bytes(process.d2h_bytes)} back; threads of the job held back for "
            f"{format_ns(process.held_back_ns)}"
        )
    return (
        f"by our account at most {format_bytes(process.gpu_peak_bytes)} on the GPU at "
        f"once, of {format_bytes(result.gpu_memory_bytes)}; "
        f"{_describe_moves(process, result.policy)}; what the card really holds is the "
        "driver's business"
    )


def _describe_moves(process: ProcessStatus, policy: str) -> str:
    to_gpu, back = format_bytes(process.h2d_bytes), format_bytes(process.d2h_bytes)
    held_back = f"threads of the job held back for {format_ns(process.held_back_ns)}"
    if policy == Policy.ADVISE:
        in_place = format_bytes(process.zero_copy_peak_bytes)
        return f"at most {in_place} in host memory, used in place"
    if policy == Policy.BASE:
        return (
            f"memory came by faults, which are not counted, and {to_gpu} by "
            f"prefetches; {back} asked back; {held_back}"
        )
    return f"{to_gpu} asked to the GPU and {back} back; {held_back}"
