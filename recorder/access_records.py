"""Reads access records by launch, some launches at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from transit.recorder.columns import NEVER, Ints, int64
from transit.recorder.graphs import GraphLaunches
from transit.recorder.spool import Records, Spool


class AccessRecords:
    """All access records of a spool; those of graphs' nodes, for each launch."""

    def __init__(self, spool: Spool, graph_launches: GraphLaunches) -> None:
        self._plain = _Sorted(spool.records["access"], "launch id")
        self._of_nodes = _Sorted(spool.records["graph_access"], "graph node")
        self._graph_launches = graph_launches

    def chunks(self, launch_ids: Ints, rows: int) -> Iterator[tuple[Records, Ints]]:
        """Return every record, those of unknown launches included.

        Parameters
        ----------
        launch_ids
            The launches, ascending; what one of them has is never split.
        rows
            How many records to return at a time, about.

        Returns
        -------
        records, node
            The records, and each one's node, -1 outside of graphs.
        """
        before = np.searchsorted(self._plain.keys, launch_ids)
        before += self._num_of_nodes_before(launch_ids)
        _, first = np.unique(before // rows, return_index=True)
        for start, stop in pairwise([0, *launch_ids[first[1:]].tolist(), NEVER]):
            yield self.between(start, stop)

    def _num_of_nodes_before(self, launch_ids: Ints) -> Ints:
        launches = self._graph_launches
        _, count = launches.find(self._of_nodes.keys >> 32)
        total = np.append(0, np.cumsum(count))
        return total[np.searchsorted(launches.launch_ids, launch_ids)]

    def between(self, start: int, stop: int) -> tuple[Records, Ints]:
        """Return the records of the launches from `start` to before `stop`."""
        plain = self._plain.between(start, stop)
        node = np.full(len(plain), -1)
        launches = self._graph_launches.between(start, stop)
        launch, row = launches.expand(self._of_nodes.keys >> 32)
        if not len(row):
            return plain, node
        expanded = self._of_nodes.take(row)
        expanded["launch_id"] = launches.launch_ids[launch]
        node = np.append(node, self._of_nodes.keys[row] & 0xFFFFFFFF)
        return np.concatenate([plain, expanded]), node


class _Sorted:
    """Records by their launch's id or their node's key, sorted if they are not."""

    def __init__(self, records: Records, what: str) -> None:
        self._records = records
        self._order: Ints | None = None
        self.keys = int64(records["launch_id"], what)
        # Several threads may have written in turns.
        if np.any(self.keys[1:] < self.keys[:-1]):
            self._order = np.argsort(self.keys, kind="stable")
            self.keys = self.keys[self._order]

    def take(self, rows: Ints | slice) -> Records:
        """Return some of the records, in the order of their keys."""
        return self._records[rows if self._order is None else self._order[rows]]

    def between(self, start: int, stop: int) -> Records:
        """Return the records with keys from `start` to before `stop`."""
        first, last = np.searchsorted(self.keys, (start, stop))
        return self.take(slice(first, last))
