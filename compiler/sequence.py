"""The launches of an iteration as the job submits them, in a plan as compact text."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

ANY_ADDRESSES = 2**64 - 1
MAX_BYTES = 256 << 20  # beyond any iteration: a damaged or hostile file
_DTYPES = ("<u8", "<u8", "<u4")
_SIZES = [np.dtype(dtype).itemsize for dtype in _DTYPES]
_STARTS = [sum(_SIZES[:i]) for i in range(len(_SIZES))]


@dataclass(frozen=True)
class Sequence:
    """The calls that submit the iteration's work, in order.

    `addresses` is a hash of the set of addresses that each names, and `ANY_ADDRESSES`
    for a graph, whose `num_positions` are its nodes.
    """

    signature: npt.NDArray[np.uint64]
    addresses: npt.NDArray[np.uint64]
    num_positions: npt.NDArray[np.int64]

    def encode(self) -> str:
        """Return it as compact text."""
        arrays = (self.signature, self.addresses, self.num_positions)
        data = b"".join(
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
        limit = min(launches * sum(_SIZES), MAX_BYTES)
        try:
            unpacker = zlib.decompressobj()
            packed = base64.b64decode(text, validate=True)
            data = unpacker.decompress(packed, limit + 1)
        except (ValueError, zlib.error) as error:
            raise ValueError(f"the sequence of launches is damaged: {error}") from None
        count, rest = divmod(len(data), sum(_SIZES))
        if rest or len(data) > limit or not unpacker.eof or unpacker.unused_data:
            raise ValueError("the sequence of launches is damaged: too long or short")
        signature, addresses, num_positions = (
            np.frombuffer(data, dtype, count, count * start)
            for dtype, start in zip(_DTYPES, _STARTS, strict=True)
        )
        total = int(num_positions.sum(dtype=np.uint64))
        if total != launches or not (num_positions > 0).all():
            raise ValueError(
                f"the sequence is of {total} launches, the iteration of {launches}"
            )
        return cls(signature, addresses, num_positions.astype(np.int64))

    @cached_property
    def call_at(self) -> npt.NDArray[np.int64]:
        """The call that submits the launch at each position of the iteration."""
        return np.repeat(np.arange(len(self.signature)), self.num_positions)

    @property
    def begins(self) -> npt.NDArray[np.int64]:
        """The position at which each call's launches begin."""
        return np.cumsum(self.num_positions) - self.num_positions
