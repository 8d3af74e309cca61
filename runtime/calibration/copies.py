"""Copies between the GPU and pinned host memory, by direction and size."""

from __future__ import annotations

from functools import partial
from typing import Any

from cuda.bindings import driver as cu

from transit.runtime.calibration.gpu import Gpu, call
from transit.runtime.calibration.measurement import Measurement, measure

PIECES_BYTES = (2 << 20, 8 << 20, 32 << 20, 128 << 20)


def copies(gpu: Gpu, size: int) -> dict[str, list[Measurement]]:
    """Copy in pieces of several sizes: to the GPU, from it, and both at once."""
    with (
        gpu.memory(size) as inward,
        gpu.memory(size) as outward,
        gpu.pinned(size) as source,
        gpu.pinned(size) as target,
    ):
        to_gpu = partial(_copy, inward, source, size, gpu.stream)
        from_gpu = partial(_copy, target, outward, size, gpu.stream)
        beside = partial(_copy, target, outward, size, gpu.other_stream)
        ways = {
            "h2d": ("copy to the GPU", (to_gpu,)),
            "d2h": ("copy from the GPU", (from_gpu,)),
            "duplex": ("copies both ways, each", (to_gpu, beside)),
        }
        return {
            way: [
                measure(
                    what,
                    partial(gpu.gpu_ns, *(partial(copy, piece) for copy in work)),
                    moved_bytes=size,
                    pieces=size // piece,
                )
                for piece in PIECES_BYTES
                if piece <= size
            ]
            for way, (what, work) in ways.items()
        }


def _copy(target: int, source: int, size: int, stream: Any, piece: int) -> None:
    for offset in range(0, size, piece):
        call(cu.cuMemcpyAsync, target + offset, source + offset, piece, stream)
