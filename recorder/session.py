"""Run a job under the recorder, and turn what it leaves behind into a trace."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from transit.errors import JobError, TraceError, TransitError
from transit.recorder.job_file import RecordedJob
from transit.runtime import job
from transit.runtime.preload import recorder_library, shim_variables
from transit.runtime.simulated import simulated_variables

if TYPE_CHECKING:
    from transit.recorder.summary import Summary
    from transit.traces.manifest import Inspection

log = logging.getLogger(__name__)

INJECTION_VARIABLE = "CUDA_INJECTION64_PATH"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to record.

    Attributes
    ----------
    iterations, skip
        Record so many iterations (0: all) after so many.
    directions
        Record one more iteration that finds which of the named memory is written.
    audit
        Record one more iteration that finds what no launch names.
    simulated_gpu
        Run the job on the simulated GPU.
    """

    iterations: int
    skip: int
    directions: bool
    audit: bool
    simulated_gpu: bool

    @property
    def inspections(self) -> list[Inspection]:
        """What iterations are recorded for beside their times."""
        wanted: dict[Inspection, bool] = {
            "direction": self.directions,
            "audit": self.audit,
        }
        return [purpose for purpose, is_wanted in wanted.items() if is_wanted]


@dataclass(slots=True, kw_only=True)
class _Watcher:
    """Writes the trace once the recording is complete, while the job goes on."""

    run_dir: Path
    out: Path
    recorded: RecordedJob
    overwrite: bool
    exit_after: bool
    on_trace: Callable[[Summary], None]
    is_written: bool = False
    has_failed: bool = False

    def __call__(self) -> bool:
        """Return whether the job is to end now."""
        if self.is_written or self.has_failed or not _is_complete(self.run_dir):
            return False
        fate = "was ended" if self.exit_after else "went on"
        ended = f"{fate} after the recording"
        try:
            summary = convert_run(
                self.run_dir, self.out, self.recorded, ended, overwrite=self.overwrite
            )
        except Exception as error:  # whatever it is, the job goes on
            log.warning("%s (tried again when the job has ended)", error)
            self.has_failed = True
            return False
        self.is_written = True
        self.on_trace(summary)
        return self.exit_after


def record_variables(run_dir: Path, options: Options) -> dict[str, str]:
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
        "TRANSIT_ITERATIONS": str(options.iterations),
        "TRANSIT_SKIP": str(options.skip),
        "TRANSIT_DIRECTIONS": str(int(options.directions)),
        "TRANSIT_AUDIT": str(int(options.audit)),
    }
    if options.simulated_gpu:
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
    options: Options,
    *,
    on_trace: Callable[[Summary], None],
    exit_after: bool = False,
    overwrite: bool = False,
) -> int:
    """Run a job, write the trace of it, and return the job's exit code.

    The trace is written as soon as the recording is complete, or else when the job
    ends, however that may be.

    Parameters
    ----------
    command
        The job: a program and its arguments.
    out
        The trace folder to write.
    options
        What to record.
    on_trace
        Called when the trace is written.
    exit_after
        End the job then; the exit code is 0.
    overwrite
        Replace an existing trace, once the new one is complete.
    """
    from transit.traces.writer import refuse_existing

    out = out.absolute()
    refuse_existing(out, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Beside the trace: on the disk the user chose for it, and found after a crash.
    run_dir = Path(tempfile.mkdtemp(prefix=f".{out.name}.spool-", dir=out.parent))
    recorded = RecordedJob(command=list(command), inspections=options.inspections)
    watcher = _Watcher(
        run_dir=run_dir,
        out=out,
        recorded=recorded,
        overwrite=overwrite,
        exit_after=exit_after,
        on_trace=on_trace,
    )
    try:
        variables = record_variables(run_dir, options)
        recorded.write(run_dir)
        log.debug("recording into %s with %s", run_dir, variables)
        exit_code = job.run(command, job.full_environment(variables), watch=watcher)
    except TransitError:
        shutil.rmtree(run_dir)
        raise
    if watcher.is_written:
        shutil.rmtree(run_dir)
        return 0 if exit_after else exit_code
    on_trace(_convert_own(run_dir, out, recorded, exit_code, overwrite=overwrite))
    return exit_code


def _is_complete(run_dir: Path) -> bool:
    """Tell whether a process has recorded all it was to, and none is still at it."""
    from transit.recorder.spool import read_records
    from transit.recorder.tables import RECORDING_COMPLETE, RECORDING_STARTED

    try:
        marks = [
            set(read_records(spool, "mark")["kind"].tolist())
            for spool in run_dir.glob("spool-*")
        ]
    except TraceError:
        return False  # a file in the making
    complete = [RECORDING_COMPLETE in kinds for kinds in marks]
    started = [RECORDING_STARTED in kinds for kinds in marks]
    return any(complete) and complete == started


def _convert_own(
    run_dir: Path,
    out: Path,
    recorded: RecordedJob,
    exit_code: int,
    *,
    overwrite: bool,
) -> Summary:
    """Convert the spool of a job that just ended and drop it, or else keep it."""
    try:
        if not run_dir.is_dir():
            raise JobError(
                f"{run_dir}: this folder was removed while the job wrote its recording "
                "there; nothing is left of it"
            )
        ended = job.describe_exit(exit_code)
        summary = convert_run(run_dir, out, recorded, ended, overwrite=overwrite)
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
            shutil.rmtree(run_dir, ignore_errors=True)
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
    recorded = RecordedJob.read(run_dir)
    return convert_run(
        run_dir, out.absolute(), recorded, "recovered", overwrite=overwrite
    )


def convert_run(
    run_dir: Path, out: Path, recorded: RecordedJob, ended: str, *, overwrite: bool
) -> Summary:
    """Convert every spool of a run folder into the trace `out`."""
    from transit.recorder.convert import convert
    from transit.runtime.status import read_run

    launches_seen = {p.pid: p.launches_seen for p in read_run(run_dir)}
    return convert(
        run_dir,
        out,
        command=recorded.command,
        inspections=recorded.inspections,
        ended=ended,
        overwrite=overwrite,
        hooks=launches_seen,
        progress=log.info if sys.stderr.isatty() else log.debug,
    )
