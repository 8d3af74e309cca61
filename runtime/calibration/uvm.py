"""Windows on managed memory: prefetches, advice, and what page faults bring in.

No kernel writes to memory that has a duplicate: that takes the driver 25 s per GiB.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from cuda.bindings import driver as cu

from transit.runtime.calibration.gpu import Gpu
from transit.runtime.calibration.measurement import Measurement, measure

PIECES_BYTES = (2 << 20, 32 << 20, 128 << 20)
BOTH_PIECE_BYTES = 32 << 20
ADVICE_BYTES = 2 << 20


def supported(gpu: Gpu) -> bool:
    """Tell whether managed memory can move while the GPU works."""
    return bool(gpu.attribute("CONCURRENT_MANAGED_ACCESS"))


def windows(gpu: Gpu, size: int) -> dict[str, list[Measurement]]:
    """Prefetch managed memory in and out, and both at once; fault; give advice.

    Takes twice `size` bytes of managed memory.
    """
    with gpu.managed(size) as address, gpu.managed(size) as other_address:
        block, other = _Block(gpu, address, size), _Block(gpu, other_address, size)
        pieces_bytes = [piece for piece in PIECES_BYTES if piece <= size]
        # Advice comes last: it stays with the memory.
        return {
            "load": [block.measure_load(piece) for piece in pieces_bytes],
            "store": [block.measure_store(piece) for piece in pieces_bytes],
            "both": [_measure_both(gpu, block, other)],
            "faults": [block.measure_faults()],
            "drop": [block.measure_drop()],
            "advice": [block.measure_advice()],
        }


def _measure_both(gpu: Gpu, leaving: _Block, coming: _Block) -> Measurement:
    """Have one thread for each direction, as the call waits for most of the move."""
    piece_bytes = min(BOTH_PIECE_BYTES, leaving.size)
    out = partial(leaving.to_host, piece_bytes, gpu.other_stream)
    into = partial(coming.to_gpu, piece_bytes, gpu.stream)

    def prepare() -> None:
        leaving.to_gpu()
        coming.to_host()

    with ThreadPoolExecutor(2, initializer=gpu.make_current) as threads:

        def run() -> None:
            for done in [threads.submit(out), threads.submit(into)]:
                done.result()

        return measure(
            "uvm: both ways, each",
            lambda: gpu.wall_ns(run),
            prepare=prepare,
            moved_bytes=leaving.size,
            pieces=leaving.size // piece_bytes,
        )


class _Block:
    """A block of managed memory that moves as a whole, in pieces or at once."""

    def __init__(self, gpu: Gpu, address: int, size: int) -> None:
        self.gpu = gpu
        self.address = address
        self.size = size

    def to_gpu(self, piece_bytes: int | None = None, stream: Any = None) -> None:
        self._go(self.gpu.here(), piece_bytes, stream)

    def to_host(self, piece_bytes: int | None = None, stream: Any = None) -> None:
        self._go(self.gpu.host(), piece_bytes, stream)

    def _go(
        self, location: cu.CUmemLocation, piece_bytes: int | None, stream: Any
    ) -> None:
        step = piece_bytes or self.size
        for offset in range(0, self.size, step):
            address = self.address + offset
            self.gpu.prefetch(address, step, location, stream or self.gpu.stream)

    def measure_load(self, piece_bytes: int) -> Measurement:
        return measure(
            "uvm: load",
            lambda: self.gpu.wall_ns(lambda: self.to_gpu(piece_bytes)),
            prepare=self.to_host,
            moved_bytes=self.size,
            pieces=self.size // piece_bytes,
        )

    def measure_store(self, piece_bytes: int) -> Measurement:
        return measure(
            "uvm: store",
            lambda: self.gpu.wall_ns(lambda: self.to_host(piece_bytes)),
            prepare=self.to_gpu,
            moved_bytes=self.size,
            pieces=self.size // piece_bytes,
        )

    def measure_faults(self) -> Measurement:
        def read() -> None:
            self.gpu.sweep("transit_read", self.address, self.size, self.size)

        return measure(
            "uvm: page faults, reading",
            lambda: self.gpu.gpu_ns(read),
            prepare=self.to_host,
            moved_bytes=self.size,
        )

    def measure_drop(self) -> Measurement:
        """Time the end of a duplicate, and the advice that it takes along."""

        def duplicate() -> None:
            self.to_host()
            self._read_in_place(self.size)
            self._advise("SET_READ_MOSTLY", self.gpu.host())
            self.to_gpu()

        def drop() -> None:
            self._advise("UNSET_READ_MOSTLY", self.gpu.host())
            self._advise("SET_ACCESSED_BY", self.gpu.here())

        return measure(
            "uvm: drop",
            lambda: self.gpu.wall_ns(drop),
            prepare=duplicate,
            moved_bytes=self.size,
        )

    def measure_advice(self) -> Measurement:
        def forget() -> None:
            self._advise("UNSET_ACCESSED_BY", self.gpu.here())
            self._advise("UNSET_PREFERRED_LOCATION", self.gpu.host())

        return measure(
            "uvm: advice for zero-copy",
            lambda: self.gpu.wall_ns(lambda: self._read_in_place(ADVICE_BYTES)),
            prepare=forget,
            moved_bytes=self.size,
            pieces=self.size // ADVICE_BYTES,
        )

    def _read_in_place(self, piece_bytes: int) -> None:
        """Advise that the GPU reaches the memory on the host."""
        for offset in range(0, self.size, piece_bytes):
            address = self.address + offset
            host, here = self.gpu.host(), self.gpu.here()
            self.gpu.advise(address, piece_bytes, "SET_PREFERRED_LOCATION", host)
            self.gpu.advise(address, piece_bytes, "SET_ACCESSED_BY", here)

    def _advise(self, advice: str, location: cu.CUmemLocation) -> None:
        self.gpu.advise(self.address, self.size, advice, location)
