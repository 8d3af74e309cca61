"""``transit replay``."""

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
from transit.errors import PlanError
from transit.units import format_bytes

if TYPE_CHECKING:
    from transit.runtime.replay import Replay

log = logging.getLogger(__name__)


class Backend(StrEnum):
    """What enacts placements."""

    VMM = "vmm"
    UVM = "uvm"


def replay(
    plan: Annotated[
        Path,
        typer.Option("--plan", "-p", envvar="TRANSIT_PLAN", help="The plan to enact."),
    ],
    command: JobCommand = None,
    backend: Annotated[
        Backend,
        typer.Option(
            envvar="TRANSIT_BACKEND",
            help="vmm: mapped chunks, exact; uvm: managed memory and advice.",
        ),
    ] = Backend.VMM,
    host_memory: HostMemory = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            envvar="TRANSIT_STRICT",
            help="Fail when the plan cannot be enacted; without it the job goes on.",
        ),
    ] = False,
    any_gpu: Annotated[
        bool,
        typer.Option("--any-gpu", help="Accept a plan compiled for another GPU."),
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
    """Run a job with its memory placed as planned.

    The job runs unmodified; its exit code is returned.

    Example: transit replay --plan plan.json -- torchrun --nproc-per-node 8 train.py
    """
    from transit.compiler.plan import load
    from transit.files import refuse_existing, write_text
    from transit.runtime.host_memory import bound_bytes
    from transit.runtime.replay import replay as run_replay
    from transit.runtime.replay import replay_variables

    job_command = required_command(command)
    loaded = load(plan)
    host_memory_bytes = bound_bytes(host_memory)
    if dry_run:
        variables = replay_variables(
            Path("/tmp/transit-replay-XXXXXXXX"),
            backend=backend.value,
            host_memory_bytes=host_memory_bytes,
            strict=strict,
            simulated_gpu=simulated_gpu,
        )
        print_dry_run(variables, job_command)
        return
    if status:
        refuse_existing(status, overwrite=force)
    result = run_replay(
        loaded,
        job_command,
        backend=backend.value,
        host_memory_bytes=host_memory_bytes,
        strict=strict,
        simulated_gpu=simulated_gpu,
        any_gpu=any_gpu,
    )
    if status:
        write_text(status, json.dumps(result.to_json(), indent=1) + "\n")
    problems = _tell(result)
    if strict and problems and result.exit_code == 0:
        raise PlanError("the job is done, and the plan was not enacted in full")
    raise typer.Exit(result.exit_code)


def _tell(result: Replay) -> list[str]:
    """Say what the shim did, and what it did not."""
    from transit.runtime.budget import describe

    # Launchers such as torchrun ask CUDA how many GPUs there are, and leave it at that.
    for process in (p for p in result.processes if p.is_busy):
        log.info(
            "rank %d (pid %d): most at once: %s resident, %s zero-copy, %s left to the "
            "driver; %d allocations as planned, %d not; %d launches, copies and sets",
            process.rank,
            process.pid,
            format_bytes(process.resident_peak_bytes),
            format_bytes(process.zero_copy_peak_bytes),
            format_bytes(process.passed_peak_bytes),
            process.allocations_matched,
            process.allocations_unmatched,
            process.launches_seen,
        )
        log.info("rank %d (pid %d): %s", process.rank, process.pid, describe(process))
        if process.windowed_peak_bytes:
            log.info(
                "rank %d (pid %d): windows: %s came and went, %s copied to the GPU and "
                "%s back; %d launches as planned, %d others",
                process.rank,
                process.pid,
                format_bytes(process.windowed_peak_bytes),
                format_bytes(process.h2d_bytes),
                format_bytes(process.d2h_bytes),
                process.launches_planned,
                process.launches_elsewhere
                + process.launches_inserted
                + process.launches_unlocked,
            )
    _tell_step(result)
    problems = result.problems()
    for problem in problems:
        log.warning("%s", problem)
    return problems


def _tell_step(result: Replay) -> None:
    """Say how long a step took, if the job was followed, and why not as predicted."""
    from transit.runtime.step_time import describe_step

    followed = [p for p in result.processes if p.windowed_peak_bytes]
    process = result.slowest or next(iter(followed), None)
    if process is None:
        return
    log.info("rank %d, a step: %s", process.rank, describe_step(process))
    if deviation := result.deviation():
        log.warning("%s", deviation)
