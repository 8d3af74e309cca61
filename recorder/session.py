"""Run a job under the recorder, and turn what it leaves behind into a trace."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from transit.errors import JobError, TraceError, TransitError
from transit.runtime import job
from transit.runtime.preload import recorder_library, shim_variables
from transit.runtime.simulated import simulated_variables

if TYPE_CHECKING:
    from transit.recorder.convert import Summary

log = logging.getLogger(__name__)

INJECTION_VARIABLE = "CUDA_INJECTION64_PATH"
JOB_FILE = "job.json"  # what a recovery needs to know and the spool does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """How a recorded job ended and what its trace holds."""

    exit_code: int
    summary: Summary


def record_variables(
    run_dir: Path, *, iterations: int, skip: int, simulated_gpu: bool
) -> dict[str, str]:
    """Return the variables that make a job record itself into a run folder."""
    if present := os.environ.get(INJECTION_VARIABLE):
        raise JobError(
            f"{INJECTION_VARIABLE} is already set to {present}: another tool observes "
            "the job, and CUDA takes only one; unset it to record"
        )
    hook = str(resources.files("transit.recorder").joinpath("hook"))
    python_path = os.environ.get("PYTHONPATH")
    variables = shim_variables(run_dir) | {
        INJECTION_VARIABLE: str(recorder_library()),
        "PYTHONPATH": f"{hook}{os.pathsep}{python_path}" if python_path else hook,
        "TRANSIT_ITERATIONS": str(iterations),
        "TRANSIT_SKIP": str(skip),
    }
    if simulated_gpu:
        return variables | simulated_variables()
    return variables | _cupti_variables()


def _cupti_variables() -> dict[str, str]:
    """Name a CUPTI for jobs that load none themselves."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    if "TRANSIT_LIBCUPTI" in os.environ:
        return {}
    try:
        path = load_nvidia_dynamic_lib("cupti").abs_path
    except DynamicLibNotFoundError:
        return {}  # the job may bring one, else the recorder says what is missing
    return {"TRANSIT_LIBCUPTI": path} if path else {}


def record(
    command: Sequence[str],
    out: Path,
    *,
    iterations: int,
    skip: int,
    simulated_gpu: bool = False,
    overwrite: bool = False,
) -> Recording:
    """Run a job and write the trace of it, however the job ends.

    Parameters
    ----------
    command
        The job: a program and its arguments.
    out
        The trace folder to write.
    iterations, skip
        Record so many iterations (0: all) after so many.
    simulated_gpu
        Run the job on the simulated GPU.
    overwrite
        Replace an existing trace, once the new one is complete.
    """
    from transit.traces.writer import refuse_existing

    out = out.absolute()
    refuse_existing(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the trace: on the disk the user chose for it, and found after a crash.
    run_dir = Path(tempfile.mkdtemp(prefix=f".{out.name}.spool-", dir=out.parent))
    try:
        variables = record_variables(
            run_dir, iterations=iterations, skip=skip, simulated_gpu=simulated_gpu
        )
        (run_dir / JOB_FILE).write_text(json.dumps({"command": list(command)}))
        log.debug("recording into %s with %s", run_dir, variables)
        exit_code = job.run(command, job.full_environment(variables))
    except TransitError:
        shutil.rmtree(run_dir)
        raise
    summary = _convert_own(run_dir, out, command, exit_code, overwrite=overwrite)
    return Recording(exit_code=exit_code, summary=summary)


def _convert_own(
    run_dir: Path,
    out: Path,
    command: Sequence[str],
    exit_code: int,
    *,
    overwrite: bool,
) -> Summary:
    """Convert the spool of a job that just ended and drop it, or else keep it."""
    try:
        ended = job.describe_exit(exit_code)
        summary = convert_run(run_dir, out, command, ended, overwrite=overwrite)
    except BaseException as error:
        if any(run_dir.glob("spool-*/launch.spool")):
            log.warning(
                "what was recorded is kept in %s; try: transit record --recover %s "
                "-o %s",
                run_dir,
                shlex.quote(str(run_dir)),
                shlex.quote(str(out)),
            )
        else:
            shutil.rmtree(run_dir)
        if isinstance(error, TransitError) and exit_code:
            error.exit_code = exit_code  # the job's own failure comes first
        raise
    shutil.rmtree(run_dir)
    return summary


def recover(run_dir: Path, out: Path, *, overwrite: bool = False) -> Summary:
    """Write the trace of a recording that transit itself did not live to convert."""
    from transit.traces.writer import refuse_existing

    refuse_existing(out, overwrite=overwrite)
    if not run_dir.is_dir():
        raise TraceError(f"{run_dir}: no such folder; name the .spool-... folder left")
    try:
        command = json.loads((run_dir / JOB_FILE).read_text())["command"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceError(
            f"{run_dir}: not a spool folder of transit's: {JOB_FILE} is missing or "
            "damaged"
        ) from error
    return convert_run(
        run_dir, out.absolute(), command, "recovered", overwrite=overwrite
    )


def convert_run(
    run_dir: Path, out: Path, command: Sequence[str], ended: str, *, overwrite: bool
) -> Summary:
    """Convert every spool of a run folder into the trace `out`."""
    from transit.recorder.convert import convert
    from transit.runtime.status import read_run

    launches_seen = {p.pid: p.launches_seen for p in read_run(run_dir)}
    return convert(
        run_dir,
        out,
        command=list(command),
        ended=ended,
        overwrite=overwrite,
        hooks=launches_seen,
        progress=log.info if sys.stderr.isatty() else log.debug,
    )
