"""``manifest.json``: what was recorded, where, how it ended, and what got lost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transit.errors import TraceError
from transit.traces.schema import FORMAT, VERSION

FILE_NAME = "manifest.json"

Count = Annotated[int, Field(ge=0, lt=2**63)]
Inspection = Literal["direction", "audit"]
"""What an iteration is recorded for that is slowed down."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Clocks(_Model):
    """One instant as three clocks show it."""

    realtime_ns: Count
    monotonic_ns: Count
    cupti_ns: Count


class DeviceInfo(_Model):
    """A GPU that the process made a context on."""

    device: Count
    name: str
    memory_bytes: Count
    compute_capability: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    num_multiprocessors: Count


class Losses(_Model):
    """What the recording could not keep or explain, in records."""

    dropped: Count = 0
    """Not kept by CUPTI's buffers or the spool (disk full)."""
    torn: Count = 0
    """Announced by the spool and not in it (truncated file)."""
    unresolved_accesses: Count = 0
    """Outside the allocation they name, or of an unknown launch or allocation."""
    unresolved_blocks: Count = 0
    """In no allocation alive at the time."""
    unknown_blocks: Count = 0
    """From times at which the framework's history of its blocks is not whole."""
    unmatched_activities: Count = 0
    """GPU work that no recorded launch started, for instance from before the start."""
    untimed_activities: Count = 0
    """GPU work whose times CUPTI lost, or gave backwards."""
    clock_steps: Count = 0
    """Times the clock was set back while recording, by more than a millisecond."""


class FailedCall(_Model):
    """Something CUPTI failed at while recording."""

    what: str
    reason: str
    count: Count


class Checks(_Model):
    """What different witnesses say of the same thing."""

    hooked_launches: Count | None = None
    """Seen by the shim while iterations were recorded for their times."""
    recorded_launches: Count | None = None
    """Recorded meanwhile."""
    captured_launches: Count | None = None
    """Not recorded meanwhile, since they only went into a graph."""
    missing_kernel_activities: Count = 0
    """Kernels that were launched, also by graphs, and that CUPTI did not report."""
    unseen_allocations: Count = 0
    """On the GPU, reported by CUPTI while recording and not by the shim."""
    unseen_allocation_bytes: Count = 0
    clock_steps_ns: list[int] = []
    """By how much the clock was set while recording, each time."""
    dropped_by_table: dict[str, Count] = {}
    """Records the spool had no room for, by the recorder's tables."""
    failed_calls: list[FailedCall] = []
    missed_inspections: list[Inspection] = []
    """Asked for, and no whole iteration was recorded for them."""


class AuditInfo(_Model):
    """What the audit iteration touched, against what its launches name."""

    managed_bytes: Count
    """Of the memory whose accesses the driver reports."""
    outside_bytes: Count
    """Of the job's other memory: its accesses are outside the audit."""
    faulted_bytes: Count
    """First touches of pages, summed over launches."""
    explained_bytes: Count
    """Those that a launch in flight names."""
    unexplained_regions: Count
    """Runs of pieces of 2 MiB that hold another."""


class Fingerprints(_Model):
    """Equal for ranks whose usual iterations are alike."""

    launches: str
    """Of the signatures of its launches."""
    memory: str
    """Of what its launches touch, and of the allocations: all that a plan depends on
    beside the launches and their times."""


class RankInfo(_Model):
    """One process of the job."""

    rank: Count
    local_rank: Count
    world_size: Count
    pid: Count
    devices: list[DeviceInfo]
    driver_version: Count
    cupti_version: Count
    torch_version: str | None = None
    clocks: Clocks
    counts: dict[str, Count]
    """Rows per table."""
    launches_seen_by_hooks: Count | None = None
    """Over the process's whole life; unknown when it left no status file."""
    launches_seen_by_cupti: Count
    """While recording."""
    kernel_launches: Count
    kernel_activities: Count
    """Kernels in CUPTI's activity records, those of graphs included."""
    kernel_launches_with_access: Count
    losses: Losses
    audit: AuditInfo | None = None
    """Null when there was no audit iteration."""
    fingerprints: Fingerprints | None = None
    """Null before version 4 and in imported traces."""
    checks: Checks = Checks()
    source_caveats: list[str] = []
    """Of an imported trace: what to know of what it was made from."""


class SkippedProcess(_Model):
    """A process that left a spool and is not in the trace."""

    pid: Count
    reason: str


class Manifest(_Model):
    """The whole trace."""

    format: Literal["transit-trace"] = FORMAT
    version: Annotated[int, Field(ge=1)] = VERSION
    transit_version: str
    created: str
    """When the recording was converted, ISO 8601, UTC."""
    command: list[str]
    ended: str
    """How the recording ended: ``completed``, ``job ended``, ``killed``, ..."""
    ranks: list[RankInfo]
    skipped: list[SkippedProcess] = []
    footers: dict[str, str] = {}
    """Of each file the digest of its footer; empty before version 3."""

    def rank(self, rank: int) -> RankInfo:
        """Return one rank's entry."""
        for info in self.ranks:
            if info.rank == rank:
                return info
        raise TraceError(f"The trace has no rank {rank}; it has {self._rank_list()}.")

    def _rank_list(self) -> str:
        return ", ".join(str(info.rank) for info in self.ranks) or "none"


class _Header(BaseModel):
    """What every version of the manifest has: enough to refuse it well."""

    format: str
    version: int


def load(trace: Path) -> Manifest:
    """Read and check the manifest of the trace folder `trace`."""
    path = trace / FILE_NAME
    if not trace.exists():
        raise TraceError(f"There is no trace at {trace}.")
    if not path.is_file():
        raise TraceError(f"{trace} is not a trace: it has no {FILE_NAME}.")
    try:
        text = path.read_bytes()
        header = _Header.model_validate_json(text)
    except OSError as error:
        raise TraceError(f"Cannot read {path}: {error.strerror}.") from error
    except ValidationError as error:
        raise TraceError(_describe(path, error)) from error
    if header.format != FORMAT:
        raise TraceError(f'{path} is of format "{header.format}", not "{FORMAT}".')
    if header.version > VERSION:
        raise TraceError(
            f"{path} has version {header.version}; this transit reads up to version"
            f" {VERSION}. Use the transit that recorded it, or a newer one."
        )
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise TraceError(_describe(path, error)) from error
    _refuse_contradictions(path, manifest)
    return manifest


def dump(manifest: Manifest, trace: Path) -> None:
    """Write the manifest into the folder `trace`."""
    (trace / FILE_NAME).write_text(manifest.model_dump_json(indent=1) + "\n")


def _refuse_contradictions(path: Path, manifest: Manifest) -> None:
    ranks = [info.rank for info in manifest.ranks]
    if not ranks:
        raise TraceError(f"{path} lists no rank: nothing was recorded.")
    if len(set(ranks)) != len(ranks):
        raise TraceError(f"{path} lists a rank twice: {sorted(ranks)}.")


def _describe(path: Path, error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    place = f" at {where}" if where else ""
    return f"{path} is damaged{place}: {first['msg']}."
