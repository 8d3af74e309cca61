"""Windows on mapped memory: a copy through aliases, then the addresses change sides.

Each piece keeps its address, which leads to the GPU's memory or to the host's. A few
copies are in flight each way, while one thread maps what was copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from cuda.bindings import driver as cu

from transit.runtime.calibration.gpu import Gpu, call, release
from transit.runtime.calibration.measurement import Measurement, measure

PIECES_BYTES = (2 << 20, 8 << 20, 32 << 20)
MAX_PIECES = 64
MAX_IN_FLIGHT = 3


def supported(gpu: Gpu) -> bool:
    """Tell whether the driver can map host memory as it maps the GPU's."""
    return bool(
        gpu.attribute("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
        and gpu.attribute("HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
    )


def windows(gpu: Gpu, size: int) -> dict[str, list[Measurement]]:
    """Move pieces of several sizes in, out, out without a copy, and both ways at once.

    Takes up to `size` bytes of the GPU, and twice that of the host.
    """
    found: dict[str, list[Measurement]] = {}
    for piece_bytes in PIECES_BYTES:
        count = min(size // piece_bytes, MAX_PIECES)
        if count > MAX_IN_FLIGHT:
            with ExitStack() as resources:
                pieces = _Pieces(gpu, piece_bytes, count, resources)
                for way, measurement in _measure(gpu, pieces).items():
                    found.setdefault(way, []).append(measurement)
    return found


def _measure(gpu: Gpu, pieces: _Pieces) -> dict[str, Measurement]:
    nothing: range = range(0)
    some, others = range(pieces.count), range(pieces.count, 2 * pieces.count)

    def timed(what: str, held: range, work: Callable[[], None]) -> Measurement:
        return measure(
            f"vmm: {what}",
            partial(gpu.wall_ns, work),
            prepare=lambda: pieces.hold(held),
            moved_bytes=pieces.count * pieces.piece_bytes,
            pieces=pieces.count,
        )

    return {
        "load": timed("load", nothing, lambda: pieces.move(nothing, some)),
        "store": timed("store", some, lambda: pieces.move(some, nothing)),
        "both": timed("both ways, each", some, lambda: pieces.move(some, others)),
        "drop": timed("drop", some, lambda: pieces.drop(some)),
    }


class _Pieces:
    """Twice as many pieces as there is memory for on the GPU; at first on the host."""

    def __init__(
        self, gpu: Gpu, piece_bytes: int, count: int, resources: ExitStack
    ) -> None:
        self.piece_bytes = piece_bytes
        self.count = count
        self._mapper = mapper = _Mapper(gpu, piece_bytes, resources)
        self._outward = _Copies(gpu.other_stream, piece_bytes, resources)
        self._inward = _Copies(gpu.stream, piece_bytes, resources)
        self._on_host = mapper.create(gpu.host_nearby(), 2 * count)
        self._on_gpu = mapper.create(gpu.here(), count)
        # Copies go through aliases, whatever the pieces' own addresses lead to.
        self._host_alias = mapper.map_all(self._on_host)
        self._gpu_alias = mapper.map_all(self._on_gpu)
        self._base = mapper.map_all(self._on_host)
        resources.callback(release, cu.cuCtxSynchronize)  # before anything goes back
        self._slot_of: dict[int, int] = {}  # of the pieces that are on the GPU
        self._free_slots = deque(range(count))

    def hold(self, wanted: Iterable[int]) -> None:
        """Have these pieces on the GPU, and no others."""
        self.drop(list(self._slot_of))
        self.move((), wanted)

    def drop(self, leaving: Iterable[int]) -> None:
        """Let pieces go; what the host has of them is all there is to know."""
        for index in leaving:
            self._mapper.remap(self._base, index, self._on_host[index])
            self._free_slots.append(self._slot_of.pop(index))

    def move(self, leaving: Iterable[int], coming: Iterable[int]) -> None:
        """Copy pieces out, and others in as soon as there is room for them."""
        leave, come = deque(leaving), deque(coming)
        outward, inward = self._outward, self._inward
        while leave or come or outward.pending or inward.pending:
            if leave and outward.has_room():
                index = leave.popleft()
                outward.start(index, self._host_copy(index), self._gpu_copy(index))
            if come and self._free_slots and inward.has_room():
                index = come.popleft()
                self._slot_of[index] = self._free_slots.popleft()
                inward.start(index, self._gpu_copy(index), self._host_copy(index))
            self.drop(outward.finished())
            for index in inward.finished():
                handle = self._on_gpu[self._slot_of[index]]
                self._mapper.remap(self._base, index, handle)

    def _host_copy(self, index: int) -> int:
        return self._host_alias + index * self.piece_bytes

    def _gpu_copy(self, index: int) -> int:
        return self._gpu_alias + self._slot_of[index] * self.piece_bytes


class _Copies:
    """The copies of one direction, a few in flight."""

    def __init__(self, stream: Any, piece_bytes: int, resources: ExitStack) -> None:
        self.pending: deque[tuple[int, Any]] = deque()
        self._stream = stream
        self._piece_bytes = piece_bytes
        self._events = deque[Any]()
        untimed = cu.CUevent_flags.CU_EVENT_DISABLE_TIMING
        for _ in range(MAX_IN_FLIGHT):
            event = call(cu.cuEventCreate, untimed)
            resources.callback(release, cu.cuEventDestroy, event)
            self._events.append(event)

    def has_room(self) -> bool:
        return bool(self._events)

    def start(self, index: int, target: int, source: int) -> None:
        event = self._events.popleft()
        call(cu.cuMemcpyAsync, target, source, self._piece_bytes, self._stream)
        call(cu.cuEventRecord, event, self._stream)
        self.pending.append((index, event))

    def finished(self) -> Iterator[int]:
        """Yield the pieces whose copies are done, the oldest first."""
        while self.pending and self._is_done(self.pending[0][1]):
            index, event = self.pending.popleft()
            self._events.append(event)
            yield index

    @staticmethod
    def _is_done(event: Any) -> bool:
        if cu.cuEventQuery(event)[0] == cu.CUresult.CUDA_ERROR_NOT_READY:
            return False
        call(cu.cuEventQuery, event)
        return True


class _Mapper:
    """Creates pieces of memory, and lets addresses lead to them."""

    def __init__(self, gpu: Gpu, piece_bytes: int, resources: ExitStack) -> None:
        self._piece_bytes = piece_bytes
        self._resources = resources
        self._access = cu.CUmemAccessDesc()
        self._access.location = gpu.here()
        self._access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

    def create(self, location: cu.CUmemLocation, count: int) -> list[Any]:
        properties = cu.CUmemAllocationProp()
        properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location = location
        handles = []
        for _ in range(count):
            handle = call(cu.cuMemCreate, self._piece_bytes, properties, 0)
            self._resources.callback(release, cu.cuMemRelease, handle)
            handles.append(handle)
        return handles

    def map_all(self, handles: list[Any]) -> int:
        """Return where these pieces lie one behind the other."""
        size = len(handles) * self._piece_bytes
        reserved = call(cu.cuMemAddressReserve, size, self._piece_bytes, 0, 0)
        base = int(reserved)
        self._resources.callback(release, cu.cuMemAddressFree, base, size)
        for index, handle in enumerate(handles):
            address = base + index * self._piece_bytes
            call(cu.cuMemMap, address, self._piece_bytes, 0, handle, 0)
            self._resources.callback(release, cu.cuMemUnmap, address, self._piece_bytes)
        call(cu.cuMemSetAccess, base, size, [self._access], 1)
        return base

    def remap(self, base: int, index: int, handle: Any) -> None:
        address = base + index * self._piece_bytes
        call(cu.cuMemUnmap, address, self._piece_bytes)
        call(cu.cuMemMap, address, self._piece_bytes, 0, handle, 0)
        call(cu.cuMemSetAccess, address, self._piece_bytes, [self._access], 1)
