"""Where the native libraries are, and how a test runs a job or ``transit`` on them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import pytest

TIMEOUT_S = 120


class RunTransit(Protocol):
    """Run ``python -m transit`` with the given arguments, and wait for it."""

    def __call__(
        self,
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]: ...


def _gather_installed(folder: Path) -> Path:
    """Link the installed libraries into the layout ``TRANSIT_LIB_DIR`` has."""
    runtime, recorder = files("transit.runtime"), files("transit.recorder")
    (folder / "simgpu").mkdir()
    for name, source in {
        "libtransit.so": runtime / "libtransit.so",
        "libtransit_recorder.so": recorder / "libtransit_recorder.so",
        "simgpu/lib": runtime / "simgpu" / "lib",
    }.items():
        if not (source.is_file() or source.is_dir()):
            pytest.fail(f"{name} is not built: pip install -e . (or TRANSIT_LIB_DIR)")
        (folder / name).symlink_to(str(source))
    return folder


@pytest.fixture(scope="session")
def native_libs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with libtransit.so, libtransit_recorder.so and simgpu/lib."""
    built = os.environ.get("TRANSIT_LIB_DIR")
    if built:
        return Path(built).resolve()
    return _gather_installed(tmp_path_factory.mktemp("native_libs"))


@pytest.fixture(scope="session")
def simgpu_env(native_libs: Path) -> Mapping[str, str]:
    """The environment of a job on the simulated GPU; extend it with ``|``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRANSIT_")}
    env.pop("CUDA_INJECTION64_PATH", None)
    env["TRANSIT_LIB_DIR"] = str(native_libs)
    for name, first in {
        "LD_LIBRARY_PATH": [native_libs / "simgpu" / "lib"],
        "PYTHONPATH": [],
    }.items():
        inherited = [Path(p).resolve() for p in env.get(name, "").split(":") if p]
        env[name] = ":".join(map(str, [*first, *inherited]))
    return MappingProxyType(env)


@pytest.fixture(scope="session")
def run_transit(simgpu_env: Mapping[str, str]) -> RunTransit:
    """``run_transit(["record", ...])``, on the simulated GPU unless told otherwise."""

    def run(
        args: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "transit", *map(str, args)],
            env=simgpu_env if env is None else env,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
        )

    return run


def _has_gpu() -> bool:
    """Ask the driver, in a process of its own: a test must not inherit its state."""
    probe = (
        "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int();"
        "assert not driver.cuInit(0) and not driver.cuDeviceGetCount("
        "ctypes.byref(count)) and count.value and not hasattr(driver,"
        " 'simgpu_set_observer')"
    )
    command = [sys.executable, "-c", probe]
    return subprocess.run(command, capture_output=True).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_gpu():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))
