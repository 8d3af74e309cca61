"""The launches of an iteration as the job submits them, in a plan as compact text."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from transit.compiler.arrays import Hashes, mix

ANY_ADDRESSES = 2**64 - 1
MAX_BYTES = 256 << 20  # beyond any iteration: a damaged or hostile file
_COUNTS_DTYPE = np.dtype("<u4")
_NUM_COUNTS = 4
# Of each array, as it is stored and in memory.
_DTYPES = tuple(map(np.dtype, ("<u8", "<u4", "<u4", "u1", "<u8", "<u8", "<u4", "<u4")))
_DTYPES_HERE = tuple(map(np.dtype, ("u8", "i8", "i8", "?", "u8", "u8", "i8", "i8")))


@dataclass(frozen=True)
class Sequence:
    """The calls that submit the iteration's work, in order.

    `named` are the addresses that the calls name, those of one after those of the other
    and rising: each has `num_named`. A graph has none, and its `num_positions` are its
    nodes.

    `kernel` are signatures, rising, of which it is known where in the parameters their
    launches have addresses: each has `num_words` of `words`, in bytes and rising.
    """

    signature: npt.NDArray[np.uint64]
    num_positions: npt.NDArray[np.int64]
    num_named: npt.NDArray[np.int64]
    is_graph: npt.NDArray[np.bool_]
    named: npt.NDArray[np.uint64]
    kernel: npt.NDArray[np.uint64]
    num_words: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]

    def encode(self) -> str:
        """Return it as compact text."""
        arrays = [getattr(self, field.name) for field in fields(self)]
        lists = (self.signature, self.named, self.kernel, self.words)
        counts = np.array([len(values) for values in lists], _COUNTS_DTYPE)
        data = counts.tobytes() + b"".join(
            array.astype(dtype).tobytes()
            for array, dtype in zip(arrays, _DTYPES, strict=True)
        )
        return base64.b64encode(zlib.compress(data, 9)).decode()

    @classmethod
    def decode(cls, text: str, *, launches: int) -> Self:
        """Read what `encode` wrote of an iteration of so many launches.

        Raises
        ------
        ValueError
            If it is something else.
        """
        data = _unpack(text)
        calls, named, kernels, words = np.frombuffer(
            data, _COUNTS_DTYPE, _NUM_COUNTS
        ).tolist()
        lengths = (*[calls] * 4, named, *[kernels] * 2, words)
        start = _NUM_COUNTS * _COUNTS_DTYPE.itemsize
        arrays: list[npt.NDArray[Any]] = []
        sizes = (n * d.itemsize for n, d in zip(lengths, _DTYPES, strict=True))
        if start + sum(sizes) != len(data):
            raise ValueError("the sequence of launches is damaged: too long or short")
        for length, stored, here in zip(lengths, _DTYPES, _DTYPES_HERE, strict=True):
            array = np.frombuffer(data, stored, length, start)
            arrays.append(array.astype(here))
            start += array.nbytes
        found = cls(*arrays)
        found._check(launches)
        return found

    def _check(self, launches: int) -> None:
        total = int(self.num_positions.sum())
        if total != launches or not (self.num_positions > 0).all():
            raise ValueError(
                f"the sequence is of {total} launches, the iteration of {launches}"
            )
        for counts, values in (
            (self.num_named, self.named),
            (self.num_words, self.words),
        ):
            if counts.sum() != len(values):
                raise ValueError("the sequence of launches is damaged: too few entries")
            if not _rise(values, counts):
                raise ValueError("the sequence of launches is damaged: out of order")
        if not _rise(self.kernel, np.array([len(self.kernel)])):
            raise ValueError("the sequence of launches is damaged: out of order")

    @cached_property
    def addresses(self) -> Hashes:
        """A hash of the set of addresses that each call names.

        `ANY_ADDRESSES` of a graph.
        """
        totals = np.r_[np.uint64(0), np.cumsum(mix(self.named), dtype=np.uint64)]
        ends = np.cumsum(self.num_named)
        hashes = totals[ends] - totals[ends - self.num_named]
        return np.where(self.is_graph, np.uint64(ANY_ADDRESSES), hashes)

    @cached_property
    def call_at(self) -> npt.NDArray[np.int64]:
        """The call that submits the launch at each position of the iteration."""
        return np.repeat(np.arange(len(self.signature)), self.num_positions)

    @property
    def begins(self) -> npt.NDArray[np.int64]:
        """The position at which each call's launches begin."""
        return np.cumsum(self.num_positions) - self.num_positions


def _rise(values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> bool:
    """Tell whether values rise within lists of so many."""
    which = np.repeat(np.arange(len(counts)), counts)
    return bool(((values[1:] > values[:-1]) | (which[1:] != which[:-1])).all())


def _unpack(text: str) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        packed = base64.b64decode(text, validate=True)
        data = unpacker.decompress(packed, MAX_BYTES + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the sequence of launches is damaged: {error}") from None
    is_whole = unpacker.eof and not unpacker.unused_data
    least = _NUM_COUNTS * _COUNTS_DTYPE.itemsize
    if not is_whole or not least <= len(data) <= MAX_BYTES:
        raise ValueError("the sequence of launches is damaged: too long or short")
    return data
