"""What an Nsight Systems export knows of memory: allocations, migrations, faults."""

from __future__ import annotations

import pyarrow as pa

from transit.traces.check import MAX_ALLOCATION_BYTES
from transit.traces.imports.profile import FAULTS, MEMORY, MIGRATIONS
from transit.traces.imports.sqlite import Columns, Database

# Unified-memory migrations are copies of these kinds.
MIGRATIONS_BY_COPY_KIND = {
    11: "host to device",
    12: "device to host",
    13: "device to device",
}
_CAUSES = {
    1: "user",
    2: "coherence",
    3: "prefetch",
    4: "eviction",
    5: "access counters",
}
_FAULT_ACCESSES = {1: "read", 2: "write", 3: "atomic", 4: "prefetch"}

# Kinds of memory that a call allocated; not what a module brings with it.
_APIS = {1: "host", 2: "mem_alloc", 4: "managed"}
_ALLOCATION, _FREE = 0, 1


def read_events(database: Database) -> pa.Table:
    """Read allocations and frees (``nsys profile --cuda-memory-usage=true``)."""

    def expressions(c: Columns) -> list[str]:
        pool = c.get("localMemoryPoolAddress", "0")
        return [
            c["start"],
            f"{c['memoryOperationType']} = {_FREE}",
            c["deviceId"],
            c["address"],
            c.below("bytes", MAX_ALLOCATION_BYTES),
            f"CASE WHEN {pool} != 0 THEN 'async' ELSE {_case(c['memKind'], _APIS)} END",
            c.process("globalPid"),
        ]

    kinds = ", ".join(map(str, _APIS))
    return database.read(
        "CUDA_GPU_MEMORY_USAGE_EVENTS",
        MEMORY,
        expressions,
        lambda c: (
            f"{c['memKind']} IN ({kinds})"
            f" AND {c['memoryOperationType']} IN ({_ALLOCATION}, {_FREE})"
        ),
    )


def read_migrations(database: Database) -> pa.Table:
    """Read what the driver copied to make managed memory present."""
    return database.read(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        MIGRATIONS,
        lambda c: [
            c["start"],
            c["end"],
            c["virtualAddress"],
            c.below("bytes", MAX_ALLOCATION_BYTES),
            _case(c["copyKind"], MIGRATIONS_BY_COPY_KIND),
            _case(c.get("migrationCause"), _CAUSES),
            c.process("globalPid"),
        ],
        lambda c: f"NOT ({is_no_migration(c)})",
    )


def is_no_migration(columns: Columns) -> str:
    """Return the condition, in SQL, that a row of the copies is the job's."""
    kinds = ", ".join(map(str, MIGRATIONS_BY_COPY_KIND))
    return f"{columns['copyKind']} NOT IN ({kinds})"


def read_faults(database: Database) -> pa.Table:
    """Read page faults (``nsys profile --cuda-um-gpu-page-faults=true``)."""
    by_cpu = database.read(
        "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
        FAULTS,
        lambda c: [
            c["start"],
            c["address"],
            "'unknown'",
            "'cpu'",
            "NULL",
            "NULL",
            c.process("globalPid"),
        ],
    )
    by_gpu = database.read(
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        FAULTS,
        lambda c: [
            c["start"],
            c["address"],
            _case(c.get("faultAccessType"), _FAULT_ACCESSES),
            f"'gpu ' || {c['deviceId']}",
            c.get("end"),
            c.get("numberOfPageFaults"),
            c.process("globalPid"),
        ],
    )
    return pa.concat_tables([by_cpu, by_gpu]).unify_dictionaries()


def _case(value: str, texts: dict[int, str]) -> str:
    cases = " ".join(f"WHEN {code} THEN '{text}'" for code, text in texts.items())
    return f"CASE {value} {cases} ELSE 'unknown' END"
