"""What the PyTorch examples share: options, the step loop, what it prints."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

PresetT = TypeVar("PresetT")


def create_parser(
    description: str | None, presets: Iterable[str]
) -> argparse.ArgumentParser:
    """Return a parser with the options that every example has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=presets, default="small")
    parser.add_argument("--steps", type=positive, default=10)
    parser.add_argument(
        "--deterministic", action="store_true", help="same numbers in every run"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu"
    )
    return parser


def positive(text: str) -> int:
    """Parse a positive integer for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def resize(preset: PresetT, args: argparse.Namespace) -> PresetT:
    """Return the preset with those of its fields changed that ``args`` has set."""
    fields = [field.name for field in dataclasses.fields(preset)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {
        name: value
        for name in fields
        if (value := getattr(args, name, None)) is not None
    }
    return dataclasses.replace(preset, **changes)  # type: ignore[type-var]


@contextlib.contextmanager
def repeatable(*, wanted: bool) -> Iterator[None]:
    """If wanted, make every step repeat bit for bit, or raise where PyTorch cannot.

    cuBLAS needs fixed workspaces, named before CUDA starts. Of the fused
    attention kernels, flash has a deterministic backward pass (cuDNN has none in
    PyTorch); math is the fallback for types and devices without flash.
    """
    if not wanted:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


def run_steps(steps: int, device: torch.device, step: Callable[[], Tensor]) -> None:
    """Make so many steps, each of which returns its loss, and print each."""
    for number in range(steps):
        synchronize(device)
        start = time.perf_counter()
        loss = step()
        # The wall clock from an idle device to an idle device: the whole step as
        # its user waits for it, host time included.
        synchronize(device)
        elapsed_ms = (time.perf_counter() - start) * 1e3
        if not dist.is_initialized() or dist.get_rank() == 0:
            report(number, loss.item(), elapsed_ms, device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished; a CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def report(step: int, loss: float, elapsed_ms: float, device: torch.device) -> None:
    """Print one step; ``loss_hex`` is exact, memory is the most so far."""
    on_gpu = device.type == "cuda"
    line = {
        "step": step,
        "loss": loss,
        "loss_hex": loss.hex(),
        "ms": round(elapsed_ms, 3),
        "peak_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
        "reserved_bytes": torch.cuda.max_memory_reserved(device) if on_gpu else None,
    }
    print(json.dumps(line), flush=True)
