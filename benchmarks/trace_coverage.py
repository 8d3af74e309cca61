"""What one rank of a trace knows of the bytes its launches touch."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from transit.traces.reader import Trace

MOST_ROWS = 20
MOST_LABELS = 5

Result = dict[str, Any]


def describe(folder: Path) -> Result:
    """Return the counts of a trace, and by how its bytes are known their shares.

    The shares are those of the iterations that ran as the job does by itself.
    """
    trace = Trace.open(folder)
    rank = trace.ranks[0]
    iterations = frame(trace, rank, "iterations")
    purposes = iterations["purpose"]
    timed = iterations[purposes.isna() | (purposes == "timing")]
    launches = within(frame(trace, rank, "launches"), timed)
    accesses = within(frame(trace, rank, "accesses"), timed)
    return {
        **manifest_figures(folder),
        "iterations": len(timed),
        "launches_per_iteration": len(launches) / max(1, len(timed)),
        "kernels_without_access": without_access(launches, accesses),
        **byte_shares(accesses),
        "audited": audited(trace, rank),
    }


def frame(trace: Trace, rank: int, table: str) -> pd.DataFrame:
    """Return one table."""
    rows: pd.DataFrame = trace.table(rank, table).to_pandas()
    return rows


def within(rows: pd.DataFrame, iterations: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose launch is of the iterations; all if there are none."""
    if iterations.empty:
        return rows
    bounds = pd.IntervalIndex.from_arrays(
        iterations["first_launch_id"], iterations["last_launch_id"], closed="both"
    )
    return rows[bounds.get_indexer(pd.Index(rows["launch_id"])) >= 0]


def manifest_of(folder: Path) -> Result:
    """Return all that the recorder says of a trace."""
    manifest: Result = json.loads((folder / "manifest.json").read_text())
    return manifest


def manifest_figures(folder: Path) -> Result:
    """Return what the recorder says of the first rank, but for what names it."""
    rank: Result = manifest_of(folder)["ranks"][0]
    names = ("rank", "local_rank", "world_size", "pid", "devices", "clocks", "counts")
    return {key: value for key, value in rank.items() if key not in names}


def without_access(launches: pd.DataFrame, accesses: pd.DataFrame) -> dict[str, int]:
    """Return which kernels no access is known of, and how often they ran."""
    is_blind = ~launches["launch_id"].isin(accesses["launch_id"])
    names = launches.loc[is_blind & (launches["kind"] == "kernel"), "name"]
    counts = names.astype("object").value_counts()[:MOST_ROWS]
    return {str(name): int(count) for name, count in counts.items()}


def byte_shares(accesses: pd.DataFrame) -> Result:
    """Return the share of the accessed bytes by extent, direction, and source of it."""
    sizes = accesses["bytes"].fillna(0)
    total = float(sizes.sum())
    result: Result = {
        "accessed_bytes": int(total),
        "accesses": len(accesses),
        "accesses_without_bytes": int(accesses["bytes"].isna().sum()),
    }
    for column in ("extent", "direction", "direction_source", "source"):
        values = accesses[column].astype("object").fillna("unknown")
        sums = sizes.groupby(values).sum().sort_values(ascending=False)
        shares = {str(k): float(v) / total for k, v in sums.items()} if total else {}
        result[f"bytes_by_{column}"] = shares
    return result


def audited(trace: Trace, rank: int) -> Result | None:
    """Return the recall of the audit iteration, if any, and what no launch names."""
    rows = frame(trace, rank, "audit")
    if rows.empty:
        return None
    unexplained = rows[~rows["is_explained"]].sort_values("bytes", ascending=False)
    return {
        "touched_bytes": int(rows["bytes"].sum()),
        "unexplained_bytes": int(unexplained["bytes"].sum()),
        "recall": 1 - float(unexplained["bytes"].sum()) / float(rows["bytes"].sum()),
        "unexplained_regions": len(unexplained),
        "largest_unexplained": [
            name_region(trace, rank, row)
            for row in unexplained[:MOST_ROWS].to_dict("records")
        ],
    }


def name_region(trace: Trace, rank: int, row: Mapping[Hashable, Any]) -> Result:
    """Return a region with what is known about it, for a person to explain it."""
    allocations = frame(trace, rank, "allocations").set_index("allocation_id")
    blocks = frame(trace, rank, "blocks")
    is_here = (
        (blocks["allocation_id"] == row["allocation_id"])
        & (blocks["offset"] < row["offset"] + row["bytes"])
        & (blocks["offset"] + blocks["bytes"] > row["offset"])
    )
    launches = frame(trace, rank, "launches").set_index("launch_id")["name"]
    names = ("allocation_id", "offset", "bytes", "access")
    return {
        **{name: row[name] for name in names},
        "allocation_bytes": int(allocations["bytes"][row["allocation_id"]]),
        "caller": allocations["caller"][row["allocation_id"]],
        "blocks": int(is_here.sum()),
        "labels": sorted(set(blocks.loc[is_here, "label"].dropna()))[:MOST_LABELS],
        "launch": launches.get(row["launch_id"]),
    }
