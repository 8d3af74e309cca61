"""A recording of one kernel and one managed page: does CUPTI really report them?

An older CUPTI on a newer GPU, and some virtual machines, accept every call and report
nothing. Only a recording shows it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from transit.errors import TransitError
from transit.recorder.launches import KERNEL
from transit.recorder.session import Options, record_variables
from transit.recorder.spool import Spool
from transit.recorder.uvm import DIRECTIONS
from transit.runtime import job
from transit.runtime.devices import PROBE_TIMEOUT_S
from transit.runtime.doctor import Finding, Verdict

LAUNCHES, TIMES, MIGRATIONS = "launches", "kernel times", "managed memory"


def examine_recording(*, simulated_gpu: bool = False) -> list[Finding]:
    """Record a small job and look for all that it did."""
    with tempfile.TemporaryDirectory(prefix="transit-doctor-") as folder:
        try:
            spool, error = _record(Path(folder), simulated_gpu=simulated_gpu)
        except TransitError as refusal:
            spool, error = None, str(refusal)
        if spool is None:
            return [_warning("recording", f"record will not work: {error}")]
        records = spool.records
        findings = [
            _launches(records),
            _kernel_times(records, int(records["process"]["cupti_version"][0])),
            _migrations(records, error),
        ]
        del spool, records  # mapped files of the folder
        return findings


def _record(run_dir: Path, *, simulated_gpu: bool) -> tuple[Spool | None, str]:
    """Return what the job left, if anything, and its last words if it failed."""
    options = Options(
        iterations=0, skip=0, directions=False, audit=False, simulated_gpu=simulated_gpu
    )
    variables = record_variables(run_dir, options)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "transit.recorder.self_test_job"],
            env=job.full_environment(variables),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return None, f"a job of one kernel did not end within {PROBE_TIMEOUT_S} s"
    last_line = done.stderr.strip().splitlines()[-1:]
    error = ""
    if done.returncode != 0:
        error = (
            last_line[0].removeprefix("transit: ")
            if last_line
            else job.describe_exit(done.returncode)
        )
    folders = [path.parent for path in run_dir.glob("spool-*/process.spool")]
    if error and not done.stdout:  # not even the kernel ran
        return None, error
    if len(folders) != 1:
        return None, "the recorder left nothing"
    return Spool.open(folders[0]), error


def _launches(records: Mapping[str, Any]) -> Finding:
    kernels = records["launch"]["launch_id"][records["launch"]["kind"] == KERNEL]
    if not len(kernels):
        return _warning(LAUNCHES, "CUPTI did not report the launch of a kernel")
    if not np.isin(kernels, records["access"]["launch_id"]).all():
        return _warning(LAUNCHES, "the memory that a kernel was given was not found")
    return Finding(LAUNCHES, Verdict.OK, "a launch and its memory were recorded")


def _kernel_times(records: Mapping[str, Any], version: int) -> Finding:
    activities = records["activity"]
    kernels = activities[activities["kind"] == KERNEL]
    if not len(kernels):
        return _warning(
            TIMES,
            f"a kernel ran and CUPTI (version {version}) reported none: it is probably "
            "older than this GPU; install the nvidia-cuda-cupti of the driver's CUDA, "
            "or name one by TRANSIT_LIBCUPTI",
        )
    if not (kernels["end_ns"] > kernels["start_ns"]).all():
        return _warning(
            TIMES,
            "CUPTI reported a kernel without its time: it has no device memory to note "
            "times in; is the GPU full?",
        )
    return Finding(TIMES, Verdict.OK, "a kernel's time was recorded")


def _migrations(records: Mapping[str, Any], error: str) -> Finding:
    if error:
        return _warning(MIGRATIONS, f"one page of it could not be used: {error}")
    kinds = set(records["uvm"]["counter_kind"].tolist())
    missing = [DIRECTIONS[kind] for kind in (1, 2) if kind not in kinds]
    if missing:
        return _warning(
            MIGRATIONS,
            f"a page moved and CUPTI did not report it ({' and '.join(missing)}): "
            "what managed memory does will not be recorded",
        )
    return Finding(MIGRATIONS, Verdict.OK, "a page's moves were recorded both ways")


def _warning(check: str, detail: str) -> Finding:
    return Finding(check, Verdict.WARNING, detail)
