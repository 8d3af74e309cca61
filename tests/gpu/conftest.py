"""How the GPU tests start jobs: on the machine's own driver, within safe bounds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

MOST_MANAGED_BYTES = 12 << 30  # no test here needs more


@pytest.fixture(scope="session")
def gpu_env(native_libs: Path) -> Mapping[str, str]:
    """The environment of a job on the real GPU."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TRANSIT_")}
    return env | {"TRANSIT_LIB_DIR": str(native_libs)}


@pytest.fixture(params=["vmm", "uvm"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend; the one on managed memory only where that is safe."""
    name: str = request.param
    if name == "uvm":
        skip_without_room_for_managed_memory()
    return name


@pytest.fixture
def room_for_managed_memory() -> None:
    """For tests that need managed memory whatever the backend."""
    skip_without_room_for_managed_memory()


def skip_without_room_for_managed_memory() -> None:
    """Stay below a quarter of what is free: eviction can hang a shared card."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=30)
    if answer.returncode:
        pytest.skip("nvidia-smi does not say how much GPU memory is free")
    free_bytes = min(int(line) for line in answer.stdout.splitlines()) << 20
    if free_bytes <= 4 * MOST_MANAGED_BYTES:
        pytest.skip(f"{free_bytes} bytes free: too few for managed memory")
