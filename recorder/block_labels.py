"""What each block of the framework's allocator holds, as the job's hook said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from transit.recorder.columns import Ints, int64
from transit.recorder.extents import Lifetimes
from transit.recorder.spool import Spool


def block_labels(spool: Spool, blocks: Lifetimes, rows: Ints) -> pa.Array[Any]:
    """Return a text for some of the blocks, null where nobody said what one holds.

    Of several things in one block, the first is named and the rest counted.
    """
    records = spool.records["label"]
    address = int64(records["address"], "address of a label")
    row = blocks.find(address, int64(records["host_ns"], "time of a label"))
    found = row >= 0
    row, address, name_id = row[found], address[found], records["name_id"][found]
    # The same thing may have been seen in its block many times.
    _, first_seen = np.unique(
        np.stack([row, name_id.astype(np.int64)]), axis=1, return_index=True
    )
    first_seen = first_seen[
        np.lexsort((first_seen, address[first_seen], row[first_seen]))
    ]
    labelled, first, count = np.unique(
        row[first_seen], return_index=True, return_counts=True
    )
    named: Any = spool.names(name_id[first_seen[first]])
    texts = [
        name if others == 0 else f"{name} and {others} more"
        for name, others in zip(named.to_pylist(), (count - 1).tolist(), strict=True)
    ]
    index = np.full(len(blocks), -1, np.int64)
    index[labelled] = np.arange(len(labelled))
    wanted: Any = pa.array(index[rows], mask=index[rows] < 0)
    return pa.array(texts, pa.string()).dictionary_encode().take(wanted)
