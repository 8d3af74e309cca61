"""The GPUs a job would find, asked in a process of its own.

Initialising CUDA here would leave a context behind in the launcher, and the simulated
GPU is found through an environment that only a new process can have.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

PROBE_TIMEOUT_S = 60  # many GPUs without persistence mode take tens of seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU as the driver describes it."""

    name: str
    memory_bytes: int
    driver_version: int


def visible_devices(environment: Mapping[str, str]) -> list[Device]:
    """Return the GPUs a job with this environment sees; none without a driver."""
    try:
        probe = subprocess.run(
            [sys.executable, "-m", "transit.runtime.devices"],
            env=environment,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return []
    if probe.returncode != 0:
        return []
    return [Device(**device) for device in json.loads(probe.stdout)]


def _query() -> list[Device]:
    from cuda.bindings import driver

    def check(result: tuple[object, ...]) -> object:
        if result[0] != driver.CUresult.CUDA_SUCCESS:
            raise SystemExit(f"{result[0]!r}")
        return result[1] if len(result) > 1 else None

    check(driver.cuInit(0))
    version = check(driver.cuDriverGetVersion())
    count = check(driver.cuDeviceGetCount())
    assert isinstance(version, int)
    assert isinstance(count, int)
    devices = []
    for ordinal in range(count):
        device = check(driver.cuDeviceGet(ordinal))
        name = check(driver.cuDeviceGetName(128, device))
        memory_bytes = check(driver.cuDeviceTotalMem(device))
        assert isinstance(name, bytes)
        assert isinstance(memory_bytes, int)
        devices.append(
            Device(
                name=name.split(b"\0")[0].decode(),
                memory_bytes=memory_bytes,
                driver_version=version,
            )
        )
    return devices


if __name__ == "__main__":
    print(json.dumps([asdict(device) for device in _query()]))
