"""``transit calibrate``."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from transit.commands.options import Force, Json
from transit.units import format_bytes, format_ns

if TYPE_CHECKING:
    from transit.runtime.calibration.measurement import Measurement

log = logging.getLogger(__name__)

UNSTEADY = 0.25  # runs that differ by more than this share are worth a word


def calibrate(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The machine profile to write.", show_default=False
        ),
    ] = None,
    device: Annotated[
        int, typer.Option(min=0, help="The GPU to measure, as CUDA numbers them.")
    ] = 0,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Measure this machine's GPU and link, for compile to reckon with.

    Takes less than a minute, 1 GiB of the GPU and 2 GiB of the host, or less where less
    is free. Other work on the machine spoils the result. Without -o nothing is written.

    Example: transit calibrate -o machine.json
    """
    from transit.compiler.machine import dump
    from transit.files import refuse_existing
    from transit.runtime.calibration.calibrate import calibrate as measure_machine
    from transit.runtime.calibration.profile import profile_of
    from transit.runtime.simulated import GPU_NAME as SIMULATED

    if output:
        refuse_existing(output, overwrite=force)
    with _steps() as on_step:
        found = measure_machine(device, on_step)
    profile = profile_of(found)
    if output:
        dump(profile, output, force=force)
    if as_json:
        print(json.dumps(_report(profile.model_dump(mode="json"), found.all())))
    else:
        _print(found.all())
    if profile.gpu_name == SIMULATED:
        log.warning("the simulated GPU has no speed: these rates mean nothing")
    else:
        _warn_unsteady(found.all())
    for backend in sorted({"vmm", "uvm"} - profile.backends.keys()):
        log.warning("backend %s was not measured: the GPU does not support it", backend)
    if output:
        log.info("wrote %s", output)
        log.info("next: transit compile TRACE --machine %s --gpu-memory 80%%", output)
    else:
        log.info("nothing was written: name a file with -o")


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is going on, and leave nothing of it."""
    if not sys.stderr.isatty():
        yield lambda step: log.debug("measuring %s", step)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(f"measuring {step}")


def _report(profile: dict[str, Any], measured: list[Measurement]) -> dict[str, Any]:
    return {
        "format": "transit-calibration",
        "version": 1,
        "profile": profile,
        "measurements": [
            {
                "what": one.what,
                "piece_bytes": one.piece_bytes or None,
                "pieces": one.pieces,
                "bytes_per_s": one.bytes_per_s or None,
                "times_ns": one.times_ns,
            }
            for one in measured
        ],
    }


def _print(measured: list[Measurement]) -> None:
    from transit.commands.tables import print_table

    records = [
        {
            "what": one.what,
            "piece": format_bytes(one.piece_bytes) if one.moved_bytes else "",
            "rate": f"{one.bytes_per_s / 1e9:.1f} GB/s" if one.moved_bytes else "",
            "time": format_ns(one.piece_ns),
            "spread": f"{one.spread:.0%}",
        }
        for one in measured
    ]
    print_table("measured", records, len(records))


def _warn_unsteady(measured: list[Measurement]) -> None:
    unsteady = [one for one in measured if one.spread > UNSTEADY]
    if unsteady:
        worst = max(unsteady, key=lambda one: one.spread)
        log.warning(
            "%d of %d times differ from run to run, most %r (%.0f%%): is the machine "
            "in use? Measure again when it is not",
            len(unsteady),
            len(measured),
            worst.what,
            worst.spread * 100,
        )
