"""What the launches of graphs ran: their nodes, and what those touch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.columns import (
    KINDS,
    Ints,
    int64,
    is_timed,
    known_labels,
    nullable,
    shape,
    shape_columns,
)
from transit.recorder.spool import Records, Spool
from transit.traces.signatures import extend, signatures


@dataclass(frozen=True)
class GraphLaunches:
    """Launches of graphs whose nodes are known, by ascending id.

    Attributes
    ----------
    launch_ids
        The launches.
    graph
        Which graph, in which state, each of them ran: a number of the recorder's.
    """

    launch_ids: Ints
    graph: Ints

    @classmethod
    def read(cls, spool: Spool) -> Self:
        """Find them in a spool."""
        records = spool.records["graph_launch"]
        known = np.isin(records["graph"], spool.records["graph_node"]["graph"])
        known &= np.isin(records["launch_id"], spool.records["launch"]["launch_id"])
        ids, first = np.unique(records["launch_id"][known], return_index=True)
        graph = records["graph"][known][first].astype(np.int64)
        return cls(int64(ids, "launch id"), graph)

    def between(self, start: int, stop: int) -> GraphLaunches:
        """Return those with ids from `start` to before `stop`."""
        first, last = np.searchsorted(self.launch_ids, (start, stop))
        return GraphLaunches(self.launch_ids[first:last], self.graph[first:last])

    def find(self, graph: Ints) -> tuple[Ints, Ints]:
        """Return each launch's first row, and how many there are.

        Parameters
        ----------
        graph
            The graph that each row belongs to, ascending.
        """
        first = np.searchsorted(graph, self.graph)
        return first, np.searchsorted(graph, self.graph, side="right") - first

    def expand(self, graph: Ints) -> tuple[Ints, Ints]:
        """Pair each launch with the rows of its graph.

        Parameters
        ----------
        graph
            The graph that each row belongs to, ascending.

        Returns
        -------
        launch, row
            Of each pair the place of the launch, and the row.
        """
        first, count = self.find(graph)
        launch = np.repeat(np.arange(len(count)), count)
        skipped = np.cumsum(count) - count - first
        return launch, np.arange(len(launch)) - skipped[launch]


@dataclass(frozen=True)
class GraphNodes:
    """The nodes of every launch of a graph: launch by launch, in the graph's order."""

    launches: GraphLaunches
    launch_ids: Ints
    records: Records
    names: pa.DictionaryArray[Any, Any]
    signature: npt.NDArray[np.uint64]

    @classmethod
    def read(cls, spool: Spool) -> Self:
        """Expand the nodes of graphs to those of launches."""
        launches = GraphLaunches.read(spool)
        records = spool.records["graph_node"]
        records = records[np.lexsort((records["node"], records["graph"]))]
        launch, row = launches.expand(records["graph"].astype(np.int64))
        records = records[row]
        names = spool.names(records["name_id"])
        signature = signatures(names, [records["kind"], *shape(records)])
        return cls(launches, launches.launch_ids[launch], records, names, signature)

    def sign(
        self, digests: npt.NDArray[np.uint64], launch_ids: Ints
    ) -> npt.NDArray[np.uint64]:
        """Return the signatures of launches, with those of a graph's nodes in them."""
        row = np.searchsorted(launch_ids, self.launch_ids)
        return extend(digests, row, self.signature)

    def table(self, correlation_id: Ints, activity: Records) -> pa.Table:
        """Return the rows of the trace.

        Parameters
        ----------
        correlation_id
            Of each node's launch.
        activity
            What the GPU did.
        """
        start_ns, end_ns = self._times(correlation_id, activity)
        node_id = self.records["node_id"]
        columns: dict[str, Any] = {
            "launch_id": self.launch_ids,
            "graph_node": self.records["node"].astype(np.int32),
            "graph_node_id": nullable(node_id, node_id == 0),
            "kind": known_labels(self.records["kind"], KINDS, "kind of node"),
            "name": self.names,
            "signature": self.signature,
            "start_ns": nullable(start_ns, end_ns == 0),
            "end_ns": nullable(end_ns, end_ns == 0),
        }
        return pa.table(columns | shape_columns(self.records))

    def _times(self, correlation_id: Ints, activity: Records) -> tuple[Ints, Ints]:
        """Find each node's time on the GPU, 0 and 0 where there is none."""
        activity = activity[is_timed(activity) & (activity["graph_node_id"] > 0)]
        node_ids, code = np.unique(activity["graph_node_id"], return_inverse=True)
        stride = len(node_ids) + 1
        keys = activity["correlation_id"].astype(np.int64) * stride + code
        order = np.argsort(keys, kind="stable")
        keys, activity = keys[order], activity[order]
        # The last code, of no activity, stands for all nodes that have none.
        code = np.searchsorted(node_ids, self.records["node_id"])
        known = np.flatnonzero(code < len(node_ids))
        same = node_ids[code[known]] == self.records["node_id"][known]
        code[known[~same]] = len(node_ids)
        wanted = correlation_id * stride + code
        at = np.searchsorted(keys, wanted)
        found = np.flatnonzero(at < len(keys))
        found = found[keys[at[found]] == wanted[found]]
        times = np.zeros((2, len(wanted)), np.int64)
        for row, name in enumerate(("start_ns", "end_ns")):
            times[row, found] = activity[name][at[found]]
        return times[0], times[1]
