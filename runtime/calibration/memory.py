"""Kernels on memory: the GPU's own, its caches, and the host's in place."""

from __future__ import annotations

from transit.runtime.calibration.gpu import Gpu
from transit.runtime.calibration.measurement import Measurement, measure

SWEEPS = {"read": "transit_read", "write": "transit_write", "both": "transit_update"}
LARGEST_IN_L2 = 4  # a part of L2 that is sure to be held: hashing is not perfect
LEAST_L2_BYTES = 1 << 20
PASSES = 4  # over a block, so that the start and the end of a kernel do not count
SMALLEST_KERNEL_BYTES = 1 << 14
BUSY_BYTES = 4 << 30  # read by a kernel that others queue behind


def own_memory(gpu: Gpu, size: int) -> dict[str, list[Measurement]]:
    """Read the GPU's memory, then a part that fits into L2, and time a tiny kernel."""
    held_bytes = max(gpu.attribute("L2_CACHE_SIZE") // LARGEST_IN_L2, LEAST_L2_BYTES)
    in_l2 = min(1 << (held_bytes.bit_length() - 1), size)
    with gpu.memory(size) as address:
        gpu.sweep("transit_write", address, size, size)

        def reading(what: str, distinct: int) -> list[Measurement]:
            def run() -> float:
                return gpu.gpu_ns(
                    lambda: gpu.sweep("transit_read", address, distinct, PASSES * size)
                )

            return [measure(f"kernel to read {what}", run, moved_bytes=PASSES * size)]

        launch = measure("smallest kernel", lambda: _smallest_ns(gpu, address))
        return {
            "hbm": reading("GPU memory", size),
            "l2": reading("L2", in_l2),
            "launch": [launch],
        }


def _smallest_ns(gpu: Gpu, address: int) -> float:
    """Return what a kernel that does next to nothing takes, behind another one.

    Behind another one, as otherwise it would be the host that is measured.
    """

    def read(total: int) -> None:
        gpu.sweep("transit_read", address, SMALLEST_KERNEL_BYTES, total)

    return gpu.gpu_ns(
        lambda: read(SMALLEST_KERNEL_BYTES), behind=lambda: read(BUSY_BYTES)
    )


def zero_copy(gpu: Gpu, size: int) -> dict[str, list[Measurement]]:
    """Read, write and update host memory in place."""
    with gpu.pinned(size) as address:
        gpu.sweep("transit_write", address, size, size)

        def sweep(kernel: str) -> list[Measurement]:
            def run() -> float:
                return gpu.gpu_ns(lambda: gpu.sweep(kernel, address, size, size))

            what = f"{kernel.removeprefix('transit_')} host memory in place"
            return [measure(f"kernel to {what}", run, moved_bytes=size)]

        return {way: sweep(kernel) for way, kernel in SWEEPS.items()}
