"""Measure the link between host and GPU: each direction alone, then both at once.

Prints one JSON object. Rates are of pinned memory and the copy engines, in bytes/s.
"""

from __future__ import annotations

import json
import platform

import torch

PIECE_BYTES = 1 << 30
REPEATS = 5


def seconds_of(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the time of running all `copies` at once, each on its own stream."""
    streams = [torch.cuda.Stream() for _ in copies]
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for stream, (target, source) in zip(streams, copies, strict=True):
        stream.wait_event(start)
        with torch.cuda.stream(stream):
            for _ in range(REPEATS):
                target.copy_(source, non_blocking=True)
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def measure() -> dict[str, float]:
    """Return the rates; each way at once when both directions are busy."""
    device = [torch.empty(PIECE_BYTES, dtype=torch.uint8, device="cuda") for _ in "io"]
    host = [torch.empty_like(piece, device="cpu", pin_memory=True) for piece in device]
    inward, outward = (device[0], host[0]), (host[1], device[1])
    moved_bytes = PIECE_BYTES * REPEATS
    seconds_of([inward, outward])  # first use of the streams and the copy engines
    return {
        "host_to_device_bytes_per_s": moved_bytes / seconds_of([inward]),
        "device_to_host_bytes_per_s": moved_bytes / seconds_of([outward]),
        "duplex_bytes_per_s": moved_bytes / seconds_of([inward, outward]),
    }


def describe_machine() -> dict[str, object]:
    """Return the GPU and the versions the rates were measured with."""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return {
        "gpu": torch.cuda.get_device_name(),
        "gpu_memory_bytes": total_bytes,
        "gpu_memory_free_bytes": free_bytes,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": platform.machine(),
    }


if __name__ == "__main__":
    print(json.dumps({**describe_machine(), "link": measure()}))
