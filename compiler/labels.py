"""What the framework says lies in a range of memory: parameters, gradients, states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow.compute as pc

from transit.compiler.arrays import Ints, column
from transit.compiler.lifetimes import Allocations
from transit.traces.reader import Trace


@dataclass(frozen=True)
class Labels:
    """Blocks that have a label, by allocation; `start` and `stop` are bytes in it."""

    allocation: Ints  # index into Allocations
    start: Ints
    stop: Ints
    label: list[str]

    @classmethod
    def read(cls, trace: Trace, rank: int, allocations: Allocations) -> Self:
        """Read the labelled blocks of some allocations."""
        table = trace.table(rank, "blocks")
        table = table.filter(pc.is_valid(table["label"]))
        allocation = allocations.index_of(column(table, "allocation_id"))
        order = np.argsort(allocation, kind="stable")
        order = order[allocation[order] >= 0]
        table = table.take(order)
        start = column(table, "offset")
        stop = start + column(table, "bytes")
        return cls(allocation[order], start, stop, table["label"].to_pylist())

    def within(self, allocation: int, start: int, stop: int) -> list[str]:
        """Return what lies in a range at some time, that with most bytes first."""
        first, end = np.searchsorted(self.allocation, [allocation, allocation + 1])
        begins = np.maximum(self.start[first:end], start)
        shared = np.minimum(self.stop[first:end], stop) - begins
        sizes: dict[str, int] = {}
        for index in np.flatnonzero(shared > 0):
            label = self.label[first + index]
            sizes[label] = max(sizes.get(label, 0), int(shared[index]))
        return sorted(sizes, key=lambda label: (-sizes[label], label))
