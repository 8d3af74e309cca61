"""Lists of tensors and kernels of made-up networks, as `transit import tensors` reads.

They are of the kind of published ones whose lists are not at hand: as many bytes at the
peak, and as long an iteration. Everything else is only alike.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
# What faults bring in and push out in the published lists, about.
FAULT_IN_BYTES_PER_S, FAULT_OUT_BYTES_PER_S = 3.2e9, 5e9


@dataclass
class Tensor:
    """A tensor: what its lifetime follows from is seen when it is used."""

    index: int
    name: str
    role: str
    size: float
    first: int = -1
    last_read: int = -1


@dataclass(frozen=True)
class Kernel:
    """A kernel, with its share of the iteration's time."""

    name: str
    op: str
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    time: float
    workspace: float


@dataclass
class Network:
    """Collects an iteration; sizes and times are relative until it is written."""

    tensors: list[Tensor] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)

    def tensor(self, name: str, role: str, size: float) -> Tensor:
        """Add a tensor; the role `weight` makes it global."""
        self.tensors.append(Tensor(len(self.tensors), name, role, size))
        return self.tensors[-1]

    def run(
        self,
        name: str,
        op: str,
        reads: Iterable[Tensor],
        writes: Iterable[Tensor],
        time: float,
        workspace: float = 0.0,
    ) -> None:
        """Add a kernel."""
        kernel = Kernel(name, op, (*reads,), (*writes,), time, workspace)
        for tensor in (*kernel.reads, *kernel.writes):
            tensor.first = len(self.kernels) if tensor.first < 0 else tensor.first
        for tensor in kernel.reads:
            tensor.last_read = len(self.kernels)
        self.kernels.append(kernel)

    def peak(self) -> float:
        """Return the most that is alive at once, workspaces included."""
        change = [0.0] * (len(self.kernels) + 1)
        for tensor in self.tensors:
            is_global = tensor.role == "weight"
            change[0 if is_global else tensor.first] += tensor.size
            if not is_global:
                change[max(tensor.first, tensor.last_read) + 1] -= tensor.size
        alive, most = 0.0, 0.0
        for kernel, step in zip(self.kernels, change, strict=False):
            alive += step
            most = max(most, alive + kernel.workspace)
        return most

    def write(
        self, folder: Path, *, peak_bytes: float, seconds: float, hardware: str
    ) -> None:
        """Write the lists, scaled to a peak and a duration."""
        scale = peak_bytes / self.peak()
        sizes = [max(PAGE, round(t.size * scale / PAGE) * PAGE) for t in self.tensors]
        time_scale = seconds * 1e9 / sum(kernel.time for kernel in self.kernels)
        folder.mkdir(parents=True)
        _write_csv(
            folder / "tensors.csv.gz", map(self._tensor_row, self.tensors, sizes)
        )
        _write_csv(
            folder / "kernels.csv.gz",
            (
                _kernel_row(index, kernel, sizes, scale, time_scale)
                for index, kernel in enumerate(self.kernels)
            ),
        )
        (folder / "hardware.json").write_text(hardware)

    def _tensor_row(self, tensor: Tensor, size: int) -> dict[str, object]:
        is_global = tensor.role == "weight"
        death = -1 if tensor.last_read < tensor.first else tensor.last_read + 1
        death = -1 if death == tensor.first + 1 else death
        return {
            "tensor_id": tensor.index,
            "bytes": size,
            "is_global": is_global,
            "role": tensor.role,
            "name": tensor.name,
            "first_kernel": "" if is_global else tensor.first,
            "death_kernel": "" if is_global else death,
        }


def _kernel_row(
    index: int, kernel: Kernel, sizes: list[int], scale: float, time_scale: float
) -> dict[str, object]:
    duration_ns = round(kernel.time * time_scale)
    read = sum(sizes[tensor.index] for tensor in kernel.reads)
    written = sum(
        sizes[tensor.index] for tensor in kernel.writes if tensor not in kernel.reads
    )
    inputs_ns = duration_ns + round(written / FAULT_OUT_BYTES_PER_S * 1e9)
    return {
        "kernel_id": index,
        "name": kernel.name,
        "op": kernel.op,
        "shape": "",
        "duration_ns": duration_ns,
        "duration_inputs_resident_ns": inputs_ns,
        "duration_nothing_resident_ns": inputs_ns
        + round(read / FAULT_IN_BYTES_PER_S * 1e9),
        "workspace_bytes": round(kernel.workspace * scale),
        "read_tensor_ids": ";".join(str(tensor.index) for tensor in kernel.reads),
        "write_tensor_ids": ";".join(str(tensor.index) for tensor in kernel.writes),
    }


def _write_csv(path: Path, rows: Iterable[dict[str, object]]) -> None:
    rows = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
