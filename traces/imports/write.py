"""Writes what another profiler saw as a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from transit import __version__
from transit.traces import schema
from transit.traces.imports.launches import (
    Launches,
    build_launches,
    find_iterations,
    pair_allocations,
    texts,
)
from transit.traces.imports.profile import Process, Profile
from transit.traces.manifest import Clocks, Losses, Manifest, RankInfo
from transit.traces.writer import TraceWriter


@dataclass(frozen=True)
class Summary:
    """What was imported: `counts` are rows of each table, over all ranks."""

    source: str
    num_ranks: int
    counts: dict[str, int]
    missing: str
    notes: list[str]

    def __str__(self) -> str:
        """Return one line for people."""
        present = (
            f"{rows:,} {name.replace('_', ' ')}"
            for name, rows in self.counts.items()
            if rows
        )
        processes = "process" if self.num_ranks == 1 else "processes"
        return f"{', '.join(present)}, of {self.num_ranks:,} {processes}"


def import_profile(
    read: Callable[[Path], Profile], file: Path, out: Path, *, overwrite: bool = False
) -> Summary:
    """Write a profiler's file as a trace.

    Parameters
    ----------
    read
        Reads such files: `kineto.read` or `nsys.read`.
    file
        The profiler's file.
    out
        Trace folder to make; it appears when it is complete.
    overwrite
        Replace a trace at `out`.
    """
    with TraceWriter(out, overwrite=overwrite) as writer:
        profile = read(file)
        notes = list(profile.notes)
        ranks = [
            _write_process(writer, process, notes) for process in profile.processes
        ]
        writer.finish(
            Manifest(
                transit_version=__version__,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                command=[],
                ended=f"not recorded: imported from {profile.source}",
                ranks=ranks,
            )
        )
    counts = {name: sum(rank.counts[name] for rank in ranks) for name in schema.TABLES}
    return Summary(profile.source, len(ranks), counts, profile.missing, notes)


def _write_process(writer: TraceWriter, process: Process, notes: list[str]) -> RankInfo:
    launches = build_launches(process)
    iterations, num_left_out = find_iterations(process, launches)
    tables = {name: schema.empty(name) for name in schema.TABLES} | {
        "launches": launches.table,
        "iterations": iterations,
        "allocations": pair_allocations(process, launches),
        "uvm_migrations": process.migrations.sort_by("start_ns"),
        "uvm_faults": process.faults.sort_by("start_ns"),
    }
    for name, table in tables.items():
        writer.write(process.rank, name, table)
    if launches.num_without_call:
        notes.append(
            f"rank {process.rank}: {launches.num_without_call:,} launches have no API"
            " call in the file; they are in the order in which the GPU started them"
        )
    if num_left_out:
        notes.append(
            f"rank {process.rank}: {num_left_out:,} steps overlap an earlier one,"
            " or are not in order, and are left out"
        )
    return _rank_info(process, launches, tables)


def _rank_info(
    process: Process, launches: Launches, tables: dict[str, pa.Table]
) -> RankInfo:
    def num_kernels(table: pa.Table) -> int:
        return int(np.count_nonzero(texts(table, "kind") == "kernel"))

    return RankInfo(
        rank=process.rank,
        local_rank=0,
        world_size=process.world_size,
        pid=process.pid,
        devices=process.devices,
        driver_version=0,
        cupti_version=0,
        clocks=Clocks(realtime_ns=0, monotonic_ns=0, cupti_ns=0),
        counts={name: table.num_rows for name, table in tables.items()},
        launches_seen_by_cupti=launches.table.num_rows,
        kernel_launches=num_kernels(launches.table),
        kernel_activities=num_kernels(process.activities),
        kernel_launches_with_access=0,
        losses=Losses(untimed_activities=launches.num_untimed),
    )
