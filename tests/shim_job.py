"""Runs jobs under libtransit.so on the simulated GPU, with plans made by hand."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from transit.compiler.arrays import mix
from transit.runtime.status import ProcessStatus

MIB = 1 << 20
PIECE = 2 * MIB
RESIDENT, ZERO_COPY, WINDOWED = 0, 1, 2
BACKENDS = ["vmm", "uvm"]
LAYERS = Path(__file__).parents[1] / "examples" / "layers.py"

NEVER = 2**32 - 1  # used in host memory
Range = tuple[int, int, int]  # offset, bytes, placement
Planned = tuple[int, int, Sequence[Range]]  # ordinal, bytes, ranges
Window = tuple[int, int, int, int, int, int, int]  # as FlatWindow
Launch = tuple[int, Collection[int]]  # signature, and the addresses it names

# What every script of a job starts with.
PRELUDE = """
import ctypes, os, sys, threading
from cuda.bindings import driver as cu

def call(function, *arguments):
    error, *results = function(*arguments)
    assert error == cu.CUresult.CUDA_SUCCESS, (function.__name__, error)
    return results[0] if len(results) == 1 else results

def start():
    call(cu.cuInit, 0)
    device = call(cu.cuDeviceGet, 0)
    call(cu.cuCtxSetCurrent, call(cu.cuDevicePrimaryCtxRetain, device))

def roundtrip(address, bytes_, seed=1):
    data = bytes((i * seed) % 251 for i in range(997)) * (bytes_ // 997 + 1)
    data = data[:bytes_]
    back = ctypes.create_string_buffer(bytes_)
    call(cu.cuMemcpyHtoD, address, data, bytes_)
    call(cu.cuMemcpyDtoH, ctypes.addressof(back), address, bytes_)
    assert back.raw[:bytes_] == data
"""


def flat_plan(
    planned: Sequence[Planned],
    *,
    addresses: Mapping[int, int] | None = None,
    windows: Sequence[Window] = (),
    launches: Sequence[Launch] = (),
    words: Mapping[int, Sequence[int]] | None = None,
    gpu_memory_bytes: int = 64 * MIB,
    version: int = 5,
    steps: int = 1,
    rank: int = 0,
    device: int = 0,
) -> bytes:
    """A flat plan as runtime/native/flat_plan.h describes it."""
    allocations, ranges = b"", b""
    num_ranges = 0
    for ordinal, size, parts in planned:
        allocations += struct.pack(
            "<iIQQII",
            device,
            ordinal,
            size,
            (addresses or {}).get(ordinal, 2**64 - 1),
            num_ranges,
            len(parts),
        )
        for offset, length, placement in parts:
            ranges += struct.pack("<QQII", offset, length, placement, 0)
        num_ranges += len(parts)
    rest = b"".join(struct.pack("<8I", *window, 0) for window in windows)
    named: list[int] = []
    for signature, own in launches:
        rest += struct.pack("<QQII", signature, _hash(own), len(named), len(own))
        named += sorted(own)
    rest += struct.pack(f"<{len(named)}Q", *named)
    kernels = sorted((words or {}).items())
    offsets: list[int] = []
    for signature, own_words in kernels:
        rest += struct.pack("<QII", signature, len(offsets), len(own_words))
        offsets += own_words
    rest += struct.pack(f"<{len(offsets)}I", *offsets)
    header = struct.pack(
        "<8sIIIIIIIIIIIIQQ",
        b"TRNSPLAN",
        version,
        72,
        rank,
        len(planned),
        num_ranges,
        len(windows),
        len(launches),
        len(named),
        len(kernels),
        len(offsets),
        steps,
        0,
        gpu_memory_bytes,
        72 + len(allocations) + len(ranges) + len(rest),
    )
    return header + allocations + ranges + rest


def _hash(addresses: Collection[int]) -> int:
    return int(mix(np.array([*addresses], np.uint64)).sum(dtype=np.uint64))


def whole(ordinal: int, size: int, placement: int) -> Planned:
    """One allocation in one placement."""
    return ordinal, size, [(0, -(-size // PIECE) * PIECE, placement)]


class Job(Protocol):
    """Runs Python under the shim and returns its process and status files."""

    def __call__(
        self,
        *command: str,
        plan: bytes | None = None,
        backend: str = "vmm",
        env: Mapping[str, str] | None = None,
        exit_code: int = 0,
    ) -> tuple[subprocess.CompletedProcess[str], list[ProcessStatus]]: ...


def script(body: str) -> tuple[str, str]:
    """The command of a job that runs `body` after the prelude."""
    return "-c", PRELUDE + body


GOOD_PLAN = flat_plan([whole(0, 2 * MIB, ZERO_COPY), whole(1, 2 * MIB, ZERO_COPY)])
