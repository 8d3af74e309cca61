"""Reads lists of tensors and kernels, as research artifacts publish them.

A folder holds ``tensors.csv.gz`` and ``kernels.csv.gz``: what one training iteration
allocates, and what it runs, one kernel at a time, with the tensors that each kernel
reads and writes.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from transit.errors import TraceError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAX_UNPACKED_BYTES = 1 << 30
MAX_TENSOR_BYTES = 1 << 47  # so is the sum of all: beyond any GPU's address space
MAX_TOTAL_NS = 1 << 60
NEVER = 1 << 61

_TENSORS: dict[str, pa.DataType] = {
    "tensor_id": pa.int64(),
    "bytes": pa.int64(),
    "is_global": pa.bool_(),
    "role": pa.string(),
    "name": pa.string(),
    "first_kernel": pa.int64(),
    "death_kernel": pa.int64(),
}
_LIFETIME = ("first_kernel", "death_kernel")
_NONE = -2  # in place of the lifetime of a global tensor
_KERNELS: dict[str, pa.DataType] = {
    "kernel_id": pa.int64(),
    "name": pa.string(),
    "op": pa.string(),
    "shape": pa.string(),
    "duration_ns": pa.int64(),
    "duration_inputs_resident_ns": pa.int64(),
    "duration_nothing_resident_ns": pa.int64(),
    "workspace_bytes": pa.int64(),
    "read_tensor_ids": pa.string(),
    "write_tensor_ids": pa.string(),
}


@dataclass(frozen=True)
class TensorLists:
    """One iteration: its tensors, its kernels, and which kernel touches which tensor.

    A tensor is alive at the kernels from `first` to before `stop`; a global one, whose
    `stop` is `NEVER`, keeps what it holds from iteration to iteration. The last four
    arrays have an entry for each kernel and tensor that belong together, by both.
    """

    tensors: pa.Table
    kernels: pa.Table
    first: Ints
    stop: Ints
    kernel: Ints
    tensor: Ints
    reads: Bools
    writes: Bools

    @property
    def tensor_bytes(self) -> Ints:
        """Size of each tensor."""
        return _ints(self.tensors, "bytes")

    def of_kernels(self, column: str) -> Ints:
        """Return a column of the kernels."""
        return _ints(self.kernels, column)


def read(folder: Path) -> TensorLists:
    """Read both lists of a folder.

    Raises
    ------
    TraceError
        If a file is missing or damaged, or they contradict themselves or each other.
    """
    tensors = _read_table(folder / "tensors.csv.gz", _TENSORS, may_be_null=_LIFETIME)
    kernels = _read_table(folder / "kernels.csv.gz", _KERNELS)
    _check_sizes(folder, tensors, kernels)
    is_global = np.asarray(tensors["is_global"].to_numpy(), np.bool_)
    first, stop = _lifetimes(folder, tensors, is_global, kernels.num_rows)
    read_pairs = _pairs(folder, kernels, "read_tensor_ids", tensors.num_rows)
    written_pairs = _pairs(folder, kernels, "write_tensor_ids", tensors.num_rows)
    pairs = np.union1d(read_pairs, written_pairs)
    kernel, tensor = np.divmod(pairs, tensors.num_rows)
    alive = (first[tensor] <= kernel) & (kernel < stop[tensor])
    if not alive.all():
        wrong = int(np.flatnonzero(~alive)[0])
        raise TraceError(
            f"{folder}: kernel {kernel[wrong]} touches tensor {tensor[wrong]}, which is"
            f" alive from kernel {first[tensor[wrong]]} to {stop[tensor[wrong]] - 1}."
        )
    return TensorLists(
        tensors=tensors,
        kernels=kernels,
        first=first,
        stop=stop,
        kernel=kernel,
        tensor=tensor,
        reads=np.isin(pairs, read_pairs),
        writes=np.isin(pairs, written_pairs),
    )


def _read_table(
    path: Path, columns: dict[str, pa.DataType], may_be_null: tuple[str, ...] = ()
) -> pa.Table:
    try:
        with gzip.open(path) as file:
            data = file.read(MAX_UNPACKED_BYTES + 1)
    except FileNotFoundError:
        raise TraceError(f"{path.parent} is no folder with {path.name}.") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {error}.") from error
    if len(data) > MAX_UNPACKED_BYTES:
        raise TraceError(f"{path} is larger than 1 GiB when unpacked; it is not read.")
    options = pyarrow.csv.ConvertOptions(
        column_types=columns, include_columns=list(columns), null_values=[""]
    )
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)
    except (pa.ArrowException, KeyError, ValueError) as error:
        reason = str(error).strip("'").splitlines()[0].rstrip(".")
        raise TraceError(f"{path} is damaged: {reason}.") from error
    for name in columns:
        if table[name].null_count and name not in may_be_null:
            raise TraceError(f"{path}: column {name} has missing values.")
    if not table.num_rows:
        raise TraceError(f"{path} lists nothing.")
    return table.combine_chunks()


def _check_sizes(folder: Path, tensors: pa.Table, kernels: pa.Table) -> None:
    tensor_bytes, workspace = _ints(tensors, "bytes"), _ints(kernels, "workspace_bytes")
    times = [_ints(kernels, name) for name in _KERNELS if name.endswith("_ns")]
    for holds, what in (
        (_counts(tensors, "tensor_id"), "tensor_id does not count from 0"),
        (_counts(kernels, "kernel_id"), "kernel_id does not count from 0"),
        (tensor_bytes.min() > 0, "a tensor has no bytes"),
        (workspace.min() >= 0, "a workspace has fewer than no bytes"),
        (
            tensor_bytes.sum(dtype=np.float64) + workspace.sum(dtype=np.float64)
            < MAX_TENSOR_BYTES,
            "the tensors are larger than any GPU's address space",
        ),
        (min(column.min() for column in times) >= 0, "a kernel's time is negative"),
        (
            max(column.sum(dtype=np.float64) for column in times) < MAX_TOTAL_NS,
            "the kernels take longer than anybody waits",
        ),
    ):
        if not holds:
            raise TraceError(f"{folder}: {what}.")


def _lifetimes(
    folder: Path, tensors: pa.Table, is_global: Bools, num_kernels: int
) -> tuple[Ints, Ints]:
    """Return the first kernel that each tensor is alive at, and the one past the last.

    A death of -1 stands for a tensor that nothing reads: it dies after its birth.
    """
    first, death = (_ints(tensors, name, null=_NONE) for name in _LIFETIME)
    stop = np.where(death == -1, first + 1, death)
    inside = (first >= 0) & (first < stop) & (stop <= num_kernels)
    fits = np.where(is_global, (first == _NONE) & (death == _NONE), inside)
    if not fits.all():
        wrong = int(np.flatnonzero(~fits)[0])
        raise TraceError(
            f"{folder}: the lifetime of tensor {wrong} is impossible: there are kernels"
            f" 0 to {num_kernels - 1}, and a global tensor has no lifetime."
        )
    return np.where(is_global, 0, first), np.where(is_global, NEVER, stop)


def _pairs(folder: Path, kernels: pa.Table, column: str, num_tensors: int) -> Ints:
    """Return the kernels with the tensors they list, a number for each pair."""
    texts: Any = kernels[column].combine_chunks()
    listed = np.flatnonzero(np.asarray(texts) != "")
    lists: Any = pc.split_pattern(texts.take(pa.array(listed)), ";")
    try:
        tensor = np.asarray(pc.cast(pc.list_flatten(lists), pa.int64()))
    except pa.ArrowException as error:
        raise TraceError(f"{folder}, kernels, {column}: {error}.") from error
    kernel = listed[pc.list_parent_indices(lists).to_numpy()]
    unknown = (tensor < 0) | (tensor >= num_tensors)
    if unknown.any():
        wrong = int(np.flatnonzero(unknown)[0])
        raise TraceError(
            f"{folder}: kernel {kernel[wrong]} lists tensor {tensor[wrong]}; there are"
            f" tensors 0 to {num_tensors - 1}."
        )
    return np.unique(kernel * num_tensors + tensor)


def _counts(table: pa.Table, column: str) -> bool:
    return np.array_equal(_ints(table, column), np.arange(table.num_rows))


def _ints(table: pa.Table, column: str, null: int = 0) -> Ints:
    values: Any = table[column]
    return np.asarray(values.fill_null(null).to_numpy(), np.int64)
