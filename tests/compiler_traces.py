"""Random traces, and plans checked without the compiler's own bookkeeping."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from trace_factory import START_NS, Rows, Tables, write_tables

from transit.compiler.plan import PIECE_BYTES, Allocation, Plan
from transit.traces import schema
from transit.traces.reader import Trace

ITERATIONS = 4


@dataclass(frozen=True)
class Touch:
    """One access of a launch: which allocation, and from where to where in it."""

    allocation: int
    start: int
    stop: int
    direction: str = "unknown"
    extent: str = "block"


@dataclass(frozen=True)
class Launch:
    """A kernel of every iteration."""

    name: str
    duration_ns: int
    touches: tuple[Touch, ...]
    kind: str = "kernel"


@dataclass(frozen=True)
class Chunk:
    """A device allocation, alive from one launch id to another."""

    size: int
    movable: bool = True
    born: int = 0
    died: int | None = None
    api: str = "mem_alloc"


def allocation_rows(chunks: list[Chunk]) -> Rows:
    rows, ordinal = [], 0
    for index, chunk in enumerate(chunks):
        rows.append(
            {
                "allocation_id": index,
                "ordinal": ordinal if chunk.movable else None,
                "device": 0,
                "address": (1 << 46) + (index << 36),
                "bytes": chunk.size,
                "api": chunk.api,
                "caller": "libcudart.so.13",
                "alloc_launch_id": chunk.born,
                "free_launch_id": chunk.died,
            }
        )
        ordinal += chunk.movable
    return rows


def launch_row(launch_id: int, launch: Launch) -> dict[str, Any]:
    start_ns = START_NS + launch_id * 1_000_000_000
    return {
        **dict.fromkeys(
            ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1
        ),
        "launch_id": launch_id,
        "correlation_id": launch_id,
        "kind": launch.kind,
        "name": launch.name,
        "signature": sum(ord(c) << (7 * i) for i, c in enumerate(launch.name)),
        "device": 0,
        "stream": 7,
        "host_ns": start_ns - 1000,
        "start_ns": start_ns,
        "end_ns": start_ns + launch.duration_ns,
        "graph_id": None,
        "graph_node_id": None,
    }


def access_rows(launch_id: int, launch: Launch) -> Rows:
    return [
        {
            "launch_id": launch_id,
            "allocation_id": touch.allocation,
            "offset": touch.start,
            "bytes": touch.stop - touch.start,
            "extent": touch.extent,
            "direction": touch.direction,
            "source": "parameter",
        }
        for touch in sorted(launch.touches, key=lambda t: (t.allocation, t.start))
    ]


def tables(
    chunks: list[Chunk], launches: list[Launch], iterations: int = ITERATIONS
) -> Tables:
    """Return the tables of a job that repeats some launches."""
    sequence = launches * iterations
    rows: dict[str, Rows] = {
        "allocations": allocation_rows(chunks),
        "launches": [launch_row(i, launch) for i, launch in enumerate(sequence)],
        "accesses": [
            row for i, launch in enumerate(sequence) for row in access_rows(i, launch)
        ],
        "iterations": [
            {
                "iteration": i,
                "first_launch_id": i * len(launches),
                "last_launch_id": (i + 1) * len(launches) - 1,
                "found_by": "optimizer step",
            }
            for i in range(iterations)
        ],
    }
    return {
        name: pa.Table.from_pylist(rows.get(name, []), schema=table)
        for name, table in schema.TABLES.items()
    }


def make_trace(chunks: list[Chunk], launches: list[Launch]) -> Trace:
    return trace_of(tables(chunks, launches))


def trace_of(made: Tables) -> Trace:
    """Write the tables of one rank where nobody looks."""
    folder = Path(tempfile.mkdtemp())
    return Trace.open(write_tables(folder / "trace", {0: made}))


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[Chunk], list[Launch]]:
    """Draw a job: allocations of every kind and a few launches that touch them."""
    names = draw(
        st.lists(st.text("abcdefgh", min_size=1, max_size=4), min_size=1, max_size=6)
    )
    last = ITERATIONS * len(names)
    chunks = []
    for _ in range(draw(st.integers(1, 6))):
        born = draw(st.integers(0, last))
        died = draw(st.none() | st.integers(born, last))
        size = draw(st.integers(1, 12 * PIECE_BYTES))
        api = draw(st.sampled_from(["mem_alloc", "mem_alloc", "async", "host"]))
        movable = api == "mem_alloc" and draw(st.booleans())
        chunks.append(Chunk(size, movable, born, died, api))
    launches = []
    for name in names:
        touches = []
        # A trace without any access is refused.
        for _ in range(draw(st.integers(0 if launches else 1, 4))):
            index = draw(st.integers(0, len(chunks) - 1))
            start = draw(st.integers(0, chunks[index].size - 1))
            stop = draw(st.integers(start + 1, chunks[index].size))
            direction = draw(st.sampled_from(["unknown", "read", "write", "both"]))
            touches.append(Touch(index, start, stop, direction))
        duration_ns = draw(st.sampled_from([1_000, 8_000, 100_000, 10_000_000]))
        launches.append(Launch(name, duration_ns, tuple(touches)))
    return chunks, launches


def resident_bytes_by_moment(plan: Plan, chunks: list[Chunk]) -> list[int]:
    """Count what is on the GPU at every launch id, slowly and plainly."""
    planned = {a.ordinal: a for a in plan.ranks[0].allocations}
    last = max((c.died or c.born for c in chunks), default=0)
    totals = []
    for moment in range(last + 1):
        kept = movable = ordinal = 0
        for chunk in chunks:
            alive = chunk.born <= moment and (
                chunk.died is None or moment <= chunk.died
            )
            if chunk.movable:
                movable += alive * resident_bytes(planned[ordinal])
                ordinal += 1
            elif chunk.api != "host":
                kept += alive * chunk.size
        totals.append(movable + -(-kept // PIECE_BYTES) * PIECE_BYTES)
    return totals


def resident_bytes(allocation: Allocation) -> int:
    return sum(p.bytes for p in allocation.placements if p.placement == "resident")
