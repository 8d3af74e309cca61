"""The plan: where every movable byte of a job lives (see docs/plan-format.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from transit.compiler.files import read_model, write_json
from transit.errors import PlanError

FORMAT = "transit-plan"
VERSION = 1
PIECE_BYTES = 2 << 20  # the GPU's large page: the smallest thing that can be placed
MAX_BYTES = 1 << 48  # beyond any GPU's address space: a damaged or hostile file

Bytes = Annotated[int, Field(ge=0, lt=MAX_BYTES)]
PositiveBytes = Annotated[int, Field(gt=0, lt=MAX_BYTES)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(max_length=4096)]
PlacementKind = Literal["resident", "zero-copy"]


def round_up(num_bytes: int) -> int:
    """Round up to whole pieces: what an allocation really occupies."""
    return -(-num_bytes // PIECE_BYTES) * PIECE_BYTES


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Placement(_Model):
    """A range of an allocation and where it lives."""

    offset: Bytes
    bytes: PositiveBytes
    placement: PlacementKind
    why: Text

    @model_validator(mode="after")
    def _is_whole_pieces(self) -> Self:
        if self.offset % PIECE_BYTES or self.bytes % PIECE_BYTES:
            raise ValueError("offset and bytes must be multiples of 2 MiB")
        return self


class Allocation(_Model):
    """One device allocation of the job and the placements that cover it.

    ``address_offset`` is where it lay when it was recorded, from the lowest address
    on its device, or null if anywhere will do. Replay keeps it: a framework's
    allocator breaks ties between free blocks by address, so at other distances other
    tensors would come to lie in a range planned for these.
    """

    device: Count
    ordinal: Count
    bytes: PositiveBytes
    address_offset: Bytes | None
    placements: Annotated[tuple[Placement, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _address_is_whole_pieces(self) -> Self:
        if self.address_offset is not None and self.address_offset % PIECE_BYTES:
            raise ValueError("address_offset must be a multiple of 2 MiB")
        return self

    @model_validator(mode="after")
    def _is_covered_once(self) -> Self:
        end = 0
        for index, placement in enumerate(self.placements):
            if placement.offset != end:
                fault = "overlaps" if placement.offset < end else "leaves a gap after"
                raise ValueError(f"placement {index} {fault} the one before it")
            end += placement.bytes
        if end != round_up(self.bytes):
            raise ValueError(
                f"placements cover {end} bytes, the allocation occupies "
                f"{round_up(self.bytes)}"
            )
        return self


class Iteration(_Model):
    """The steady iteration that the placements were chosen for."""

    launches: Annotated[int, Field(gt=0, lt=1 << 31)]
    signature: Sha256
    found_by: Text
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Rank(_Model):
    """The placements of one process of the job."""

    rank: Count
    iteration: Iteration
    allocations: tuple[Allocation, ...]

    @model_validator(mode="after")
    def _is_sorted(self) -> Self:
        keys = [(a.device, a.ordinal) for a in self.allocations]
        if keys != sorted(set(keys)):
            raise ValueError(
                "allocations must be sorted by device and ordinal, each once"
            )
        return self


class TraceReference(_Model):
    """Which recording the plan was made from, and on what GPU."""

    fingerprint: Sha256
    command: tuple[Annotated[str, Field(max_length=1 << 20)], ...]
    gpu_name: Text
    gpu_total_bytes: PositiveBytes
    compute_capability: Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$")]


class Machine(_Model):
    """Which machine profile the costs were reckoned with."""

    name: Text
    fingerprint: Sha256


class Summary(_Model):
    """Totals over all ranks; peaks are of the GPU that needs most.

    What is not exact but reckoned from a cost model is named ``estimated_``.
    """

    job_peak_bytes: Bytes
    peak_resident_bytes: Bytes
    resident_bytes: Bytes
    zero_copy_bytes: Bytes
    window_bytes: Annotated[int, Field(ge=0, le=0)]  # windows come in a later version
    unmovable_bytes: Bytes
    smallest_budget_bytes: Bytes
    estimated_link_bytes_per_iteration: Annotated[int, Field(ge=0, lt=1 << 62)]
    estimated_extra_ns_per_iteration: Annotated[int, Field(ge=0, lt=1 << 62)] | None


class Plan(_Model):
    """Placements for every rank of a job under a budget of GPU memory."""

    format: Literal["transit-plan"]
    version: Literal[1]
    producer: Text
    policy: Text
    gpu_memory_bytes: PositiveBytes
    trace: TraceReference
    machine: Machine
    summary: Summary
    ranks: Annotated[tuple[Rank, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        numbers = [rank.rank for rank in self.ranks]
        if numbers != sorted(set(numbers)):
            raise ValueError("ranks must be sorted, each once")
        summary = self.summary
        for kind, stated in (
            ("resident", summary.resident_bytes),
            ("zero-copy", summary.zero_copy_bytes),
        ):
            if (total := self.total_bytes(kind)) != stated:
                raise ValueError(
                    f"the summary says {stated} {kind} bytes, the placements {total}"
                )
        if summary.peak_resident_bytes > self.gpu_memory_bytes:
            raise ValueError("peak_resident_bytes is more than gpu_memory_bytes")
        if summary.peak_resident_bytes > summary.job_peak_bytes:
            raise ValueError("peak_resident_bytes is more than job_peak_bytes")
        if summary.peak_resident_bytes > (
            summary.resident_bytes + summary.unmovable_bytes
        ):
            raise ValueError("peak_resident_bytes is more than all resident bytes")
        return self

    def total_bytes(self, kind: str) -> int:
        """Sum the bytes of one placement over all ranks."""
        return sum(
            placement.bytes
            for rank in self.ranks
            for allocation in rank.allocations
            for placement in allocation.placements
            if placement.placement == kind
        )


def load(path: Path) -> Plan:
    """Read a plan; `PlanError` names the file and the place of what is wrong."""
    return read_model(Plan, path, format=FORMAT, version=VERSION, error=PlanError)


def dump(plan: Plan, path: Path, *, force: bool = False) -> None:
    """Write a plan; equal plans give equal bytes.

    Raises
    ------
    PlanError
        If ``path`` exists and ``force`` is false, or it cannot be written; a
        file that was there is then still there, whole.
    """
    write_json(plan.model_dump(mode="json"), path, force=force, error=PlanError)


def json_schema() -> str:
    """Return the JSON Schema of the format, as committed beside this module."""
    return json.dumps(Plan.model_json_schema(), sort_keys=True, indent=1) + "\n"
