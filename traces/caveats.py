"""What a trace does not know for sure, in words."""

from __future__ import annotations

from transit.traces.manifest import RankInfo
from transit.units import format_bytes

# Launches of other threads may be under way when the counters are read.
LAUNCH_TOLERANCE = 16
SHARE_TOLERANCE = 0.001
UNTIMED_TOLERANCE = 0.01
CLOCK_TOLERANCE_NS = 10_000_000
_WHAT_INSPECTIONS_TELL = {
    "direction": "which way memory is touched",
    "audit": "what is touched behind pointers",
}


def caveats(info: RankInfo) -> list[str]:
    """Return a sentence for each thing to know before trusting a rank's recording."""
    return [
        sentence
        for sentence in (
            _spool(info),
            _dropped_by_cupti(info),
            _torn(info),
            *_failed_calls(info),
            _kernels(info),
            _untimed(info),
            _hooks(info),
            _inspections(info),
            _allocations(info),
            _clock_steps(info),
            _clocks(info),
            *info.source_caveats,
        )
        if sentence
    ]


def _spool(info: RankInfo) -> str:
    dropped = info.checks.dropped_by_table
    if not dropped:
        return ""
    records = ", ".join(f"{count:,} of {table}" for table, count in dropped.items())
    return (
        f"the disk had no room for all that was recorded; records not kept: {records}. "
        "What came after is missing: make room, or record fewer iterations"
    )


def _dropped_by_cupti(info: RankInfo) -> str:
    dropped = info.losses.dropped - sum(info.checks.dropped_by_table.values())
    if dropped <= 0:
        return ""
    return f"CUPTI dropped {dropped:,} records of what the GPU did"


def _torn(info: RankInfo) -> str:
    if not info.losses.torn:
        return ""
    return (
        f"{info.losses.torn:,} records are announced and not there: the recording was "
        "truncated"
    )


def _failed_calls(info: RankInfo) -> list[str]:
    return [
        f"{call.what} failed {'once' if call.count == 1 else f'{call.count:,} times'}:"
        f" {call.reason}"
        for call in info.checks.failed_calls
    ]


def _kernels(info: RankInfo) -> str:
    missing = info.checks.missing_kernel_activities
    if missing and not info.kernel_activities and not info.checks.failed_calls:
        return (
            "CUPTI reported no kernel at all: its version may be too old for this GPU; "
            "transit doctor checks that"
        )
    launched = info.kernel_activities + missing
    if missing <= LAUNCH_TOLERANCE or missing < SHARE_TOLERANCE * launched:
        return ""
    return (
        f"{missing:,} of {launched:,} kernels have no time: the job ended before CUPTI "
        "gave their records back, or CUPTI lost them"
    )


def _untimed(info: RankInfo) -> str:
    untimed = info.losses.untimed_activities
    if untimed <= UNTIMED_TOLERANCE * info.kernel_activities:
        return ""
    return (
        f"CUPTI gave no times for {untimed:,} pieces of GPU work: it had no device "
        "memory to note them in, as when the GPU is full. They count in no timing"
    )


def _hooks(info: RankInfo) -> str:
    hooked, recorded = info.checks.hooked_launches, info.checks.recorded_launches
    captured = info.checks.captured_launches
    if hooked is None or recorded is None or captured is None:
        return ""
    seen = recorded + captured
    if abs(hooked - seen) <= max(LAUNCH_TOLERANCE, SHARE_TOLERANCE * seen):
        return ""
    return (
        f"the shim saw {hooked:,} launches and CUPTI {seen:,} in the same time: "
        "the recording or a later replay misses some"
    )


def _inspections(info: RankInfo) -> str:
    missed = info.checks.missed_inspections
    if not missed:
        return ""
    unknown = " and ".join(_WHAT_INSPECTIONS_TELL[purpose] for purpose in missed)
    if not info.counts["iterations"]:
        return (
            f"{unknown} could not be looked into: that takes iterations, and none was "
            "marked. Steps of PyTorch's optimizers are, of themselves; how another job "
            "can mark its own is in docs/recording.md"
        )
    return (
        f"{unknown} could not be looked into: no whole iteration came after the "
        f"{info.counts['iterations']:,} recorded. Record fewer (--iterations), or run "
        "the job longer"
    )


def _allocations(info: RankInfo) -> str:
    if not info.checks.unseen_allocations:
        return ""
    return (
        f"CUPTI saw {info.checks.unseen_allocations:,} allocations on the GPU "
        f"({format_bytes(info.checks.unseen_allocation_bytes)}) that the shim did not: "
        "no access to them is in the trace"
    )


def _clock_steps(info: RankInfo) -> str:
    steps = info.checks.clock_steps_ns
    if not steps and not info.losses.clock_steps:
        return ""
    amounts = ", ".join(f"by {step / 1e9:+.3f} s" for step in steps)
    return (
        f"the clock was set while recording ({amounts or 'backwards'}): iterations are "
        "right, but launches around it may be given the wrong blocks and durations"
    )


def _clocks(info: RankInfo) -> str:
    apart_ns = info.clocks.cupti_ns - info.clocks.realtime_ns
    if not info.clocks.cupti_ns or abs(apart_ns) <= CLOCK_TOLERANCE_NS:
        return ""
    return (
        f"CUPTI's clock is {apart_ns / 1e9:+.3f} s from the host's: times on the GPU "
        "and of the host do not compare, nor do blocks"
    )
