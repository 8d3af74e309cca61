"""Which launch a fault of the audit iteration is laid to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spool_factory as factory
from spool_factory import BASE, MIB, NOW_NS

MS = 1_000_000
ITERATION_END, PURPOSE_CHANGED, AUDIT = 2, 5, 2
STREAMS = 3
PLACES = {0: 0, 1: 4 * MIB, 2: 8 * MIB}  # by the launch that names each


def fault(offset: int, time_ns: int) -> dict[str, Any]:
    return {
        "start_ns": time_ns,
        "end_ns": time_ns + 10,
        "address": BASE + offset,
        "value": 1,
        "counter_kind": 4,  # a fault on the GPU
        "flags": 1,  # a read
        "src_id": 0,
    }


def test_of_launches_in_flight_the_one_that_names_the_page_is_told(
    tmp_path: Path,
) -> None:
    """Three at once: else the one that started last, and none when nothing runs."""
    unnamed = 14 * MIB
    busy_ns, idle_ns = NOW_NS + 4 * MS, NOW_NS + 6 * MS
    trace = factory.trace(
        tmp_path,
        mark=[
            {"kind": 1, "host_ns": NOW_NS},
            {"kind": ITERATION_END, "launch_id": 0, "value": 1},
            {"kind": PURPOSE_CHANGED, "launch_id": 0, "value": AUDIT},
            {"kind": ITERATION_END, "launch_id": STREAMS + 1, "value": 2},
        ],
        launch=[factory.launch(index) for index in range(STREAMS + 1)],
        activity=[
            *(factory.activity(i, end_ns=NOW_NS + 5 * MS) for i in range(STREAMS)),
            factory.activity(STREAMS, start_ns=NOW_NS + 8 * MS, end_ns=NOW_NS + 9 * MS),
        ],
        allocation=[factory.allocation(0, api=7)],
        access=[
            *(factory.access(i, offset) for i, offset in PLACES.items()),
            factory.access(STREAMS, 12 * MIB, bytes=MIB),
        ],
        uvm=[
            *(fault(offset, busy_ns) for offset in PLACES.values()),
            fault(unnamed, busy_ns),
            fault(unnamed + MIB, idle_ns),
        ],
    )
    rows = trace.table(0, "audit").to_pylist()
    found = {row["offset"]: (row["launch_id"], row["is_explained"]) for row in rows}
    assert found == {
        **{offset: (launch, True) for launch, offset in PLACES.items()},
        unnamed: (STREAMS - 1, False),
        unnamed + MIB: (None, False),
    }
    audit = trace.manifest.rank(0).audit
    assert audit is not None
    assert (audit.faulted_bytes, audit.explained_bytes) == (5 * 4096, 3 * 4096)
    assert audit.unexplained_regions == 1
