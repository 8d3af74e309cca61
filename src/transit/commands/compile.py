"""``transit compile``."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transit.commands.explained import print_explained
from transit.commands.options import Force, Json
from transit.errors import BudgetError
from transit.units import MemorySize, format_bytes, format_ns, parse_size

if TYPE_CHECKING:
    from transit.compiler.compiler import Options
    from transit.compiler.machine import MachineProfile
    from transit.compiler.plan import Plan
    from transit.traces.reader import Trace

log = logging.getLogger(__name__)


class Policy(StrEnum):
    """How placements are chosen."""

    REUSE = "reuse"
    ADVISE = "advise"
    AUTO = "auto"


class Backend(StrEnum):
    """How placements will be enacted."""

    VMM = "vmm"
    UVM = "uvm"


def compile_(
    trace: Annotated[
        Path, typer.Argument(help="The trace folder to read.", show_default=False)
    ],
    gpu_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            envvar="TRANSIT_GPU_MEMORY",
            help="GPU memory to use: 40GiB, or 80% of what the job needs. May be left "
            "out if the machine profile says how much there is.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Policy,
        typer.Option(
            envvar="TRANSIT_POLICY",
            help="reuse: spill what is streamed once; advise: in allocation order; "
            "auto: memory comes and goes within the iteration.",
        ),
    ] = Policy.REUSE,
    backend: Annotated[
        Backend,
        typer.Option(
            envvar="TRANSIT_BACKEND",
            help="For auto, whose rates to reckon with: those of mapped memory (vmm) "
            "or of managed memory (uvm).",
        ),
    ] = Backend.VMM,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            envvar="TRANSIT_MACHINE",
            help="Machine profile: h200, or a file. Default: machine.json in the trace "
            "folder, else that of the recorded GPU, else h200.",
            show_default=False,
        ),
    ] = None,
    link_gbps: Annotated[
        float | None,
        typer.Option(
            "--link-gbps",
            metavar="GB/S",
            envvar="TRANSIT_LINK_GBPS",
            help="What if the link had this rate to the GPU, in 1e9 bytes/s; what "
            "crosses it scales.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", envvar="TRANSIT_PLAN", help="The plan file to write."
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Only predict the step of policy auto, with all the memory that the "
            "job needs down to the least it can do with; takes minutes.",
        ),
    ] = False,
    explain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ALLOCATION",
            help="Also tell what the plan does with an allocation and why: its "
            "ordinal, or a label such as a parameter's name. May be repeated.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page (HTML) that shows the plan, what it is predicted "
            "to cost, and steps for other budgets; those take minutes.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Decide where each piece of a recorded job's memory lives.

    Needs no GPU. Without -o no plan is written.

    Example: transit compile trace/ --gpu-memory 40GiB -o plan.json
    """
    from transit.commands.reported import write_report
    from transit.compiler.compiler import Options, compile_job
    from transit.compiler.lifetimes import job_peak_bytes
    from transit.compiler.plan import dump
    from transit.compiler.summary import summarize
    from transit.files import refuse_existing
    from transit.traces.reader import Trace

    if sweep and (output or gpu_memory or report):
        raise typer.BadParameter(
            "--sweep takes no --gpu-memory, and writes no plan and no report"
        )
    if output and report and output.resolve() == report.resolve():
        raise typer.BadParameter("-o and --report name the same file")
    size = parse_size(gpu_memory) if gpu_memory is not None else None
    for written in (output, report):
        if written:
            refuse_existing(written, overwrite=force)
    recorded = Trace.open(trace)
    _repeat_caveats(recorded)
    profile = _profile(recorded, machine, link_gbps)
    if sweep:
        _sweep(recorded, profile, backend, as_json=as_json)
        return
    budget = size or _whole_gpu(profile)
    peak_bytes = job_peak_bytes(recorded) if budget.unit == "%" else 0
    options = Options(
        gpu_memory_bytes=budget.bytes_of(peak_bytes),
        policy=policy.value,
        machine=profile,
        backend=backend.value,
        compare=True,
    )
    compiled = compile_job(recorded, options)
    plan = compiled.plan
    summary = summarize(plan)
    if explain:
        summary["explained"] = _explained(recorded, plan, options, explain)
    if output:
        dump(plan, output, force=force)
    if as_json:
        print(json.dumps(summary))
    elif explain:
        print_explained(summary["explained"])
    _tell(summary)
    _warn_of_unsteady_calls(plan)
    if report:
        write_report(report, recorded, options, compiled)
    if output:
        log.info("wrote %s", output)
        log.info("next: transit replay --plan %s -- COMMAND", output)
    else:
        log.info("nothing was written: name a plan file with -o")


def _explained(
    trace: Trace, plan: Plan, options: Options, names: list[str]
) -> list[dict[str, Any]]:
    from transit.compiler.explain import explain

    return [row for name in names for row in explain(trace, plan, options, name)]


def _sweep(
    trace: Trace, profile: MachineProfile, backend: Backend, *, as_json: bool
) -> None:
    from dataclasses import asdict

    from transit.commands.tables import print_table
    from transit.compiler.sweep import sweep

    points = [asdict(point) for point in sweep(trace, profile, backend.value)]
    if as_json:
        print(json.dumps({"version": 1, "machine": profile.name, "sweep": points}))
        return
    title = f"steps of policy auto, predicted for machine {profile.name}, not measured"
    print_table(title, points, len(points))


def _profile(
    trace: Trace, name_or_path: str | None, link_gbps: float | None
) -> MachineProfile:
    from transit.compiler.machine import default, load

    if name_or_path is not None:
        profile = load(name_or_path)
    else:
        devices = trace.manifest.rank(trace.ranks[0]).devices
        profile = default(trace.path, devices[0].name if devices else None)
    return profile if link_gbps is None else profile.with_link(link_gbps * 1e9)


def _whole_gpu(profile: MachineProfile) -> MemorySize:
    if profile.gpu_memory_bytes is None:
        raise BudgetError(
            "--gpu-memory is missing, and machine profile "
            f"{profile.name} does not say how much memory the GPU has; give a budget, "
            "such as 40GiB"
        )
    return MemorySize(profile.gpu_memory_bytes, "B")


def _repeat_caveats(recorded: Trace) -> None:
    """Say what is to be known of the trace: no plan is better than that."""
    from transit.traces.caveats import caveats

    for info in recorded.manifest.ranks:
        for caveat in caveats(info):
            log.warning("rank %d: %s", info.rank, caveat)


def _warn_of_unsteady_calls(plan: Plan) -> None:
    """Say where replay will hardly find the job, which it does by what calls name."""
    from transit.compiler.naming import MAX_UNSTEADY

    for rank_plan in plan.ranks:
        num_unsteady = rank_plan.iteration.unsteady_calls or 0
        calls = rank_plan.iteration.calls() if num_unsteady else None
        if calls is None or num_unsteady <= MAX_UNSTEADY * len(calls.signature):
            continue
        log.warning(
            "rank %d: %d of the iteration's %d calls name other memory at times: "
            "replay may not find the job there, and what has windows then stays on "
            "the host; if it names the same memory again every few steps, more of them "
            "show that (transit record --iterations 12)",
            rank_plan.ranks[0],
            num_unsteady,
            len(calls.signature),
        )


def _tell(summary: dict[str, Any]) -> None:
    budget = format_bytes(summary["gpu_memory_bytes"])
    if summary["fits_without_spilling"]:
        peak = format_bytes(summary["job_peak_bytes"])
        log.info("the job fits: it needs %s of %s; nothing is moved", peak, budget)
        return
    log.info(
        "policy %s: at most %s of %s on the GPU at once; %s",
        summary["policy"],
        format_bytes(summary["peak_resident_bytes"]),
        budget,
        _moved(summary),
    )
    log.info("estimated, not measured: %s", _estimate(summary))
    if summary["predicted_step_ms"] is not None:
        log.info("%s", _prediction(summary))
    if summary["iteration_steps"] > 1:
        log.info(
            "the iteration is of %d steps: only then does the job name the same memory",
            summary["iteration_steps"],
        )


def _moved(summary: dict[str, Any]) -> str:
    in_place = format_bytes(summary["zero_copy_bytes"])
    if not summary["window_bytes"]:
        return f"{in_place} are read in place on the host"
    windowed = format_bytes(summary["window_bytes"])
    return f"{windowed} come and go within the iteration, {in_place} stay on the host"


def _prediction(summary: dict[str, Any]) -> str:
    """Say how long a step is predicted to be, and what it is to be compared with."""
    text = (
        f"predicted: {summary['predicted_step_ms']:.2f} ms of GPU time per step, "
        f"{summary['ideal_step_ms']:.2f} ms with enough memory"
    )
    if summary["bound_step_ms"] is not None:
        text += (
            f", no schedule below {summary['bound_step_ms']:.2f} ms; the gap is "
            f"{summary['gap_percent']} %"
        )
    others = [
        f"{name} {'does not fit' if ms is None else f'{ms:.2f} ms'}"
        for name, ms in summary["policies"].items()
    ]
    return f"{text} (other policies: {', '.join(others)})" if others else text


def _estimate(summary: dict[str, Any]) -> str:
    link_bytes = format_bytes(summary["estimated_link_bytes_per_iteration"])
    extra_ns = summary["estimated_extra_ns_per_iteration"]
    if extra_ns is None:
        machine = summary["machine"]
        return (
            f"{link_bytes} over the link per iteration; no time, as "
            f"machine profile {machine} is of another GPU than the recording "
            "(transit calibrate measures one)"
        )
    return f"{link_bytes} over the link per iteration, which adds {format_ns(extra_ns)}"
