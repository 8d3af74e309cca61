"""The plan: where every movable byte of a job lives (see docs/plan-format.md)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from transit.compiler.files import read_model, write_json
from transit.compiler.sequence import Sequence
from transit.errors import PlanError

FORMAT = "transit-plan"
VERSION: Final = 6
PIECE_BYTES = 2 << 20  # the GPU's large page: the smallest thing that can be placed
MAX_BYTES = 1 << 48  # beyond any GPU's address space: a damaged or hostile file

Bytes = Annotated[int, Field(ge=0, lt=MAX_BYTES)]
PositiveBytes = Annotated[int, Field(gt=0, lt=MAX_BYTES)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Field(max_length=4096)]
Position = Annotated[int, Field(ge=0, lt=1 << 31)]
Nanoseconds = Annotated[int, Field(ge=0, lt=1 << 62)]
BytesMoved = Annotated[int, Field(ge=0, lt=1 << 62)]
PlacementKind = Literal["resident", "zero-copy", "windowed"]


def round_up(num_bytes: int) -> int:
    """Round up to whole pieces: what an allocation really occupies."""
    return -(-num_bytes // PIECE_BYTES) * PIECE_BYTES


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Window(_Model):
    """A time on the GPU, in positions of the iteration, which goes around.

    The launches at ``first`` to ``last`` find the range on the GPU. With ``load`` it is
    copied in from when the launch at ``issue`` is submitted on; that is of the
    iteration before if it is after ``first``. Without, what it held is not needed.
    With ``write_back`` it is copied out after the launch at ``written``, the last one
    that writes; else the host's copy is good, or what it holds is not needed again.
    The launch at ``home`` is the first one to reach it in host memory after that.
    """

    issue: Position
    first: Position
    last: Position
    written: Position
    load: bool
    write_back: bool
    home: Position | None = None

    @model_validator(mode="after")
    def _is_written_within(self) -> Self:
        if not _is_between(self.first, self.written, self.last):
            raise ValueError("written must be from first to last")
        return self

    def covers(self, position: int) -> bool:
        """Tell whether the range is on the GPU for the launch at a position."""
        return _is_between(self.first, position, self.last)


def _is_between(first: int, position: int, last: int) -> bool:
    """Tell whether a position is from first to last, around the iteration."""
    if first <= last:
        return first <= position <= last
    return position >= first or position <= last


class Placement(_Model):
    """A range of an allocation and where it lives.

    What is ``windowed`` is in host memory outside of its windows, and may be reached
    there in place.
    """

    offset: Bytes
    bytes: PositiveBytes
    placement: PlacementKind
    why: Text
    windows: tuple[Window, ...] = ()

    @model_validator(mode="after")
    def _has_windows_in_order(self) -> Self:
        windows = self.windows
        if bool(windows) != (self.placement == "windowed"):
            raise ValueError("what is windowed has windows, and nothing else has")
        for before, after in pairwise(windows):
            if not before.first <= before.last < after.first:
                raise ValueError("windows must be sorted by first, without overlap")
        for before, after in zip(windows[-1:] + windows, windows, strict=False):
            if before is not after and _is_between(
                before.first, after.first, before.last
            ):
                raise ValueError("windows must be sorted by first, without overlap")
            if not _is_between(before.last + 1, after.issue, after.first):
                raise ValueError("issue must be after the window before, up to first")
        return self

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
    """The steady iteration that the placements were chosen for.

    ``steps`` is how many of the job's steps it has, all alike but for the memory that
    their launches name. ``sequence`` are the calls that submit it, as `Sequence`
    encodes them: how replay finds the launches that windows are for, and
    ``unsteady_calls`` how many of them name other memory in some of the iterations.
    Without windows there are none.
    """

    launches: Annotated[int, Field(gt=0, lt=1 << 31)]
    steps: Annotated[int, Field(gt=0, lt=1 << 31)] = 1
    signature: Sha256
    found_by: Text
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    sequence: str | None = None
    unsteady_calls: Count | None = None

    @model_validator(mode="after")
    def _has_whole_steps(self) -> Self:
        if self.launches % self.steps:
            raise ValueError(
                f"{self.launches} launches are not {self.steps} steps that are alike"
            )
        return self

    @model_validator(mode="after")
    def _has_a_sequence_of_its_launches(self) -> Self:
        self.calls()
        return self

    def calls(self) -> Sequence | None:
        """Return the decoded sequence, if there is one."""
        if self.sequence is None:
            return None
        return Sequence.decode(self.sequence, launches=self.launches)


class RankPlan(_Model):
    """The placements of one process of the job, or of several that do the same."""

    ranks: Annotated[tuple[Count, ...], Field(min_length=1)]
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

    @model_validator(mode="after")
    def _windows_are_of_the_iteration(self) -> Self:
        launches, calls = self.iteration.launches, self.iteration.calls()
        begins = set(calls.begins.tolist() if calls else ())
        for allocation in self.allocations:
            for w in (w for placed in allocation.placements for w in placed.windows):
                if calls is None:
                    raise ValueError(
                        "there are windows, but not the launches that they are for; "
                        "compile the trace again"
                    )
                window = (
                    f"a window of ordinal {allocation.ordinal} on device "
                    f"{allocation.device}"
                )
                if max(w.issue, w.first, w.last, w.home or 0) >= launches:
                    raise ValueError(
                        f"{window} is past the iteration's {launches} launches"
                    )
                if not begins.issuperset((w.first, w.last, w.written)):
                    raise ValueError(f"{window} begins or ends while a graph runs")
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
    window_bytes: Bytes
    unmovable_bytes: Bytes
    smallest_budget_bytes: Bytes
    estimated_link_bytes_per_iteration: Annotated[int, Field(ge=0, lt=1 << 62)]
    estimated_extra_ns_per_iteration: Annotated[int, Field(ge=0, lt=1 << 62)] | None


class Prediction(_Model):
    """What the machine profile leads to expect; nothing of it was measured.

    Times are of the GPU whose step is longest. No schedule makes a shorter step than
    ``bound_step_ns``, as far as the model goes; ``ideal_step_ns`` is the step with
    everything on the GPU. ``gap`` is how much longer than the bound the step is, as a
    share of the bound. ``policies`` has the steps of other policies under the same
    budget, or null where they cannot keep to it.
    """

    step_ns: Nanoseconds
    ideal_step_ns: Nanoseconds
    bound_step_ns: Nanoseconds | None
    gap: Annotated[float, Field(allow_inf_nan=False)] | None
    policies: dict[Text, Nanoseconds | None]
    h2d_bytes_per_iteration: BytesMoved
    d2h_bytes_per_iteration: BytesMoved


class Plan(_Model):
    """Placements for every rank of a job under a budget of GPU memory."""

    format: Literal["transit-plan"]
    version: Literal[6]
    producer: Text
    policy: Text
    gpu_memory_bytes: PositiveBytes
    trace: TraceReference
    machine: Machine
    summary: Summary
    prediction: Prediction | None = None
    ranks: Annotated[tuple[RankPlan, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        numbers = [number for plan in self.ranks for number in plan.ranks]
        leaders = [plan.ranks[0] for plan in self.ranks]
        is_sorted = leaders == sorted(leaders) and all(
            list(plan.ranks) == sorted(plan.ranks) for plan in self.ranks
        )
        if not is_sorted or len(set(numbers)) < len(numbers):
            raise ValueError("ranks must be sorted, each once")
        summary = self.summary
        for kind, stated in (
            ("resident", summary.resident_bytes),
            ("zero-copy", summary.zero_copy_bytes),
            ("windowed", summary.window_bytes),
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
            summary.resident_bytes + summary.window_bytes + summary.unmovable_bytes
        ):
            raise ValueError("peak_resident_bytes is more than all resident bytes")
        return self

    def total_bytes(self, kind: str) -> int:
        """Sum the bytes of one placement over all ranks."""
        return sum(
            placement.bytes * len(plan.ranks)
            for plan in self.ranks
            for allocation in plan.allocations
            for placement in allocation.placements
            if placement.placement == kind
        )

    @property
    def rank_numbers(self) -> list[int]:
        """All ranks that there are placements for, sorted."""
        return sorted(number for plan in self.ranks for number in plan.ranks)


def load(path: Path) -> Plan:
    """Read a plan; `PlanError` names the file and the place of what is wrong."""
    return read_model(
        Plan, path, format=FORMAT, version=VERSION, error=PlanError, upgrade=_upgrade
    )


def _upgrade(value: dict[str, Any]) -> None:
    """Turn what older versions were into what this one is."""
    if value["version"] == 1:
        for rank in value["ranks"]:
            rank["ranks"] = [rank.pop("rank")]
    if value["version"] in (3, 4):
        # Their launches cannot be followed well, or not at all.
        for rank in value["ranks"]:
            rank["iteration"].pop("sequence", None)
    value["version"] = VERSION


def dump(plan: Plan, path: Path, *, force: bool = False) -> None:
    """Write a plan; equal plans give equal bytes.

    Raises
    ------
    PlanError
        If ``path`` exists and ``force`` is false, or it cannot be written; a
        file that was there is then still there, whole.
    """
    # Without what says nothing: no windows, no prediction.
    value = plan.model_dump(mode="json", exclude_defaults=True)
    write_json(value, path, force=force, error=PlanError)


def json_schema() -> str:
    """Return the JSON Schema of the format, as committed beside this module."""
    return json.dumps(Plan.model_json_schema(), sort_keys=True, indent=1) + "\n"
