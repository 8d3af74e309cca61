"""By what the iteration of one rank is known to be that of another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class UsualIteration:
    """The launches that a rank's iterations have most often.

    Attributes
    ----------
    digest
        Of their signatures, in order.
    rows
        The first row among all launches, and the one after the last, of each iteration
        that has them.
    """

    digest: str
    rows: list[tuple[int, int]]

    @classmethod
    def find(
        cls,
        launch_ids: Ints,
        signatures: npt.NDArray[np.uint64],
        first: Ints,
        last: Ints,
    ) -> UsualIteration:
        """Find it.

        Parameters
        ----------
        launch_ids, signatures
            Of all launches, by ascending id.
        first, last
            The ids of each iteration's first and last launch; without iterations, all
            launches are one.
        """
        starts = np.searchsorted(launch_ids, first).tolist() or [0]
        stops = np.searchsorted(launch_ids, last, "right").tolist() or [len(launch_ids)]
        alike: dict[str, list[tuple[int, int]]] = {}
        for start, stop in zip(starts, stops, strict=True):
            found = new_hash(signatures[start:stop].astype("<u8")).hexdigest()
            alike.setdefault(found, []).append((start, stop))
        most = max(alike, key=lambda found: len(alike[found]))
        return cls(most, alike[most])


def new_hash(values: npt.NDArray[Any]) -> hashlib.blake2b:
    """Return the hash of some values, to go on with or to be read."""
    return hashlib.blake2b(values.tobytes(), digest_size=_DIGEST_BYTES)
