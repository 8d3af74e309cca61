"""``transit compile``."""

from __future__ import annotations

import json
import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from transit.commands.options import Force, Json
from transit.units import format_bytes, format_ns, parse_size

log = logging.getLogger(__name__)


class Policy(StrEnum):
    """How placements are chosen."""

    REUSE = "reuse"
    ADVISE = "advise"


def compile_(
    trace: Annotated[
        Path, typer.Argument(help="The trace folder to read.", show_default=False)
    ],
    gpu_memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            envvar="TRANSIT_GPU_MEMORY",
            help="GPU memory to use: 40GiB, or 80% of what the job needs.",
        ),
    ],
    policy: Annotated[
        Policy,
        typer.Option(
            envvar="TRANSIT_POLICY",
            help="reuse: spill what is streamed once; advise: in allocation order.",
        ),
    ] = Policy.REUSE,
    machine: Annotated[
        str,
        typer.Option(
            envvar="TRANSIT_MACHINE", help="Machine profile: h200, or a file."
        ),
    ] = "h200",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", envvar="TRANSIT_PLAN", help="The plan file to write."
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Decide where each piece of a recorded job's memory lives.

    Needs no GPU. Without -o nothing is written.

    Example: transit compile trace/ --gpu-memory 40GiB -o plan.json
    """
    from transit.compiler.compiler import compile_trace
    from transit.compiler.lifetimes import job_peak_bytes
    from transit.compiler.machine import load
    from transit.compiler.plan import dump
    from transit.compiler.summary import summarize
    from transit.files import refuse_existing
    from transit.traces.reader import Trace

    size = parse_size(gpu_memory)
    profile = load(machine)
    if output:
        refuse_existing(output, overwrite=force)
    recorded = Trace.open(trace)
    peak_bytes = job_peak_bytes(recorded) if size.unit == "%" else 0
    plan = compile_trace(
        recorded,
        gpu_memory_bytes=size.bytes_of(peak_bytes),
        policy=policy.value,
        machine=profile,
    )
    summary = summarize(plan)
    if output:
        dump(plan, output, force=force)
    if as_json:
        print(json.dumps(summary))
    _tell(summary)
    if output:
        log.info("wrote %s", output)
        log.info("next: transit replay --plan %s -- COMMAND", output)
    else:
        log.info("nothing was written: name a plan file with -o")


def _tell(summary: dict[str, Any]) -> None:
    budget = format_bytes(summary["gpu_memory_bytes"])
    if summary["fits_without_spilling"]:
        peak = format_bytes(summary["job_peak_bytes"])
        log.info("the job fits: it needs %s of %s; nothing is moved", peak, budget)
        return
    log.info(
        "policy %s: at most %s of %s on the GPU at once; %s are read in place on the "
        "host",
        summary["policy"],
        format_bytes(summary["peak_resident_bytes"]),
        budget,
        format_bytes(summary["zero_copy_bytes"]),
    )
    log.info("estimated, not measured: %s", _estimate(summary))


def _estimate(summary: dict[str, Any]) -> str:
    link_bytes = format_bytes(summary["estimated_link_bytes_per_iteration"])
    extra_ns = summary["estimated_extra_ns_per_iteration"]
    if extra_ns is None:
        machine = summary["machine"]
        return (
            f"{link_bytes} over the link per iteration; no time, as "
            f"machine profile {machine} is of another GPU than the recording"
        )
    return f"{link_bytes} over the link per iteration, which adds {format_ns(extra_ns)}"
