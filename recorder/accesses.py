"""Accesses of one rank as places in allocations, some launches at a time.

They are by far the most of what is recorded: all at once, they would take several times
the memory of the spool.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from transit.recorder.access_records import AccessRecords
from transit.recorder.columns import Ints, int64, known_labels, labels, nullable
from transit.recorder.extents import bytes_to_next_base
from transit.recorder.graphs import GraphNodes
from transit.recorder.launches import Launches
from transit.recorder.spool import Records, Spool
from transit.recorder.tables import Allocations, Blocks

DIRECTIONS = {0: "unknown", 1: "read", 2: "write", 3: "both"}
SOURCES = {1: "parameter", 2: "copy", 3: "set", 4: "tensor map"}
_EXACT, _BLOCK, _GAP = range(3)
EXTENTS = {_EXACT: "exact", _BLOCK: "block", _GAP: "gap"}
CHUNK_ROWS = 1 << 19


@dataclass(frozen=True)
class _Resolved:
    """Accesses whose launch and allocation are known."""

    records: Records
    node: Ints
    launch_row: Ints
    allocation_row: Ints
    offset: Ints
    place: Ints  # in the line of all allocations


class Accesses:
    """The table of accesses, in parts; what is counted is so once it was gone through.

    Attributes
    ----------
    num_unresolved
        Records that are in no launch or allocation known.
    has_access
        Tells for each launch whether it has any.
    """

    def __init__(
        self,
        spool: Spool,
        launched: Launches,
        nodes: GraphNodes,
        allocated: Allocations,
        blocks: Blocks,
    ) -> None:
        self._records = AccessRecords(spool, nodes.launches)
        self._launched = launched
        self._allocated = allocated
        self._blocks = blocks
        self.num_unresolved = 0
        self.has_access = np.zeros(len(launched.ids), np.bool_)

    def __iter__(self) -> Iterator[pa.Table]:
        """Return the rows in order."""
        bases = self._bases()
        for records, node in self._records.chunks(self._launched.ids, CHUNK_ROWS):
            accesses = self._resolve(records, node, in_order=True)
            self.num_unresolved += len(records) - len(accesses.records)
            self.has_access[accesses.launch_row] = True
            yield self._table(accesses, bases)

    def between(self, start: int, stop: int) -> pa.Table:
        """Return the rows of the launches from `start` to before `stop`."""
        accesses = self._resolve(*self._records.between(start, stop), in_order=True)
        return self._table(accesses, self._bases())

    def _resolve(
        self, records: Records, node: Ints, *, in_order: bool = False
    ) -> _Resolved:
        launched, allocated = self._launched, self._allocated
        launch_ids = int64(records["launch_id"], "launch id")
        launch_row = np.searchsorted(launched.ids, launch_ids)
        known = np.append(launched.ids, -1)[launch_row] == launch_ids
        row = allocated.rows(records["allocation_id"])
        address = int64(records["address"], "address")
        # A graph is read before it is launched: what was there may have gone and come
        # back.
        later = np.flatnonzero(known & (node >= 0))
        row[later] = allocated.lifetimes.find(
            address[later], launched.host_ns[launch_row[later]]
        )
        offset = address - np.append(allocated.lifetimes.address, 0)[row]
        known &= (row >= 0) & (offset >= 0)
        known &= address < np.append(allocated.lifetimes.end, 0)[row]
        keep = np.flatnonzero(known)
        place = allocated.line_start[row[keep]] + offset[keep]
        if in_order:
            order = np.lexsort((node[keep], place, launch_row[keep]))
            keep, place = keep[order], place[order]
        return _Resolved(
            records[keep], node[keep], launch_row[keep], row[keep], offset[keep], place
        )

    def _bases(self) -> Ints:
        """Return the places that any launch names or any block starts at, in order."""
        blocks = self._blocks
        start = self._allocated.line_start[blocks.allocation_row]
        bases = np.unique(start + blocks.offset)
        for records, node in self._records.chunks(self._launched.ids, CHUNK_ROWS):
            bases = np.union1d(bases, self._resolve(records, node).place)
        return bases

    def _table(self, accesses: _Resolved, bases: Ints) -> pa.Table:
        records, node, row = accesses.records, accesses.node, accesses.allocation_row
        reach, extent = self._extents(accesses, bases)
        to_end = self._allocated.lifetimes.bytes[row] - accesses.offset
        direction = records["direction"]
        columns: dict[str, Any] = {
            "launch_id": self._launched.ids[accesses.launch_row],
            "allocation_id": self._allocated.ids[row],
            "offset": accesses.offset,
            "bytes": np.minimum(reach, to_end),
            "extent": labels(extent, EXTENTS),
            "direction": known_labels(direction, DIRECTIONS, "direction"),
            "direction_source": labels(np.where(direction == 0, -1, 0), {0: "call"}),
            "source": known_labels(records["source"], SOURCES, "access source"),
            "graph_node": nullable(node, node < 0),
        }
        return pa.table(columns)

    def _extents(self, accesses: _Resolved, bases: Ints) -> tuple[Ints, Ints]:
        """Return how many bytes each access may reach, and how that is known."""
        reach = int64(accesses.records["bytes"], "access size")
        extent = np.full(len(reach), _EXACT, np.int64)
        unknown = np.flatnonzero(reach == 0)
        row, offset = accesses.allocation_row[unknown], accesses.offset[unknown]
        reach[unknown] = bytes_to_next_base(
            bases, accesses.place[unknown], self._allocated.line_start[row + 1]
        )
        extent[unknown] = _GAP
        address = self._allocated.lifetimes.address[row] + offset
        host_ns = self._launched.host_ns[accesses.launch_row[unknown]]
        found = self._blocks.lifetimes.find(address, host_ns)
        inside = found >= 0
        in_block = unknown[inside]
        reach[in_block] = self._blocks.lifetimes.end[found[inside]] - address[inside]
        extent[in_block] = _BLOCK
        return reach, extent
