"""The benchmarks: which steps are compared, and what a trace is said to know."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import parts
import pyarrow as pa
import pytest
import recorder
from comparison import compare
from parts import Benchmark, SkippedError
from runner import PartError, Runner, Steps
from schedule import Schedule
from table import print_tables
from trace_coverage import describe
from trace_factory import LayeredLoop, write_tables

SCHEDULE = Schedule(warm_up=2, skip=6, iterations=5, writing=3, after=4, profiled=3)


def job_output(step_ms: list[float], *profiles: str) -> str:
    line = '{{"step": {}, "loss_hex": "0x1p+0", "ms": {}, "reserved_bytes": 8}}'
    lines = [line.format(step, ms) for step, ms in enumerate(step_ms)]
    return "\n".join(["warning: nothing", *lines, *profiles])


def run_of(step_ms: dict[range, float], steps: int, *profiles: str) -> Steps:
    """Return a run of steps of 10 ms, but for those named."""
    times = [10.0] * steps
    for window, ms in step_ms.items():
        times[window.start : window.stop] = [ms] * len(window)
    return Steps.parse(job_output(times, *profiles))


def recorded_run(*, slower_by: float) -> Steps:
    recorded = range(SCHEDULE.skip, SCHEDULE.inspected)
    inspected = range(SCHEDULE.inspected, SCHEDULE.inspected + 1)
    return run_of({recorded: 10 * (1 + slower_by), inspected: 99}, SCHEDULE.steps)


@pytest.mark.parametrize("schedule", [SCHEDULE, *recorder.SCHEDULES.values()])
def test_windows_are_apart_and_hold_no_step_that_changes_what_is_done(
    schedule: Schedule,
) -> None:
    windows = [*schedule.windows.values(), *schedule.profiled_windows.values()]
    assert all(len(window) >= 2 for window in windows)
    for one, next_one in itertools.pairwise(windows):
        assert one.stop <= next_one.start
    changes = {schedule.skip - 1, schedule.inspected - 1, schedule.inspected}
    assert not changes.intersection(*([*itertools.chain(*windows)],))
    assert schedule.steps <= windows[-2].start
    assert windows[-1].stop < schedule.steps_with_profiler


def test_overheads_are_medians_over_rounds_against_the_plain_run() -> None:
    profiled = SCHEDULE.profiled_windows["cuda"]
    rounds = [
        {
            "plain": run_of(
                {profiled: 20},
                SCHEDULE.steps_with_profiler,
                '{"profiled": "cuda", "events": 7}',
            ),
            "recorded": recorded_run(slower_by=slower_by),
        }
        for slower_by in (0.05, 0.9, 0.03)
    ]
    result = compare(SCHEDULE, rounds)
    overhead = result["overhead"]
    assert overhead["recording"] == pytest.approx(0.05)
    assert overhead["recording, within the run"] == pytest.approx(0.05)
    assert overhead["after"] == overhead["before"] == pytest.approx(0)
    assert overhead["torch.profiler, cuda"] == pytest.approx(1)
    assert "torch.profiler, cpu and cuda" not in overhead  # it was not there
    assert [one["recording"] for one in result["by_round"]] == pytest.approx(
        [0.05, 0.9, 0.03]
    )
    assert result["step_ms"]["inspected"] == 99
    assert result["step_ms"]["plain"] == 10
    assert result["losses_identical"]
    assert result["profiler_events"] == {"cuda": 7}


def test_another_loss_is_seen() -> None:
    recorded = recorded_run(slower_by=0)
    recorded.lines[1]["loss_hex"] = "0x1p+1"
    plain = run_of({}, SCHEDULE.steps_with_profiler)
    result = compare(SCHEDULE, [{"plain": plain, "recorded": recorded}])
    assert not result["losses_identical"]


def test_a_job_without_steps_is_an_error() -> None:
    with pytest.raises(PartError, match="no steps"):
        Steps.parse("Traceback\n")


def trace_tables() -> dict[str, pa.Table]:
    """Two plain iterations, and one that was inspected and is known less of."""
    loop = LayeredLoop(layers=2, iterations=3)
    tables = loop.tables()
    inspected = 2 * loop.launches_per_iteration
    accesses = tables["accesses"].to_pylist()
    for row in accesses:
        is_update = row["launch_id"] % loop.launches_per_iteration >= 4
        row["direction"] = "both" if is_update else "unknown"
        row["direction_source"] = "checksum" if is_update else None
        row["extent"] = "block" if row["launch_id"] < inspected else "gap"
    iterations = tables["iterations"].to_pylist()
    for row, purpose in zip(iterations, ("timing", None, "direction"), strict=True):
        row["purpose"] = purpose
    for name, rows in (("accesses", accesses), ("iterations", iterations)):
        tables[name] = pa.Table.from_pylist(rows, schema=tables[name].schema)
    return tables


def test_coverage_is_by_bytes_and_of_plain_iterations(tmp_path: Path) -> None:
    tables = trace_tables()
    found = describe(write_tables(tmp_path / "trace", {0: tables}))
    assert found["iterations"] == 2
    assert found["launches_per_iteration"] == 6
    assert found["bytes_by_extent"] == {"block": 1}
    # Per iteration: forward 2 and 3, backward 3 and 3, update 4 and 4 tensors.
    assert found["bytes_by_direction"] == pytest.approx(
        {"both": 8 / 19, "unknown": 11 / 19}
    )
    assert found["bytes_by_direction_source"]["checksum"] == pytest.approx(8 / 19)
    assert found["kernels_without_access"] == {}
    assert found["audited"] is None


def test_kernels_without_an_access_are_named(tmp_path: Path) -> None:
    tables = trace_tables()
    keep = pa.compute.not_equal(tables["accesses"]["launch_id"], 0)
    tables["accesses"] = tables["accesses"].filter(keep)
    found = describe(write_tables(tmp_path / "trace", {0: tables}))
    assert found["kernels_without_access"] == {"forward": 1}


def test_what_the_audit_leaves_unexplained_is_named(tmp_path: Path) -> None:
    tables = trace_tables()
    rows = [
        {"allocation_id": 1, "offset": 0, "bytes": 3 << 16, "access": "read",
         "is_explained": True, "launch_id": 13},
        {"allocation_id": 2, "offset": 4096, "bytes": 1 << 16, "access": "write",
         "is_explained": False, "launch_id": None},
    ]  # fmt: skip
    tables["audit"] = pa.Table.from_pylist(rows, schema=tables["audit"].schema)
    audited = describe(write_tables(tmp_path / "trace", {0: tables}))["audited"]
    assert audited["recall"] == 0.75
    (region,) = audited["largest_unexplained"]
    assert (region["allocation_id"], region["offset"]) == (2, 4096)
    assert region["caller"] == "libcudart.so.13"
    assert region["launch"] is None
    json.dumps(audited)


class TwoParts(Benchmark):
    def fine(self) -> dict[str, Any]:
        return {"figure": 1}

    def elsewhere(self) -> dict[str, Any]:
        raise SkippedError("needs another machine")

    def broken(self) -> dict[str, Any]:
        raise PartError("exit code 1")


def measure(output: Path, *chosen: str) -> tuple[int, dict[str, Any]]:
    work = output.parent / "work"
    args = argparse.Namespace(output=output, work=work, minutes=1, chosen=chosen)
    names = {"fine": TwoParts.fine, "broken": TwoParts.broken}
    code = parts.measure(
        "recorder", TwoParts, {**names, "elsewhere": TwoParts.elsewhere}, args
    )
    return code, json.loads(output.read_text())["parts"]


def test_a_failed_part_is_kept_as_such_and_the_others_go_on(tmp_path: Path) -> None:
    code, results = measure(tmp_path / "result.json", "broken", "fine")
    assert code == 1
    assert results["broken"]["error"] == "exit code 1"
    assert results["fine"]["figure"] == 1


def test_a_skipped_part_leaves_what_was_measured_elsewhere(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    code, results = measure(output, "elsewhere")
    assert (code, results["elsewhere"]["skipped"]) == (0, "needs another machine")
    results["elsewhere"] = {"figure": 2}
    output.write_text(json.dumps({"parts": results}))
    assert measure(output, "elsewhere", "fine")[1]["elsewhere"] == {"figure": 2}


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        ("coverage", [name for name in recorder.PARTS if "coverage/" in name]),
        ("overhead/medium,fsdp", ["overhead/medium", "fsdp"]),
    ],
)
def test_parts_are_chosen_one_by_one_or_by_group(
    only: str, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["recorder.py", "--output", "x", "--only", only])
    assert recorder.parse_arguments().chosen == chosen


def test_an_unknown_part_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["recorder.py", "--output", "x", "--only", "all"])
    with pytest.raises(SystemExit):
        recorder.parse_arguments()


def test_a_missing_program_is_no_traceback() -> None:
    runner = Runner(deadline=time.monotonic() + 60)
    with pytest.raises(PartError, match="no-such-program"):
        runner.run(["no-such-program"], timeout=5)


def test_results_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = describe(write_tables(tmp_path / "trace", {0: trace_tables()}))
    plain = run_of({}, SCHEDULE.steps_with_profiler)
    runs = {"plain": plain, "recorded": recorded_run(slower_by=0.05)}
    print_tables(
        "recorder",
        {
            "overhead/medium": {**compare(SCHEDULE, [runs]), "trace": trace},
            "coverage/eager": {**trace, "audited": {"error": "no room"}},
            "fsdp": {"skipped": "needs 2 GPUs"},
        },
    )
    shown = capsys.readouterr().out
    for text in ("+5.00%", "42.11%", "no room", "needs 2 GPUs", "identical"):
        assert text in shown
