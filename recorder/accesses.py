"""Accesses of one rank as places in allocations, some launches at a time.

They are by far the most of what is recorded: all at once, they would take several times
the memory of the spool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder import directions
from transit.recorder.access_records import AccessRecords
from transit.recorder.columns import (
    NEVER,
    Ints,
    int64,
    known_labels,
    labels,
    nullable,
)
from transit.recorder.directions import (
    BOTH,
    CALL,
    UNKNOWN,
    WRITTEN,
    Directions,
    Named,
)
from transit.recorder.extents import bytes_to_next_base
from transit.recorder.graphs import GraphNodes
from transit.recorder.launches import Launches
from transit.recorder.spool import Records, Spool
from transit.recorder.tables import Allocations, Blocks

DIRECTIONS = {0: "unknown", 1: "read", 2: "write", 3: "both"}
SOURCES = {1: "parameter", 2: "copy", 3: "set", 4: "tensor map"}
_IN_PARAMETERS = (1, 4)
_UNKNOWN_SOURCE = -1
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
    directions
        What was found out about directions; nothing, until it is set.
    bytes_by_source
        Bytes that accesses may reach, by how their direction is known; None: it is not.
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
        self.directions = Directions.none()
        self.bytes_by_source: Counter[str | None] = Counter()
        self._first_launch = np.full(len(blocks.lifetimes), NEVER)

    def __iter__(self) -> Iterator[pa.Table]:
        """Return the rows in order."""
        for records, node in self._records.chunks(self._launched.ids, CHUNK_ROWS):
            accesses = self._resolve(records, node, in_order=True)
            self.num_unresolved += len(records) - len(accesses.records)
            self.has_access[accesses.launch_row] = True
            block_row = self._block_rows(accesses)
            table = self._table(
                accesses, block_row, *self._directions(accesses, block_row)
            )
            self._count(table)
            yield table

    def between(self, start: int, stop: int) -> tuple[pa.Table, Named]:
        """Return what the launches from `start` to before `stop` touch.

        Returns
        -------
        table, named
            The rows, with no direction but what the calls say; and those without one.
        """
        accesses = self._resolve(*self._records.between(start, stop), in_order=True)
        direction = accesses.records["direction"].astype(np.int64)
        source = np.where(direction == UNKNOWN, _UNKNOWN_SOURCE, CALL)
        block_row = self._block_rows(accesses)
        table = self._table(accesses, block_row, direction, source)
        unknown = np.flatnonzero(direction == UNKNOWN)
        records = accesses.records[unknown]
        named = Named(
            records["launch_id"].astype(np.int64),
            accesses.node[unknown],
            records["param_offset"].astype(np.int64),
            records["address"].astype(np.int64),
            table["bytes"].to_numpy()[unknown],
        )
        return table, named

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

    @cached_property
    def _bases(self) -> Ints:
        """Return the places that any launch names or any block starts at, in order."""
        blocks = self._blocks
        start = self._allocated.line_start[blocks.allocation_row]
        bases = np.unique(start + blocks.offset)
        for records, node in self._records.chunks(self._launched.ids, CHUNK_ROWS):
            bases = np.union1d(bases, self._resolve(records, node).place)
        return bases

    def _count(self, table: pa.Table) -> None:
        sums = table.group_by("direction_source").aggregate([("bytes", "sum")])
        rows: list[dict[str, Any]] = sums.to_pylist()
        for row in rows:
            self.bytes_by_source[row["direction_source"]] += row["bytes_sum"]

    def _block_rows(self, accesses: _Resolved) -> Ints:
        """Return the block that each access begins in, -1 where none was alive."""
        address = self._allocated.lifetimes.address[accesses.allocation_row]
        host_ns = self._launched.host_ns[accesses.launch_row]
        return self._blocks.lifetimes.find(address + accesses.offset, host_ns)

    def _table(
        self, accesses: _Resolved, block_row: Ints, direction: Ints, how_known: Ints
    ) -> pa.Table:
        records, node, row = accesses.records, accesses.node, accesses.allocation_row
        reach, extent = self._extents(accesses, block_row)
        reach = np.minimum(
            reach, self._allocated.lifetimes.bytes[row] - accesses.offset
        )
        columns: dict[str, Any] = {
            "launch_id": self._launched.ids[accesses.launch_row],
            "allocation_id": self._allocated.ids[row],
            "offset": accesses.offset,
            "bytes": reach,
            "extent": labels(extent, EXTENTS),
            "direction": known_labels(direction, DIRECTIONS, "direction"),
            "direction_source": labels(how_known, directions.SOURCES),
            "source": known_labels(records["source"], SOURCES, "access source"),
            "parameter_offset": nullable(
                records["param_offset"], ~np.isin(records["source"], _IN_PARAMETERS)
            ),
            "graph_node": nullable(node, node < 0),
        }
        return pa.table(columns)

    def _extents(self, accesses: _Resolved, block_row: Ints) -> tuple[Ints, Ints]:
        """Return how many bytes each access may reach, and how that is known."""
        reach = int64(accesses.records["bytes"], "access size")
        extent = np.where(reach > 0, _EXACT, np.where(block_row >= 0, _BLOCK, _GAP))
        gap = np.flatnonzero(extent == _GAP)
        ends = self._allocated.line_start[accesses.allocation_row[gap] + 1]
        reach[gap] = bytes_to_next_base(self._bases, accesses.place[gap], ends)
        in_block = np.flatnonzero(extent == _BLOCK)
        row = accesses.allocation_row[in_block]
        address = self._allocated.lifetimes.address[row] + accesses.offset[in_block]
        end = self._blocks.lifetimes.end[block_row[in_block]]
        reach[in_block] = end - address
        return reach, extent

    def _directions(self, accesses: _Resolved, block_row: Ints) -> tuple[Ints, Ints]:
        """Return each access's direction, and how it is known.

        The accesses come in the order of their launches.
        """
        direction = accesses.records["direction"].astype(np.int64)
        source = np.where(direction == UNKNOWN, _UNKNOWN_SOURCE, CALL)
        if not len(self.directions):
            return direction, source
        is_new = self._is_new(accesses, block_row)
        unknown = np.flatnonzero(direction == UNKNOWN)
        found, how = self.directions.of(
            accesses.launch_row[unknown],
            accesses.node[unknown],
            accesses.records["param_offset"][unknown],
        )
        # What is written may be read as well, if anything was there before.
        found[(found == WRITTEN) & ~is_new[unknown]] = BOTH
        direction[unknown] = found
        source[unknown] = np.where(found == UNKNOWN, _UNKNOWN_SOURCE, how)
        return direction, source

    def _is_new(self, accesses: _Resolved, block_row: Ints) -> npt.NDArray[np.bool_]:
        """Tell which accesses are to blocks that no launch before has named.

        Not of a graph: its memory is used again by each launch of it.
        """
        blocks, host_ns = self._blocks.lifetimes, self._launched.host_ns
        inside = np.flatnonzero(block_row >= 0)
        row, launch_row = block_row[inside], accesses.launch_row[inside]
        np.minimum.at(self._first_launch, row, launch_row)
        born_ns = blocks.born_ns[row]
        # No tolerance here: a last access to what was there before is none to this.
        born = (born_ns >= host_ns[0]) & (born_ns <= host_ns[launch_row])
        born &= blocks.birth_seen[row]
        is_new = np.zeros(len(block_row), np.bool_)
        is_new[inside] = born & (self._first_launch[row] == launch_row)
        return is_new & (accesses.node < 0)
