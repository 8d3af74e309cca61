"""``transit record``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transit.commands.options import (
    DryRun,
    Force,
    JobCommand,
    SimulatedGpu,
    print_dry_run,
    required_command,
)

if TYPE_CHECKING:
    from transit.recorder.convert import Summary

log = logging.getLogger(__name__)


def record(
    command: JobCommand = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", envvar="TRANSIT_TRACE", help="Trace folder to write."
        ),
    ] = Path("trace"),
    iterations: Annotated[
        int,
        typer.Option(
            envvar="TRANSIT_ITERATIONS",
            min=0,
            help="Record so many optimizer steps; 0 is all. A job without PyTorch is "
            "recorded whole.",
        ),
    ] = 5,
    skip: Annotated[
        int,
        typer.Option(
            envvar="TRANSIT_SKIP", min=0, help="Let so many steps pass before."
        ),
    ] = 2,
    recover: Annotated[
        Path | None,
        typer.Option(
            metavar="SPOOL_DIR",
            help="Start nothing; convert what an interrupted recording left.",
        ),
    ] = None,
    simulated_gpu: SimulatedGpu = False,
    dry_run: DryRun = False,
    force: Force = False,
) -> None:
    """Run a job and record what its GPU work touches.

    The job runs unmodified; its exit code is returned, and what was recorded is kept
    however it ends.

    Example: transit record -o trace/ -- torchrun --nproc-per-node 8 train.py
    """
    from transit.recorder import session

    if recover is not None:
        _tell(session.recover(recover, output, overwrite=force), output)
        return
    job_command = required_command(command)
    if dry_run:
        run_dir = output.absolute().parent / f".{output.name}.spool-XXXXXXXX"
        variables = session.record_variables(
            run_dir, iterations=iterations, skip=skip, simulated_gpu=simulated_gpu
        )
        print_dry_run(variables, job_command)
        return
    recording = session.record(
        job_command,
        output,
        iterations=iterations,
        skip=skip,
        simulated_gpu=simulated_gpu,
        overwrite=force,
    )
    _tell(recording.summary, output)
    raise typer.Exit(recording.exit_code)


def _tell(summary: Summary, output: Path) -> None:
    log.info("wrote %s: %s", output, summary)
    log.info("next: transit compile %s --gpu-memory 80%%", output)
