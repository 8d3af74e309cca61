"""Launches of one rank, joined with what the GPU did for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.recorder.columns import (
    KINDS,
    NEVER,
    DamagedError,
    Ints,
    int64,
    is_timed,
    known_labels,
    nullable,
    shape,
    shape_columns,
)
from transit.recorder.graphs import GraphNodes
from transit.recorder.spool import Records, Spool
from transit.traces.signatures import signatures

KERNEL = 1
# Two threads may number their launches in another order than they read the clock.
_CLOCK_STEP_NS = 1_000_000


@dataclass(frozen=True)
class Launches:
    """Launches by ascending id, and how the GPU ran them."""

    table: pa.Table
    ids: Ints
    host_ns: Ints
    correlation_id: Ints
    num_unmatched_activities: int
    num_untimed_activities: int
    num_clock_steps: int

    def correlation_of(self, launch_ids: Ints) -> Ints:
        """Return the correlation ids of some of the launches."""
        return self.correlation_id[np.searchsorted(self.ids, launch_ids)]

    def next_at(self, time_ns: Ints) -> Ints:
        """Return the id of the first launch not before each time."""
        after_last = self.ids[-1:] + 1 if len(self.ids) else 0
        reached = np.maximum.accumulate(self.host_ns)
        return np.append(self.ids, after_last)[np.searchsorted(reached, time_ns)]


def join(spool: Spool, nodes: GraphNodes) -> Launches:
    """Join launches with the activity they started, and graphs with their nodes."""
    records = spool.records["launch"]
    records = records[np.argsort(records["launch_id"], kind="stable")]
    host_ns = int64(records["host_ns"], "launch time")
    ids = int64(records["launch_id"], "launch id")
    if not np.diff(ids).all():
        raise DamagedError("a launch is there twice")
    names = spool.names(records["name_id"])
    signature = signatures(names, [records["kind"], *shape(records)])
    correlation_id = records["correlation_id"].astype(np.int64)
    timing = _join_activities(correlation_id, spool.records["activity"])
    columns: dict[str, Any] = {
        "launch_id": ids,
        "correlation_id": correlation_id,
        "kind": known_labels(records["kind"], KINDS, "launch kind"),
        "name": names,
        "signature": nodes.sign(signature, ids),
        "device": records["device"],
        "stream": records["stream"],
        "host_ns": host_ns,
        "start_ns": nullable(timing.start_ns, timing.untimed),
        "end_ns": nullable(timing.end_ns, timing.untimed),
        "graph_id": nullable(timing.graph_id, timing.graph_id == 0),
        "graph_node_id": nullable(timing.graph_node_id, timing.graph_node_id == 0),
    }
    return Launches(
        pa.table(columns | shape_columns(records)),
        ids,
        host_ns,
        correlation_id,
        timing.num_unmatched,
        timing.num_untimed,
        int(np.count_nonzero(np.diff(host_ns) < -_CLOCK_STEP_NS)),
    )


@dataclass(frozen=True)
class _Timing:
    start_ns: Ints
    end_ns: Ints
    untimed: npt.NDArray[np.bool_]
    graph_id: Ints
    graph_node_id: Ints
    num_unmatched: int
    num_untimed: int


def _join_activities(correlation_id: npt.NDArray[Any], activity: Records) -> _Timing:
    """Find each launch's time on the GPU: a graph's is that of all its nodes."""
    activity = activity[np.argsort(activity["correlation_id"], kind="stable")]
    ids, first, count = np.unique(
        activity["correlation_id"], return_index=True, return_counts=True
    )
    start, end = activity["start_ns"], activity["end_ns"]
    timed = is_timed(activity)
    place = np.searchsorted(ids, correlation_id)
    found = np.append(ids.astype(np.int64), -1)[place] == correlation_id

    def gather(per_id: npt.NDArray[Any]) -> Ints:
        return np.where(found, np.append(per_id.astype(np.int64), 0)[place], 0)

    def reduce(ufunc: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(ufunc.reduceat(values, first)) if len(ids) else values

    start_ns = gather(reduce(np.minimum, np.where(timed, start, NEVER)))
    end_ns = gather(reduce(np.maximum, np.where(timed, end, 0)))
    node = np.where(count == 1, activity["graph_node_id"][first], 0)
    return _Timing(
        start_ns,
        end_ns,
        end_ns == 0,
        gather(reduce(np.maximum, activity["graph_id"])),
        gather(node),
        int(np.count_nonzero(~np.isin(activity["correlation_id"], correlation_id))),
        int(np.count_nonzero(~timed)),
    )
