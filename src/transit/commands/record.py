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
    from transit.recorder.summary import Summary

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
    exit_after: Annotated[
        bool,
        typer.Option(
            "--exit-after",
            envvar="TRANSIT_EXIT_AFTER",
            help="End the job when the recording is complete; the exit code is 0.",
        ),
    ] = False,
    directions: Annotated[
        bool,
        typer.Option(
            "--directions/--no-directions",
            envvar="TRANSIT_DIRECTIONS",
            help="Record one more optimizer step, hashing memory around each "
            "launch: what changed was written.",
        ),
    ] = True,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            envvar="TRANSIT_AUDIT",
            help="Record one more optimizer step, slowly, that finds memory touched "
            "through pointers that no launch names.",
        ),
    ] = False,
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

    The job runs unmodified and to its end; its exit code is returned. The trace is
    written as soon as the recording is complete, and also if the job ends before.

    Example: transit record -o trace/ -- torchrun --nproc-per-node 8 train.py
    """
    from transit.recorder import session

    if recover is not None:
        _tell(session.recover(recover, output, overwrite=force), output)
        return
    job_command = required_command(command)
    options = session.Options(
        iterations=iterations,
        skip=skip,
        directions=directions,
        audit=audit,
        simulated_gpu=simulated_gpu,
    )
    if dry_run:
        run_dir = output.absolute().parent / f".{output.name}.spool-XXXXXXXX"
        print_dry_run(session.record_variables(run_dir, options), job_command)
        return
    exit_code = session.record(
        job_command,
        output,
        options,
        on_trace=lambda summary: _tell(summary, output),
        exit_after=exit_after,
        overwrite=force,
    )
    raise typer.Exit(exit_code)


def _tell(summary: Summary, output: Path) -> None:
    log.info("wrote %s: %s", output, summary)
    for caveat in summary.caveats:
        log.warning("%s", caveat)
    if summary.directions:
        log.info("%s", summary.directions)
    if summary.audit:
        log.info("%s", summary.audit)
    log.info("next: transit compile %s --gpu-memory 80%%", output)
