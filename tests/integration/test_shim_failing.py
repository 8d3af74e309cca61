"""What libtransit.so does with bad plans, and when the driver says no."""

from __future__ import annotations

from pathlib import Path

import pytest
from shim_job import (
    GOOD_PLAN,
    MIB,
    PIECE,
    RESIDENT,
    WINDOWED,
    Job,
    Window,
    flat_plan,
    script,
    whole,
)

from transit.runtime.status import ShimState

NEVER = 2**32 - 1


def windowed(*windows: Window, num_launches: int = 8) -> bytes:
    """Return a plan of two ranges, the second one with windows."""
    return flat_plan(
        [whole(0, 2 * MIB, RESIDENT), whole(1, 2 * MIB, WINDOWED)],
        addresses={0: 0, 1: PIECE},
        windows=windows,
        launches=[(1, ())] * num_launches,
    )


BAD_PLANS = {
    "empty": (b"", "too short"),
    "truncated header": (GOOD_PLAN[:40], "too short"),
    "truncated": (GOOD_PLAN[:-1], "truncated"),
    "trailing": (GOOD_PLAN + b"x", "contradict"),
    "foreign": (b"PAR1" + GOOD_PLAN[4:], "not a flat plan"),
    "newer": (flat_plan([], version=6), "version 6"),
    "no steps": (flat_plan([], steps=0), "without steps"),
    "other rank": (flat_plan([], rank=3), "rank 3"),
    "unsorted": (
        flat_plan([whole(1, MIB, RESIDENT), whole(0, MIB, RESIDENT)]),
        "not in order",
    ),
    "twice": (
        flat_plan([whole(1, MIB, RESIDENT), whole(1, MIB, RESIDENT)]),
        "not in order",
    ),
    "overlapping": (
        flat_plan([(0, 3 * MIB, [(0, 2 * PIECE, 0), (PIECE, PIECE, 1)])]),
        "overlap",
    ),
    "gap": (
        flat_plan([(0, 5 * MIB, [(0, PIECE, 0), (2 * PIECE, PIECE, 1)])]),
        "gaps",
    ),
    "not covering": (flat_plan([(0, 5 * MIB, [(0, PIECE, 0)])]), "do not cover"),
    "no ranges": (flat_plan([(0, 5 * MIB, [])]), "do not cover"),
    "odd range": (flat_plan([(0, 2 * MIB, [(0, MIB, 0)])]), "impossible size"),
    "beyond": (flat_plan([(0, 2 * MIB, [(0, 2 * PIECE, 0)])]), "impossible size"),
    "placement": (flat_plan([whole(0, MIB, 7)]), "unknown placement"),
    "zero bytes": (flat_plan([(0, 0, [])]), "impossible size"),
    "no windows": (windowed(), "has no windows"),
    "windows of what is resident": (
        windowed((0, 1, 1, 2, 2, 0, NEVER), (1, 1, 1, 2, 2, 0, NEVER)),
        "has no windows, or the other way round",
    ),
    "windows of no range": (
        windowed((1, 1, 1, 2, 2, 0, NEVER), (9, 1, 1, 2, 2, 0, NEVER)),
        "has no range",
    ),
    "windows without launches": (
        windowed((1, 0, 0, 0, 0, 0, NEVER), num_launches=0),
        "past the iteration's end",
    ),
    "a window past the end": (
        windowed((1, 1, 1, 8, 1, 0, NEVER)),
        "past the iteration's end",
    ),
    "home past the end": (windowed((1, 1, 1, 2, 2, 0, 8)), "contradicts itself"),
    "written outside": (windowed((1, 1, 1, 2, 3, 0, NEVER)), "contradicts itself"),
    "windows that overlap": (
        windowed((1, 1, 1, 3, 3, 0, NEVER), (1, 4, 3, 5, 5, 0, NEVER)),
        "or the one before it",
    ),
    "windows that overlap around the end": (
        windowed((1, 1, 1, 3, 3, 0, NEVER), (1, 4, 5, 1, 1, 0, NEVER)),
        "or the one before it",
    ),
    "issued within the window before": (
        windowed((1, 7, 1, 3, 3, 0, NEVER), (1, 3, 5, 6, 6, 0, NEVER)),
        "or the one before it",
    ),
    "hostile bytes": (
        flat_plan([(0, 2**64 - 1, [(0, 2**64 - PIECE, 0)])]),
        "impossible size",
    ),
    "hostile counts": (
        GOOD_PLAN[:20] + b"\xff" * 8 + GOOD_PLAN[28:],
        "contradict",
    ),
    "hostile ranges": (
        GOOD_PLAN[:96] + b"\xff" * 8 + GOOD_PLAN[104:],
        "not there",
    ),
    "hostile address": (
        GOOD_PLAN[:88] + b"\xfe" * 8 + GOOD_PLAN[96:],
        "impossible address",
    ),
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_leaves_the_job_running(job: Job, name: str) -> None:
    plan, problem = BAD_PLANS[name]
    body = "start(); roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20); print('done')"
    result, [status] = job(*script(body), plan=plan)
    assert result.stdout == "done\n"
    assert status.state is ShimState.PASS_THROUGH
    assert problem in status.message
    assert f"transit: {status.message}" in result.stderr
    assert status.zero_copy_bytes == 0
    assert status.allocations_seen == 1


def test_a_missing_plan_or_backend_leaves_the_job_running(
    job: Job, tmp_path: Path
) -> None:
    body = script("start(); call(cu.cuMemAlloc, 2 << 20)")
    _, [status] = job(*body, plan=GOOD_PLAN, backend="zswap")
    assert status.state is ShimState.PASS_THROUGH
    assert "TRANSIT_BACKEND" in status.message
    _, [status] = job(*body, plan=GOOD_PLAN, env={"RANK": "5"})
    assert status.rank == 5
    assert "rank=5.flat: No such file" in status.message


def test_strict_ends_a_job_whose_plan_is_bad(job: Job) -> None:
    result, _ = job(
        *script("start(); print('never')"),
        plan=GOOD_PLAN[:-1],
        env={"TRANSIT_STRICT": "1"},
        exit_code=1,
    )
    assert result.stdout == ""
    assert "truncated" in result.stderr


@pytest.mark.parametrize(
    ("backend", "failing"),
    [
        ("vmm", "cuMemMap"),
        ("vmm", "cuMemSetAccess"),
        ("vmm", "cuMemAddressReserve"),
        ("uvm", "cuMemAllocManaged"),
        ("uvm", "cuMemAdvise_v2"),
        ("uvm", "cuMemPrefetchAsync_v2"),
    ],
)
def test_a_placement_that_fails_is_left_to_the_driver(
    job: Job, backend: str, failing: str
) -> None:
    result, [status] = job(
        *script("""
start()
for _ in range(2):
    roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)
"""),
        plan=GOOD_PLAN,
        backend=backend,
        env={"TRANSIT_SIM_FAIL": f"{failing}:1=2"},
    )
    assert status.state is ShimState.REPLAYING
    assert status.placement_failures == 1
    assert status.allocations_matched == 2
    assert status.resident_bytes == status.zero_copy_bytes == 2 * MIB
    assert failing.removesuffix("_v2") in status.message
    assert "CUDA_ERROR_OUT_OF_MEMORY" in status.message
    assert result.stderr.count("transit:") == 1


def test_no_host_memory_is_said_in_words(job: Job) -> None:
    result, [status] = job(
        *script("start(); call(cu.cuMemAlloc, 2 << 20)"),
        plan=GOOD_PLAN,
        env={"TRANSIT_SIM_FAIL": "cuMemCreate:*=2", "TRANSIT_STRICT": "1"},
        exit_code=1,
    )
    assert "no pinned host memory" in status.message
    assert status.message in result.stderr


def test_an_unwritable_run_folder_is_said_and_survived(job: Job) -> None:
    result, statuses = job(
        *script("start(); roundtrip(call(cu.cuMemAlloc, 2 << 20), 2 << 20)"),
        env={"TRANSIT_RUN_DIR": "/nonexistent"},
    )
    assert statuses == []
    assert "cannot write /nonexistent/status-" in result.stderr
