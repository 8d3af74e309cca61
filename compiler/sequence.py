"""The launches of an iteration as the job submits them, in a plan as compact text."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from transit.compiler.arrays import Hashes, mix

ANY_ADDRESSES = 2**64 - 1
MAX_BYTES = 256 << 20  # beyond any iteration: a damaged or hostile file
_COUNT_DTYPE = np.dtype("<u4")
_CALL_DTYPES = tuple(map(np.dtype, ("<u8", "<u4", "<u4", "u1")))
_CALL_BYTES = sum(dtype.itemsize for dtype in _CALL_DTYPES)
_ADDRESS_DTYPE = np.dtype("<u8")


@dataclass(frozen=True)
class Sequence:
    """The calls that submit the iteration's work, in order.

    `named` are the addresses that the calls name, those of one after those of the other
    and rising: each has `num_named`. A graph has none, and its `num_positions` are its
    nodes.
    """

    signature: npt.NDArray[np.uint64]
    num_positions: npt.NDArray[np.int64]
    num_named: npt.NDArray[np.int64]
    is_graph: npt.NDArray[np.bool_]
    named: npt.NDArray[np.uint64]

    def encode(self) -> str:
        """Return it as compact text."""
        calls = (self.signature, self.num_positions, self.num_named, self.is_graph)
        data = b"".join(
            array.astype(dtype).tobytes()
            for array, dtype in zip(
                (np.array(len(self.signature)), *calls, self.named),
                (_COUNT_DTYPE, *_CALL_DTYPES, _ADDRESS_DTYPE),
                strict=True,
            )
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
        count = int(np.frombuffer(data, _COUNT_DTYPE, 1)[0])
        start = _COUNT_DTYPE.itemsize
        rest = len(data) - start - count * _CALL_BYTES
        if rest < 0 or rest % _ADDRESS_DTYPE.itemsize:
            raise ValueError("the sequence of launches is damaged: too long or short")
        calls = []
        for dtype in _CALL_DTYPES:
            calls.append(np.frombuffer(data, dtype, count, start))
            start += calls[-1].nbytes
        signature, num_positions, num_named, is_graph = calls
        named = np.frombuffer(data, _ADDRESS_DTYPE, -1, start)
        total = int(num_positions.sum(dtype=np.uint64))
        if total != launches or not (num_positions > 0).all():
            raise ValueError(
                f"the sequence is of {total} launches, the iteration of {launches}"
            )
        if num_named.sum(dtype=np.uint64) != len(named):
            raise ValueError("the sequence of launches is damaged: too few addresses")
        call = np.repeat(np.arange(count), num_named)
        if not ((named[1:] > named[:-1]) | (call[1:] != call[:-1])).all():
            raise ValueError("the sequence of launches is damaged: out of order")
        return cls(
            signature,
            num_positions.astype(np.int64),
            num_named.astype(np.int64),
            is_graph.astype(np.bool_),
            named,
        )

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


def _unpack(text: str) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        packed = base64.b64decode(text, validate=True)
        data = unpacker.decompress(packed, MAX_BYTES + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"the sequence of launches is damaged: {error}") from None
    is_whole = unpacker.eof and not unpacker.unused_data
    if not is_whole or not _COUNT_DTYPE.itemsize <= len(data) <= MAX_BYTES:
        raise ValueError("the sequence of launches is damaged: too long or short")
    return data
