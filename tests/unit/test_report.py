"""The page of ``transit compile --report``."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command_line import transit
from compiler_traces import Chunk, Launch, jobs, make_trace
from hypothesis import given, settings
from markupsafe import escape
from trace_factory import LayeredLoop, write_tables

from transit.compiler.compiled import Compiled
from transit.compiler.compiler import Options, compile_job
from transit.compiler.course import Course
from transit.compiler.lifetimes import job_peak_bytes
from transit.compiler.machine import MachineProfile, load
from transit.compiler.report import render
from transit.compiler.report.curves import NUM_BINS, bytes_in_bins
from transit.compiler.report.data import Report, gather
from transit.compiler.sweep import sweep
from transit.errors import BudgetError
from transit.traces.reader import Trace
from transit.traces.schema import TABLES

HOSTILE = "<script>alert('x')</script>&\"weight\""
POLICIES = ("auto", "reuse", "advise")


def make_loop(path: Path, label: str = HOSTILE) -> Trace:
    """Make a trace whose blocks have a label, of the GPU that h200 is of."""
    tables = LayeredLoop(layers=6).tables()
    blocks = tables["blocks"].to_pylist()
    for block in blocks:
        block["label"] = label
    tables["blocks"] = pa.Table.from_pylist(blocks, schema=TABLES["blocks"])
    return Trace.open(write_tables(path / "trace", {0: tables}))


def machine_of(trace: Trace) -> MachineProfile:
    gpu_name = trace.manifest.ranks[0].devices[0].name
    return load("h200").model_copy(update={"gpu_name": gpu_name})


def compiled_for(trace: Trace, policy: str, share: float) -> tuple[Options, Compiled]:
    options = Options(
        gpu_memory_bytes=int(job_peak_bytes(trace) * share),
        policy=policy,
        machine=machine_of(trace),
        backend="vmm",
        compare=True,
    )
    return options, compile_job(trace, options)


def report_of(trace: Trace, policy: str, share: float = 0.7) -> Report:
    return gather(trace, *compiled_for(trace, policy, share), sweep=[])


@pytest.mark.parametrize("policy", POLICIES)
def test_the_charts_agree_with_the_plan(tmp_path: Path, policy: str) -> None:
    report = report_of(make_loop(tmp_path), policy)
    plan, (gpu,) = report.plan, report.gpus
    assert plan.prediction
    total = gpu.memory.total_bytes
    assert total.max() <= plan.summary.peak_resident_bytes <= plan.gpu_memory_bytes
    assert min(gpu.memory.fixed_bytes) >= plan.summary.unmovable_bytes > 0
    assert (gpu.memory.windowed_bytes >= 0).all()
    moved = [sum(crossing.moved_bytes) for crossing in gpu.link]
    stated = plan.prediction
    assert moved[0] == pytest.approx(stated.h2d_bytes_per_iteration, abs=1)
    assert moved[1] == pytest.approx(stated.d2h_bytes_per_iteration, abs=1)
    assert sum(moved) > 0
    assert round(gpu.step_ns) == stated.step_ns
    in_table = sum(row["moved_bytes"] for row in gpu.ranges)
    assert in_table == pytest.approx(sum(moved), abs=len(gpu.ranges))


@given(jobs())
@settings(max_examples=20, deadline=None)
def test_no_chart_goes_beyond_its_limit(job: tuple[list[Chunk], list[Launch]]) -> None:
    trace = make_trace(*job)
    for policy in POLICIES:
        try:
            report = report_of(trace, policy)
        except BudgetError:
            continue
        for gpu in report.gpus:
            assert gpu.memory.total_bytes.max() <= report.plan.gpu_memory_bytes
            assert (gpu.memory.resident_bytes >= 0).all()
            for crossing in gpu.link:
                most = crossing.bytes_per_s * gpu.step_ns * 1e-9 / NUM_BINS
                assert max(crossing.moved_bytes) <= most * (1 + 1e-6) + 1
                assert min(crossing.moved_bytes) >= -1e-3
        assert render(report)


def test_what_ends_at_once_crossed_before_and_around_the_end_of_the_step() -> None:
    zeros, pieces = np.zeros(3), np.zeros(3, np.int64)
    course = Course(
        step_ns=100.0,
        start_ns=np.array([0.0, 10.0, 60.0]),
        wait_ns=zeros,
        fixed_pieces=pieces,
        resident_pieces=pieces,
        windowed_pieces=pieces,
        read_bytes=zeros,
        written_bytes=zeros,
        loaded_bytes=np.array([30.0, 20.0, 0.0]),
        stored_bytes=zeros,
    )
    moved = bytes_in_bins(
        *(course, course.read_bytes, course.loaded_bytes),
        window_bytes_per_s=1e9,
        bytes_per_s=2e9,
    )
    assert moved.sum() == pytest.approx(50)
    # 20 of the 30 bytes due at 10 ns had to cross before the step began.
    assert moved[NUM_BINS * 6 // 10 :].sum() == pytest.approx(20)
    assert moved.max() <= 100 / NUM_BINS + 1e-9


def test_what_users_named_is_escaped(tmp_path: Path) -> None:
    page = render(report_of(make_loop(tmp_path), "auto"))
    assert HOSTILE not in page
    assert str(escape(HOSTILE)) in page
    assert page.count("<script>") == 1  # the page's own


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    trace = make_loop(tmp_path)
    page = render(report_of(trace, "auto"))
    assert not re.search(r"https?:|//\w|url\(|@import|<link|<img|src=", page)
    assert page == render(report_of(trace, "auto"))
    assert page.startswith("<!doctype html>")
    assert "None of it was measured" in page
    assert page.count("<svg") == page.count("</svg>")
    assert page.count('role="img"') == page.count("<title>") - 1


def test_other_budgets_and_policies_are_shown(tmp_path: Path) -> None:
    trace = make_loop(tmp_path)
    options, compiled = compiled_for(trace, "auto", 0.7)
    points = list(sweep(trace, options.machine, "vmm", num_points=3))
    page = render(gather(trace, options, compiled, points))
    assert len(points) == 3
    for ns in (p.predicted_step_ns for p in points if p.predicted_step_ns):
        assert f"{ns / 1e6:.2f} ms" in page
    prediction = compiled.plan.prediction
    assert prediction
    assert set(prediction.policies) > {"reuse", "advise"}
    for name, step_ns in prediction.policies.items():
        words = "does not fit" if step_ns is None else f"{step_ns / 1e6:,.2f} ms"
        assert f"{name}: {words}" in page


def test_ranks_that_do_the_same_share_a_section_the_slowest_first(
    tmp_path: Path,
) -> None:
    fast = LayeredLoop(layers=6).tables()
    slow = LayeredLoop(layers=6, compute_ns=3_000_000).tables()
    path = write_tables(tmp_path / "trace", {0: fast, 1: slow, 2: fast})
    manifest = json.loads((path / "manifest.json").read_text())
    for info, name in zip(manifest["ranks"], ("fast", "slow", "fast"), strict=True):
        info["fingerprints"] = {"launches": name, "memory": name}
    (path / "manifest.json").write_text(json.dumps(manifest))
    report = report_of(Trace.open(path), "reuse")
    names = [gpu.name for gpu in report.gpus]
    assert names == ["Rank 1, GPU 0", "Ranks 0, 2: as GPU 0 of rank 0"]
    assert report.gpus[0].step_ns > report.gpus[1].step_ns
    assert render(report).count("<table>") == 2


def test_without_the_machines_rates_no_time_is_shown(tmp_path: Path) -> None:
    trace = make_loop(tmp_path)
    options = Options(
        job_peak_bytes(trace) * 7 // 10, "reuse", load("h200"), "vmm", compare=True
    )
    page = render(gather(trace, options, compile_job(trace, options), []))
    assert "is of another GPU than the recording" in page
    assert " ms</strong>" not in page
    assert '<svg viewBox="0 0 960' not in page


def test_the_command_writes_it_beside_the_plan(tmp_path: Path) -> None:
    trace = make_loop(tmp_path)
    profile = json.loads((files("transit.compiler") / "machines/h200.json").read_text())
    profile["gpu_name"] = trace.manifest.ranks[0].devices[0].name
    (trace.path / "machine.json").write_text(json.dumps(profile))
    report, plan = tmp_path / "report.html", tmp_path / "plan.json"
    command = ("compile", trace.path, "--gpu-memory", "70%", "--policy", "auto")
    done = transit(*command, "--report", report, "-o", plan, "--json")
    assert done.returncode == 0, done.stderr
    assert f"wrote {report}" in done.stderr
    summary, page = json.loads(done.stdout), report.read_text()
    assert f"{summary['predicted_step_ms']:,.2f} ms" in page
    assert plan.is_file()
    again = transit(*command, "--report", report)
    assert again.returncode == 1
    assert "pass --force" in again.stderr
    assert report.read_text() == page
    same = transit(*command, "--report", plan, "-o", plan, "--force")
    assert same.returncode == 2
    assert "same file" in same.stderr
