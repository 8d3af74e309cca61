"""One GPU through the CUDA driver: memory that goes back, kernels, and time."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from cuda.bindings import driver as cu

from transit.errors import MachineError
from transit.units import format_bytes

WORD_BYTES = 16
THREADS_PER_BLOCK = 256
MAX_BLOCKS = 4096
LOADS_IN_FLIGHT = 4  # of each thread, see kernels.cu

# Renamed by CUDA 13, whose functions without a suffix are those of 12 with one.
_prefetch = getattr(cu, "cuMemPrefetchAsync_v2", None) or cu.cuMemPrefetchAsync
_advise = getattr(cu, "cuMemAdvise_v2", None) or cu.cuMemAdvise


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the driver and return its result.

    Raises
    ------
    MachineError
        If the driver reports an error.
    """
    error, *results = function(*arguments)
    if error != cu.CUresult.CUDA_SUCCESS:
        text = cu.cuGetErrorString(error)[1] or b"unknown error"
        raise MachineError(f"{function.__name__} failed: {error.name}: {text.decode()}")
    return results[0] if len(results) == 1 else results


def release(function: Callable[..., Any], *arguments: Any) -> None:
    """Give something back. Where that fails, something failed before, and says so."""
    function(*arguments)


class Gpu:
    """A GPU with a context, two streams, and the kernels that sweep over memory."""

    def __init__(self, ordinal: int) -> None:
        self.device = _find_device(ordinal)
        self.ordinal = ordinal
        self.context = call(cu.cuDevicePrimaryCtxRetain, self.device)
        self.make_current()
        non_blocking = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = call(cu.cuStreamCreate, non_blocking)
        self.other_stream = call(cu.cuStreamCreate, non_blocking)
        ptx = files("transit.runtime.calibration").joinpath("kernels.ptx").read_bytes()
        self._module = call(cu.cuModuleLoadData, ptx + b"\0")
        self._events = [call(cu.cuEventCreate, 0) for _ in range(3)]
        self._managed_bytes = 0

    def close(self) -> None:
        """Give back everything; memory goes back by itself."""
        for event in self._events:
            release(cu.cuEventDestroy, event)
        release(cu.cuModuleUnload, self._module)
        release(cu.cuStreamDestroy, self.stream)
        release(cu.cuStreamDestroy, self.other_stream)
        release(cu.cuDevicePrimaryCtxRelease, self.device)

    def make_current(self) -> None:
        """Let this thread use it."""
        call(cu.cuCtxSetCurrent, self.context)

    @property
    def name(self) -> str:
        """The driver's name for it."""
        name: bytes = call(cu.cuDeviceGetName, 128, self.device)
        return name.split(b"\0")[0].decode()

    @property
    def driver_version(self) -> int:
        """The CUDA version that its driver is for, as 13000."""
        return int(call(cu.cuDriverGetVersion))

    def attribute(self, name: str) -> int:
        """Return a device attribute, such as ``L2_CACHE_SIZE``."""
        wanted = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call(cu.cuDeviceGetAttribute, wanted, self.device))

    def free_bytes(self) -> int:
        """Return how much of its memory nobody uses."""
        return int(call(cu.cuMemGetInfo)[0])

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Allocate memory of the GPU."""
        address = int(call(cu.cuMemAlloc, size))
        try:
            yield address
        finally:
            release(cu.cuMemFree, address)

    @contextmanager
    def pinned(self, size: int) -> Iterator[int]:
        """Allocate host memory that copies and kernels get at."""
        address = int(call(cu.cuMemHostAlloc, size, 0))
        try:
            yield address
        finally:
            release(cu.cuMemFreeHost, address)

    @contextmanager
    def managed(self, size: int) -> Iterator[int]:
        """Allocate managed memory, populated on the host, if that is safe.

        A driver that runs out of memory evicts, which can hang a card. So all managed
        memory stays below a quarter of what is free.
        """
        total_bytes = self._managed_bytes + size
        if 4 * total_bytes >= self.free_bytes():
            raise MachineError(
                f"{format_bytes(total_bytes)} of managed memory are needed, and just "
                f"{format_bytes(self.free_bytes())} are free on the GPU; wait until it "
                "is not in use"
            )
        flags = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
        address = int(call(cu.cuMemAllocManaged, size, flags.value))
        self._managed_bytes = total_bytes
        try:
            ctypes.memset(address, 1, size)
            yield address
        finally:
            release(cu.cuMemFree, address)
            self._managed_bytes -= size

    def sweep(self, kernel: str, address: int, size: int, total_bytes: int) -> None:
        """Queue a kernel that goes over memory until it has touched `total_bytes`.

        `size` is a power of two. The kernel may be ``transit_read``,
        ``transit_write`` or ``transit_update``.
        """
        words = total_bytes // WORD_BYTES
        per_block = THREADS_PER_BLOCK * LOADS_IN_FLIGHT
        blocks = max(1, min(MAX_BLOCKS, words // per_block))
        function = call(cu.cuModuleGetFunction, self._module, kernel.encode())
        values = (address, words, size // WORD_BYTES - 1)
        parameters = (values, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t))
        shape = (blocks, 1, 1, THREADS_PER_BLOCK, 1, 1, 0, self.stream)
        call(cu.cuLaunchKernel, function, *shape, parameters, 0)

    def prefetch(
        self, address: int, size: int, location: cu.CUmemLocation, stream: Any
    ) -> None:
        """Queue the move of managed memory."""
        call(_prefetch, address, size, location, 0, stream)

    def advise(
        self, address: int, size: int, advice: str, location: cu.CUmemLocation
    ) -> None:
        """Give advice on managed memory, such as ``SET_READ_MOSTLY``."""
        wanted = getattr(cu.CUmem_advise, f"CU_MEM_ADVISE_{advice}")
        call(_advise, address, size, wanted, location)

    def here(self) -> cu.CUmemLocation:
        """Return the location of the GPU's own memory."""
        return _location("DEVICE", self.ordinal)

    def host(self) -> cu.CUmemLocation:
        """Return the location of host memory."""
        return _location("HOST", 0)

    def host_nearby(self) -> cu.CUmemLocation:
        """Return the location of the host memory that is nearest to the GPU."""
        node = self.attribute("HOST_NUMA_ID")
        return self.host() if node < 0 else _location("HOST_NUMA", node)

    def gpu_ns(
        self, *work: Callable[[], None], behind: Callable[[], None] | None = None
    ) -> float:
        """Return how long the GPU is busy with what is queued, the longer of two.

        The second of two has to queue to the other stream. What is `behind` is queued
        first and does not count.
        """
        start, *ends = self._events
        streams = (self.stream, self.other_stream)
        self.synchronize()
        if behind:
            behind()
        call(cu.cuEventRecord, start, self.stream)
        call(cu.cuStreamWaitEvent, self.other_stream, start, 0)
        for queue, end, stream in zip(work, ends, streams, strict=False):
            queue()
            call(cu.cuEventRecord, end, stream)
        self.synchronize()
        elapsed_ms: list[float] = [
            call(cu.cuEventElapsedTime, start, end) for end in ends[: len(work)]
        ]
        return max(elapsed_ms) * 1e6

    def wall_ns(self, work: Callable[[], None]) -> float:
        """Return how long it takes to do something and have the GPU done with it."""
        self.synchronize()
        start_ns = time.perf_counter_ns()
        work()
        self.synchronize()
        return float(time.perf_counter_ns() - start_ns)

    def synchronize(self) -> None:
        """Wait until the GPU has nothing left to do."""
        call(cu.cuCtxSynchronize)


def _location(kind: str, number: int) -> cu.CUmemLocation:
    location = cu.CUmemLocation()
    location.type = getattr(cu.CUmemLocationType, f"CU_MEM_LOCATION_TYPE_{kind}")
    location.id = number
    return location


def _find_device(ordinal: int) -> Any:
    try:
        call(cu.cuInit, 0)
    except RuntimeError as error:  # from looking for the driver's library
        raise MachineError(f"there is no NVIDIA driver here: {error}") from None
    count = call(cu.cuDeviceGetCount)
    if not 0 <= ordinal < count:
        numbers = "one, number 0" if count == 1 else f"{count}, numbered from 0"
        raise MachineError(
            f"there is no GPU {ordinal}: of those that CUDA shows, there are {numbers}"
        )
    return call(cu.cuDeviceGet, ordinal)
