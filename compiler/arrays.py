"""Array types and small array helpers that the compiler's steps share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def column(table: pa.Table, name: str, null: int = -1) -> npt.NDArray[Any]:
    """Return an integer column; missing values become ``null``."""
    values = table.column(name)
    if values.null_count:
        values = values.fill_null(pa.scalar(null, values.type))
    return np.asarray(values.to_numpy())


def codes(table: pa.Table, name: str) -> Ints:
    """Number the texts of a column: equal texts, equal numbers."""
    texts = table.column(name).cast(pa.string()).combine_chunks()
    return np.asarray(texts.dictionary_encode().indices.to_numpy(), np.int64)


def sum_by(index: Ints, values: npt.NDArray[Any], count: int) -> Floats:
    """Sum values into ``count`` bins."""
    return np.bincount(index, values, minlength=count).astype(np.float64)


def is_one_of(table: pa.Table, name: str, *values: str) -> Bools:
    """Tell which rows of a text column hold one of some values."""
    text = table.column(name).cast(pa.string())
    found = pc.is_in(text, value_set=pa.array(values, pa.string()))
    return np.asarray(found.to_numpy(), np.bool_)


def mix(values: npt.NDArray[Any]) -> Hashes:
    """Scatter integers over 64 bits (the finaliser of SplitMix64)."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class SegmentHasher:
    """Hashes any stretch of a sequence in constant time.

    A polynomial over the integers modulo 2**64: an odd base has an inverse, so that
    equal stretches hash alike wherever they start.
    """

    _BASE = 0xD6E8FEB86659FD93

    def __init__(self, values: npt.NDArray[Any]) -> None:
        powers = self._powers(self._BASE, len(values))
        self._inverse = self._powers(pow(self._BASE, -1, 1 << 64), len(values))
        self._prefix = np.zeros(len(values) + 1, np.uint64)
        np.cumsum(mix(values) * powers, out=self._prefix[1:])

    @staticmethod
    def _powers(base: int, count: int) -> Hashes:
        factors = np.full(count + 1, base, np.uint64)
        factors[0] = 1
        return np.cumprod(factors)[:count]

    def __call__(self, starts: Ints, stops: Ints) -> Hashes:
        """Hash every [start, stop); none may be empty."""
        sums = self._prefix[stops] - self._prefix[starts]
        return mix(sums * self._inverse[starts]) ^ mix(stops - starts)
