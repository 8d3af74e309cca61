"""Turns the spools of a recorded job into a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transit import __version__
from transit.errors import JobError, TraceError
from transit.recorder import cross_checks, launches, tables, uvm
from transit.recorder.accesses import Accesses
from transit.recorder.audit import Audit
from transit.recorder.columns import DamagedError
from transit.recorder.directions import Directions, Pieces
from transit.recorder.fingerprint import Fingerprint
from transit.recorder.graphs import GraphNodes
from transit.recorder.launches import Launches
from transit.recorder.spool import Spool
from transit.recorder.summary import Summary, summarize
from transit.traces.manifest import (
    Checks,
    Clocks,
    DeviceInfo,
    Inspection,
    Losses,
    Manifest,
    RankInfo,
    SkippedProcess,
)
from transit.traces.writer import TraceWriter

FAILURE_FILE = "failure.txt"

Progress = Callable[[str], None]


def convert(
    run_dir: Path,
    out: Path,
    *,
    command: list[str],
    ended: str,
    inspections: Sequence[Inspection] = (),
    overwrite: bool = False,
    hooks: Mapping[int, int] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert every spool of a run into one trace.

    Parameters
    ----------
    run_dir
        Folder of the run, with a ``spool-*`` folder per process.
    out
        Trace folder to make; it appears when it is complete.
    command
        What was run.
    ended
        How the recording ended, in words.
    inspections
        What iterations were to be recorded for beside their times.
    overwrite
        Replace a trace at `out`.
    hooks
        Launches the shim saw, by process id.
    progress
        Told what is being converted.
    """
    chosen, skipped = _choose_processes(_open_spools(run_dir, hooks or {}))
    ranks = []
    bytes_by_source: Counter[str | None] = Counter()
    with TraceWriter(out, overwrite=overwrite) as writer:
        for rank, spool in sorted(chosen.items()):
            if progress:
                progress(f"converting rank {rank}")
            seen_by_hooks = (hooks or {}).get(spool.pid)
            info, accessed = _convert_rank(
                writer, rank, spool, inspections, seen_by_hooks
            )
            ranks.append(info)
            bytes_by_source.update(accessed)
        writer.finish(
            Manifest(
                transit_version=__version__,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                command=command,
                ended=ended,
                ranks=ranks,
                skipped=skipped,
            )
        )
    return summarize(ranks, skipped, bytes_by_source)


def _open_spools(run_dir: Path, hooks: Mapping[int, int]) -> list[Spool]:
    folders = sorted(path for path in run_dir.glob("spool-*") if path.is_dir())
    for folder in folders:
        failure = folder / FAILURE_FILE
        if failure.is_file():
            raise JobError(failure.read_text(errors="replace").strip())
    if not folders and any(hooks.values()):
        raise JobError(
            f"The job used CUDA and nothing of its recording is in {run_dir}: was it "
            "removed?"
        )
    if not folders:
        raise JobError("No process of the job used CUDA: nothing was recorded.")
    return [Spool.open(folder) for folder in folders]


def _choose_processes(
    spools: list[Spool],
) -> tuple[dict[int, Spool], list[SkippedProcess]]:
    """Take one process for each rank, and say why the others are left out."""
    chosen: dict[int, Spool] = {}
    skipped = []

    def skip(spool: Spool, reason: str) -> None:
        skipped.append(SkippedProcess(pid=spool.pid, reason=reason))

    # The busiest first: of two processes that claim a rank, it is the training one.
    for spool in sorted(spools, key=lambda spool: -len(spool.records["launch"])):
        if not len(spool.records["process"]):
            skip(spool, "ended before it could say its rank")
            continue
        rank = int(spool.records["process"]["rank"][0])
        if not len(spool.records["launch"]):
            skip(spool, f"rank {rank} launched nothing while recording")
        elif rank in chosen:
            winner = chosen[rank]
            skip(
                spool,
                f"claims rank {rank}, as does process {winner.pid} with more launches"
                f" ({len(winner.records['launch'])} against"
                f" {len(spool.records['launch'])})",
            )
        else:
            chosen[rank] = spool
    if not chosen:
        raise JobError(_nothing_recorded(spools))
    return chosen, skipped


def _nothing_recorded(spools: list[Spool]) -> str:
    started = any(
        np.any(spool.records["mark"]["kind"] == tables.RECORDING_STARTED)
        for spool in spools
    )
    if started:
        return "The job used CUDA but launched nothing: nothing was recorded."
    return (
        "Nothing was recorded: the job ended before the steps to skip had passed."
        " Skip fewer (--skip), or run it longer. Only steps of PyTorch's optimizers"
        " are seen: record a PyTorch job that makes none with --skip 0."
    )


def _convert_rank(
    writer: TraceWriter,
    rank: int,
    spool: Spool,
    inspections: Sequence[Inspection],
    seen_by_hooks: int | None,
) -> tuple[RankInfo, Counter[str | None]]:
    """Write a rank; return what it holds, and as `Accesses` the bytes accessed."""
    try:
        recording = _Recording.read(spool, inspections)
        counts = {
            name: writer.write(rank, name, rows)
            for name, rows in recording.tables().items()
        }
    except DamagedError as error:
        raise TraceError(f"{spool.folder} is damaged: {error}.") from error
    info = _rank_info(rank, recording, counts, seen_by_hooks)
    return info, recording.accesses.bytes_by_source


@dataclass(frozen=True)
class _Recording:
    """One process's records, joined; what accesses count is known after writing."""

    spool: Spool
    nodes: GraphNodes
    launched: Launches
    allocated: tables.Allocations
    blocks: tables.Blocks
    iterations: pa.Table
    accesses: Accesses
    audit: Audit
    fingerprint: Fingerprint
    checks: Checks

    @classmethod
    def read(cls, spool: Spool, inspections: Sequence[Inspection]) -> Self:
        nodes = GraphNodes.read(spool)
        launched = launches.join(spool, nodes)
        allocated = tables.allocations(spool)
        blocks = tables.blocks(spool, launched, allocated)
        accesses = Accesses(spool, launched, nodes, allocated, blocks)
        iterations = tables.iterations(spool, launched)
        audit = _find_directions(
            spool, nodes, launched, allocated, iterations, accesses
        )
        missed = set(inspections).difference(iterations["purpose"].to_pylist())
        checks = cross_checks.check(spool, allocated.lifetimes, sorted(missed))
        return cls(
            spool,
            nodes,
            launched,
            allocated,
            blocks,
            iterations,
            accesses,
            audit,
            Fingerprint(launched, allocated, iterations),
            checks,
        )

    def tables(self) -> dict[str, pa.Table | Iterable[pa.Table]]:
        records = self.spool.records
        return {
            "launches": self.launched.table,
            "graph_nodes": self.nodes.table(
                self.launched.correlation_of(self.nodes.launch_ids), records["activity"]
            ),
            "accesses": self.fingerprint.watch(self.accesses),
            "allocations": self.allocated.table,
            "blocks": self.blocks.table,
            "uvm_migrations": uvm.migrations(records["uvm"]),
            "uvm_faults": uvm.faults(records["uvm"]),
            "uvm_events": uvm.events(records["uvm"]),
            "iterations": self.iterations,
            "audit": self.audit.table,
            "overhead": uvm.overhead(records["overhead"]),
        }

    @property
    def losses(self) -> Losses:
        overhead = self.spool.records["overhead"]
        return Losses(
            dropped=self.spool.num_dropped
            + int(overhead["dropped_records"].sum(dtype=np.int64)),
            torn=self.spool.num_torn,
            unresolved_accesses=self.accesses.num_unresolved,
            unresolved_blocks=self.blocks.num_unresolved,
            unknown_blocks=self.blocks.num_unknown,
            unmatched_activities=self.launched.num_unmatched_activities,
            untimed_activities=self.launched.num_untimed_activities
            + uvm.num_untimed(self.spool.records["uvm"]),
            clock_steps=max(
                self.launched.num_clock_steps, len(self.checks.clock_steps_ns)
            ),
        )


def _find_directions(
    spool: Spool,
    nodes: GraphNodes,
    launched: Launches,
    allocated: tables.Allocations,
    iterations: pa.Table,
    accesses: Accesses,
) -> Audit:
    """Use the iterations that were recorded to find out what accesses do."""
    _, checked = accesses.between(*_range_for("direction", iterations))
    start, stop = _range_for("audit", iterations)
    touched, named = accesses.between(start, stop)
    audit = Audit.none()
    if start < stop:
        rows = np.searchsorted(launched.ids, (start, stop))
        launched_then = launched.table.slice(rows[0], rows[1] - rows[0])
        audit = Audit.read(spool, allocated, launched_then, touched)
    faults = Pieces.of_faults(audit.table, allocated.ids, allocated.lifetimes.address)
    accesses.directions = Directions.find(
        launched,
        nodes,
        iterations,
        (checked, Pieces.of_checksums(spool.records["checksum"])),
        (named, faults),
    )
    return audit


def _range_for(purpose: str, iterations: pa.Table) -> tuple[int, int]:
    """Return the first launch of the iterations for it, and the one after the last."""
    found = iterations.filter(pc.equal(iterations["purpose"], pa.scalar(purpose)))
    if not len(found):
        return 0, 0
    first, last = found["first_launch_id"][0], found["last_launch_id"][-1]
    return int(first.as_py()), int(last.as_py()) + 1


def _rank_info(
    rank: int, recording: _Recording, counts: dict[str, int], seen_by_hooks: int | None
) -> RankInfo:
    spool = recording.spool
    process = spool.records["process"][0]
    kernels = np.asarray(
        pc.equal(recording.launched.table["kind"], pa.scalar("kernel"))
    )
    return RankInfo(
        rank=rank,
        local_rank=int(process["local_rank"]),
        world_size=int(process["world_size"]),
        pid=spool.pid,
        devices=_devices(spool),
        driver_version=int(process["driver_version"]),
        cupti_version=int(process["cupti_version"]),
        torch_version=_version_of("torch", spool),
        clocks=_clocks(spool),
        counts=counts,
        launches_seen_by_hooks=seen_by_hooks,
        launches_seen_by_cupti=len(spool.records["launch"]),
        kernel_launches=int(np.count_nonzero(kernels)),
        kernel_activities=int(
            np.count_nonzero(spool.records["activity"]["kind"] == launches.KERNEL)
        ),
        kernel_launches_with_access=int(
            np.count_nonzero(kernels & recording.accesses.has_access)
        ),
        losses=recording.losses,
        audit=recording.audit.info,
        fingerprints=recording.fingerprint.finish(
            recording.audit.table, recording.blocks.table
        ),
        checks=recording.checks,
    )


def _devices(spool: Spool) -> list[DeviceInfo]:
    devices = spool.records["device"]
    names: Any = spool.names(devices["name_id"])
    return [
        DeviceInfo(
            device=int(device["device"]),
            name=name.as_py(),
            memory_bytes=int(device["memory_bytes"]),
            compute_capability="{}.{}".format(
                *divmod(int(device["compute_capability"]), 10)
            ),
            num_multiprocessors=int(device["num_multiprocessors"]),
        )
        for device, name in zip(devices, names, strict=True)
    ]


def _version_of(framework: str, spool: Spool) -> str | None:
    records = spool.records["framework"]
    names: Any = spool.names(records["name_id"])
    versions: Any = spool.names(records["version_id"])
    return dict(zip(names.to_pylist(), versions.to_pylist(), strict=True)).get(
        framework
    )


def _clocks(spool: Spool) -> Clocks:
    process = spool.records["process"][0]
    return Clocks(
        realtime_ns=int(process["clock_realtime_ns"]),
        monotonic_ns=int(process["clock_monotonic_ns"]),
        cupti_ns=int(process["clock_cupti_ns"]),
    )
