"""What the GPU did one after the other: launches, and the nodes of graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from transit.compiler.arrays import Ints, column
from transit.traces.reader import Trace

_COLUMNS = ["launch_id", "kind", "name", "signature", "start_ns", "end_ns"]
_NO_NODE = -1


@dataclass(frozen=True)
class Work:
    """Launches in order; in place of a graph's launch, its nodes, where they are known.

    A graph is launched as one, but each of its kernels has its own time and accesses.
    """

    table: pa.Table
    launch_ids: Ints
    _keys: Ints
    _stride: int

    @classmethod
    def read(cls, trace: Trace, rank: int) -> Self:
        """Read the launches of one rank."""
        launches = trace.table(rank, "launches", _COLUMNS)
        nodes = trace.table(rank, "graph_nodes", [*_COLUMNS, "graph_node"])
        launch_ids, node = column(launches, "launch_id"), column(nodes, "graph_node")
        stride = 2 + int(node.max(initial=_NO_NODE))
        keys = launch_ids * stride
        if nodes.num_rows:
            of_node = column(nodes, "launch_id")
            plain = ~np.isin(launch_ids, of_node)
            keys = np.concatenate([keys[plain], of_node * stride + node + 1])
            rows = [launches.filter(pa.array(plain)), nodes.select(_COLUMNS)]
            launches = pa.concat_tables(rows).unify_dictionaries()
            order = np.argsort(keys)
            launches, keys = launches.take(order), keys[order]
        return cls(launches, keys // stride, keys, stride)

    def places(self, launch_id: Ints, graph_node: Ints) -> Ints:
        """Find the rows of launches and nodes; `graph_node` is -1 outside of graphs."""
        keys = launch_id * self._stride + graph_node + 1
        return np.searchsorted(self._keys, keys)
