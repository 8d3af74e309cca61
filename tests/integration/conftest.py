"""The jobs that the tests of the native libraries run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from recorder_jobs import Jobs
from shim_job import Job

from transit.runtime.status import ProcessStatus, read_run


@pytest.fixture
def job(native_libs: Path, simgpu_env: Mapping[str, str], tmp_path: Path) -> Job:
    def run(
        *command: str,
        plan: bytes | None = None,
        backend: str = "vmm",
        env: Mapping[str, str] | None = None,
        exit_code: int = 0,
    ) -> tuple[subprocess.CompletedProcess[str], list[ProcessStatus]]:
        run_dir = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        run_dir.mkdir()
        preload = [simgpu_env.get("LD_PRELOAD", ""), str(native_libs / "libtransit.so")]
        shimmed = dict(simgpu_env)
        shimmed["LD_PRELOAD"] = ":".join(filter(None, preload))
        shimmed["TRANSIT_RUN_DIR"] = str(run_dir)
        if plan is not None:
            (run_dir / "rank=0.flat").write_bytes(plan)
            shimmed["TRANSIT_PLAN_DIR"] = str(run_dir)
            shimmed["TRANSIT_BACKEND"] = backend
        result = subprocess.run(
            [sys.executable, *command],
            env=shimmed | dict(env or {}),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert result.returncode == exit_code, result.stderr
        return result, read_run(run_dir)

    return run


@pytest.fixture
def jobs(native_libs: Path, simgpu_env: Mapping[str, str], tmp_path: Path) -> Jobs:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    return Jobs(native_libs, simgpu_env, run_dir)
