"""Measure all that a machine profile says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from transit.compiler.machine import BackendName
from transit.errors import MachineError
from transit.runtime import host_memory
from transit.runtime.calibration import uvm, vmm
from transit.runtime.calibration.copies import copies
from transit.runtime.calibration.gpu import Gpu
from transit.runtime.calibration.measurement import Measurement
from transit.runtime.calibration.memory import own_memory, zero_copy
from transit.units import format_bytes

LARGEST_BLOCK_BYTES = 1 << 30
LEAST_BLOCK_BYTES = 64 << 20  # with less, caches would be measured
SHARE = 8  # of what is free, a block at most

Measurements = dict[str, list[Measurement]]


@dataclass(slots=True, kw_only=True)
class Calibration:
    """What was measured on one GPU, the smallest pieces first."""

    gpu_name: str
    driver_version: int
    gpu_memory_bytes: int
    host_memory_bytes: int
    memory: Measurements = field(default_factory=dict)
    link: Measurements = field(default_factory=dict)
    zero_copy: Measurements = field(default_factory=dict)
    backends: dict[BackendName, Measurements] = field(default_factory=dict)

    def all(self) -> list[Measurement]:
        """Return every measurement, in the order they were made."""
        groups = [self.memory, self.link, self.zero_copy, *self.backends.values()]
        return [
            one for group in groups for several in group.values() for one in several
        ]


def calibrate(ordinal: int, on_step: Callable[[str], None]) -> Calibration:
    """Measure a GPU and its link; `on_step` is told what comes next.

    Raises
    ------
    MachineError
        If there is no such GPU, too little memory is free, or the driver fails.
    """
    with closing(Gpu(ordinal)) as gpu:
        found = Calibration(
            gpu_name=gpu.name,
            driver_version=gpu.driver_version,
            gpu_memory_bytes=gpu.free_bytes(),
            host_memory_bytes=host_memory.available_bytes(),
        )
        block = _block_bytes(found)
        on_step("GPU memory")
        found.memory = own_memory(gpu, block)
        on_step("copies")
        found.link = copies(gpu, block // 2)
        on_step("host memory in place")
        found.zero_copy = zero_copy(gpu, block // 4)
        if vmm.supported(gpu):
            on_step("windows of backend vmm")
            found.backends["vmm"] = vmm.windows(gpu, block)
        if uvm.supported(gpu):
            on_step("windows of backend uvm")
            found.backends["uvm"] = uvm.windows(gpu, block // 2)
        return found


def _block_bytes(found: Calibration) -> int:
    """Return the size of blocks that leaves other users of the machine in peace."""
    for where, free_bytes in (
        ("on the GPU", found.gpu_memory_bytes),
        ("on the host", found.host_memory_bytes),
    ):
        if free_bytes < SHARE * LEAST_BLOCK_BYTES:
            raise MachineError(
                f"{format_bytes(free_bytes)} of memory are free {where}; calibrate "
                f"needs {format_bytes(SHARE * LEAST_BLOCK_BYTES)}"
            )
    share = min(found.gpu_memory_bytes, found.host_memory_bytes) // SHARE
    return min(LARGEST_BLOCK_BYTES, 1 << (share.bit_length() - 1))
