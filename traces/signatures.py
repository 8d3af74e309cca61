"""The hash by which launches alike are known, as ``FORMAT.md`` defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1


def signatures(
    names: pa.DictionaryArray[Any, Any], words: list[npt.NDArray[Any]]
) -> npt.NDArray[np.uint64]:
    """Hash launches by FNV-1a: the name's bytes, then `words`, a word a step."""
    texts: list[Any] = names.dictionary.to_pylist()
    of_name = np.array([_fnv1a(text.encode()) for text in texts], np.uint64)
    digest: npt.NDArray[np.uint64] = of_name[names.indices.to_numpy()]
    for word in words:
        digest = (digest ^ word.astype(np.uint64)) * np.uint64(_FNV_PRIME)
    return digest


def extend(
    digests: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.int64],
    words: npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """Go on hashing: the digest at each of `rows`, which ascend, by its word."""
    digests = digests.copy()
    turn = np.arange(len(rows)) - np.searchsorted(rows, rows)
    order = np.argsort(turn, kind="stable")
    for turns in np.split(order, np.flatnonzero(np.diff(turn[order])) + 1):
        of = rows[turns]
        digests[of] = (digests[of] ^ words[turns]) * np.uint64(_FNV_PRIME)
    return digests


def _fnv1a(text: bytes) -> int:
    digest = _FNV_OFFSET
    for byte in text:
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return digest
