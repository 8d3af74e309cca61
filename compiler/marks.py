"""Marked iterations of a recording."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transit.compiler.arrays import Ints, column

# The first of so many is dropped: memory may have come in it, and code.
MIN_MARKED_TO_DROP_FIRST = 3


def rows_outside(marks: pa.Table, ids: Ints) -> Ints:
    """Return the rows of launches outside of some iterations."""
    firsts, lasts = column(marks, "first_launch_id"), column(marks, "last_launch_id")
    begun = np.searchsorted(firsts, ids, side="right")
    ended = np.searchsorted(lasts, ids, side="left")
    return np.flatnonzero(begun == ended)
