"""The launches of an iteration as the job submits them, in a plan as compact text."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

ANY_ADDRESSES = 2**64 - 1
_DTYPES = ("<u8", "<u8", "<u4")
_BYTES = sum(np.dtype(dtype).itemsize for dtype in _DTYPES)


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
        most = launches * _BYTES
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(base64.b64decode(text, validate=True), most + 1)
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"the sequence of launches is damaged: {error}") from None
        count = len(data) // _BYTES
        found, start = [], 0
        for dtype in _DTYPES:
            stop = start + count * np.dtype(dtype).itemsize
            found.append(np.frombuffer(data[start:stop], dtype))
            start = stop
        num_positions = found[2].astype(np.int64)
        if start != len(data) or not (num_positions > 0).all():
            raise ValueError("the sequence of launches is damaged")
        if (total := int(num_positions.sum())) != launches:
            raise ValueError(
                f"the sequence has {total} launches, the iteration {launches}"
            )
        return cls(found[0], found[1], num_positions)
