"""Small lists of tensors and kernels, as `transit import tensors` reads them."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

HARDWARE: dict[str, Any] = {
    "source": "a simulator",
    "gpu": {"model": "A100 of a paper", "memory_bytes": 64 << 20},
    "pcie": {"gbps_each_way": 16},
    "host_memory_bytes": 1 << 30,
}


def tensor(tensor_id: int, size: int, first: int | None, death: int | None) -> Row:
    """Return a tensor; without a lifetime it is global."""
    return {
        "tensor_id": tensor_id,
        "bytes": size,
        "raw_bytes": size - 1,
        "is_global": first is None,
        "role": "weight" if first is None else "activation",
        "name": f"layer{tensor_id}.out",
        "first_kernel": first,
        "death_kernel": death,
    }


def kernel(
    kernel_id: int,
    reads: Iterable[int],
    writes: Iterable[int],
    *,
    workspace: int = 0,
    times_ns: tuple[int, int, int] = (1000, 2000, 4000),
) -> Row:
    return {
        "kernel_id": kernel_id,
        "name": "Conv2d_Forward",
        "op": f"L{kernel_id}",
        "shape": "8x3x4x4",
        "duration_ns": times_ns[0],
        "duration_inputs_resident_ns": times_ns[1],
        "duration_nothing_resident_ns": times_ns[2],
        "workspace_bytes": workspace,
        "read_tensor_ids": ";".join(map(str, reads)),
        "write_tensor_ids": ";".join(map(str, writes)),
    }


def write_lists(
    folder: Path,
    tensors: list[Row],
    kernels: list[Row],
    hardware: dict[str, Any] | None = HARDWARE,
) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in (("tensors", tensors), ("kernels", kernels)):
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]) if rows else ["tensor_id"])
        writer.writeheader()
        writer.writerows(rows)
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    if hardware is not None:
        (folder / "hardware.json").write_text(json.dumps(hardware))
    return folder
