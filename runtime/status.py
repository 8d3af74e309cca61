"""What the shim did: the status files of a job's processes, read and added up."""

from __future__ import annotations

import dataclasses
import logging
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from transit.errors import JobError

log = logging.getLogger(__name__)

MAGIC = b"TRNSSTAT"
VERSION = 7  # of the file
REPORT_VERSION = 1  # of the JSON object

# Mirrors StatusFile in runtime/native/status_file.h.
COUNTERS = (
    "allocations_seen",
    "allocations_matched",
    "allocations_unmatched",
    "allocations_passed",
    "frees_seen",
    "resident_bytes",
    "resident_peak_bytes",
    "zero_copy_bytes",
    "zero_copy_peak_bytes",
    "passed_bytes",
    "passed_peak_bytes",
    "spare_bytes",
    "gpu_bytes",
    "gpu_peak_bytes",
    "budget_bytes",
    "budget_excesses",
    "budget_excess_peak_bytes",
    "host_bytes",
    "host_peak_bytes",
    "host_limit_bytes",
    "host_refusals",
    "card_bytes",
    "card_taken_bytes",
    "kernel_launches",
    "graph_launches",
    "copies",
    "sets",
    "windowed_bytes",
    "windowed_peak_bytes",
    "h2d_bytes",
    "d2h_bytes",
    "gates",
    "loads_without_room",
    "transfer_failures",
    "launches_planned",
    "launches_inserted",
    "launches_skipped",
    "launches_elsewhere",
    "launches_unlocked",
    "locks",
    "unlocked_copied_bytes",
    "steps_per_lap",
    "laps",
    "held_back_ns",
)
NUM_LAP_TIMES = 32
MIN_LAPS = 3  # fewer say nothing about a step
STATUS_DTYPE = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("file_bytes", "<u4"),
        ("pid", "<u4"),
        ("rank", "<u4"),
        ("state", "<u4"),
        ("backend", "<u4"),
        *((counter, "<u8") for counter in COUNTERS),
        ("lap_ns", "<u8", (NUM_LAP_TIMES,)),
        ("placement_failures", "<u8"),
        ("message", "S256"),
    ]
)


class ShimState(IntEnum):
    """How far the shim came in a process."""

    STARTING = 0
    OBSERVING = 1
    REPLAYING = 2
    PASS_THROUGH = 3
    PAGING = 4


class BackendKind(IntEnum):
    """What enacts placements."""

    NONE = 0
    VMM = 1
    UVM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """The status file of one process."""

    pid: int
    rank: int
    state: ShimState
    backend: BackendKind
    allocations_seen: int
    allocations_matched: int
    allocations_unmatched: int
    allocations_passed: int
    frees_seen: int
    resident_bytes: int
    resident_peak_bytes: int
    zero_copy_bytes: int
    zero_copy_peak_bytes: int
    passed_bytes: int
    passed_peak_bytes: int
    spare_bytes: int
    gpu_bytes: int
    gpu_peak_bytes: int
    budget_bytes: int
    budget_excesses: int
    budget_excess_peak_bytes: int
    host_bytes: int
    host_peak_bytes: int
    host_limit_bytes: int
    host_refusals: int
    card_bytes: int
    card_taken_bytes: int
    kernel_launches: int
    graph_launches: int
    copies: int
    sets: int
    windowed_bytes: int
    windowed_peak_bytes: int
    h2d_bytes: int
    d2h_bytes: int
    gates: int
    loads_without_room: int
    transfer_failures: int
    launches_planned: int
    launches_inserted: int
    launches_skipped: int
    launches_elsewhere: int
    launches_unlocked: int
    locks: int
    unlocked_copied_bytes: int
    steps_per_lap: int
    laps: int
    held_back_ns: int
    lap_ns: tuple[int, ...]  # of the last laps, in turn
    placement_failures: int
    message: str

    @property
    def launches_seen(self) -> int:
        """Work submitted to the GPU, of every kind."""
        return self.kernel_launches + self.graph_launches + self.copies + self.sets

    @property
    def is_busy(self) -> bool:
        """Whether it used a GPU, other than to ask how many there are."""
        return self.allocations_seen > 0 or self.launches_seen > 0

    @property
    def measured_step_ns(self) -> int | None:
        """How long a step took: the median of the last laps; None after too few."""
        if self.laps < MIN_LAPS:
            return None
        return round(statistics.median(self.lap_ns) / self.steps_per_lap)

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain values."""
        return dataclasses.asdict(self) | {
            "state": self.state.name.lower().replace("_", "-"),
            "backend": self.backend.name.lower(),
            "measured_step_ns": self.measured_step_ns,
        }


def read_status(path: Path) -> ProcessStatus:
    """Read one status file.

    Raises
    ------
    JobError
        The file is foreign, truncated, or of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) < STATUS_DTYPE.itemsize or not content.startswith(MAGIC):
        raise JobError(f"{path}: not a complete status file of transit's")
    record = np.frombuffer(content, STATUS_DTYPE, 1)[0]
    values = dict(zip(STATUS_DTYPE.names or (), record.item(), strict=True))
    del values["magic"], values["file_bytes"]
    if (version := values.pop("version")) != VERSION:
        raise JobError(
            f"{path}: status file of version {version}; this transit reads version "
            f"{VERSION}: the installed libtransit.so is not its own"
        )
    values["message"] = values["message"].decode(errors="replace")
    values["lap_ns"] = _in_turn(values["lap_ns"].tolist(), values["laps"])
    try:
        values["state"] = ShimState(values["state"])
        values["backend"] = BackendKind(values["backend"])
    except ValueError as error:
        raise JobError(f"{path}: damaged status file: {error}") from error
    return ProcessStatus(**values)


def _in_turn(ring: list[int], laps: int) -> tuple[int, ...]:
    """Return the laps that a ring has the times of, the last one last."""
    oldest = max(laps - NUM_LAP_TIMES, 0)
    return tuple(ring[lap % NUM_LAP_TIMES] for lap in range(oldest, laps))


def read_run(run_dir: Path) -> list[ProcessStatus]:
    """Read the status of every process of a run that used CUDA, by rank and pid.

    An unreadable file is warned about and left out.
    """
    processes = []
    for path in run_dir.glob("status-*.bin"):
        try:
            processes.append(read_status(path))
        except JobError as error:
            log.warning("%s", error)
    return sorted(processes, key=lambda process: (process.rank, process.pid))


def report(processes: Sequence[ProcessStatus], **extra: Any) -> dict[str, Any]:
    """Return the versioned JSON object for the processes of a run."""
    return {
        "format": "transit-status",
        "version": REPORT_VERSION,
        **extra,
        "processes": [process.to_json() for process in processes],
    }
