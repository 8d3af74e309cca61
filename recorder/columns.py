"""Columns of the trace out of fields of the spool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]

KINDS = {1: "kernel", 2: "copy", 3: "set", 4: "graph"}
NEVER = np.iinfo(np.int64).max
_SHAPE_COLUMNS = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class DamagedError(Exception):
    """A record holds what no recorder writes; the message says what."""


def int64(values: npt.NDArray[Any], what: str) -> Ints:
    """Return unsigned values as signed ones, refusing what no recorder writes.

    Sums of two of them fit as well.
    """
    if len(values) and int(values.max()) >= 1 << 62:
        raise DamagedError(f"impossible {what} {int(values.max())}")
    return values.astype(np.int64)


def labels(codes: npt.NDArray[Any], texts: Mapping[int, str]) -> pa.Array[Any]:
    """Return the texts of `codes` as a dictionary column; unlisted ones are null."""
    keys = np.array(sorted(texts), np.int64)
    codes = codes.astype(np.int64)
    position = np.minimum(np.searchsorted(keys, codes), len(keys) - 1)
    indices: Any = pa.array(position.astype(np.int32), mask=keys[position] != codes)
    return pa.DictionaryArray.from_arrays(
        indices,
        pa.array([texts[int(key)] for key in keys], pa.string()),
    )


def known_labels(
    codes: npt.NDArray[Any], texts: Mapping[int, str], what: str
) -> pa.Array[Any]:
    """Return the texts of `codes`, all of which our own recorder defines."""
    column = labels(codes, texts)
    if column.null_count:
        unknown = codes[~np.isin(codes, list(texts))][0]
        raise DamagedError(f"{what} {unknown} does not exist")
    return column


def constant(text: str, length: int) -> pa.Array[Any]:
    """Return a dictionary column of one text."""
    return labels(np.zeros(length, np.int64), {0: text})


def nullable(values: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> pa.Array[Any]:
    """Return an int64 column with nulls where `is_null`."""
    return pa.array(values.astype(np.int64), pa.int64(), mask=is_null)


def shape(records: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the six extents of a grid and its blocks."""
    extents = [
        records[field][:, axis] for field in ("grid", "block") for axis in range(3)
    ]
    if len(records) and max(int(extent.max()) for extent in extents) >= 1 << 31:
        raise DamagedError("impossible grid of a launch")
    return extents


def shape_columns(records: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.int32]]:
    """Return them as columns."""
    extents = (extent.astype(np.int32) for extent in shape(records))
    return dict(zip(_SHAPE_COLUMNS, extents, strict=True))


def is_timed(activity: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell which activities have a start and an end."""
    start, end = activity["start_ns"], activity["end_ns"]
    return np.asarray((start > 0) & (end >= start) & (end < NEVER))
