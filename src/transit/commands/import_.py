"""``transit import``."""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from transit.commands.options import Force

log = logging.getLogger(__name__)


class Source(StrEnum):
    """What wrote the file."""

    NSYS = "nsys"
    KINETO = "kineto"
    TENSORS = "tensors"


def import_(
    source: Annotated[
        Source,
        typer.Argument(
            help="nsys: Nsight Systems' SQLite export; kineto: PyTorch's profiler; "
            "tensors: published lists of tensors and kernels.",
            show_default=False,
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help="The file to read; of tensors, the folder.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", envvar="TRANSIT_TRACE", help="Trace folder to write."
        ),
    ] = Path("trace"),
    force: Force = False,
) -> None:
    """Turn another profiler's file, or published lists of tensors, into a trace.

    Profilers do not see what kernels touch: such a trace can be looked at and not
    compiled; one of lists of tensors can. What the file lacks is said.

    Example: transit import kineto trace.json.gz -o trace/
    """
    from transit.traces.imports import kineto, nsys
    from transit.traces.imports.tensors import import_tensors
    from transit.traces.imports.write import import_profile

    if source is Source.TENSORS:
        summary = import_tensors(file, output, overwrite=force)
    else:
        read = {Source.NSYS: nsys.read, Source.KINETO: kineto.read}[source]
        summary = import_profile(read, file, output, overwrite=force)
    for note in summary.notes:
        log.warning("%s", note)
    log.info("wrote %s: %s", output, summary)
    if source is Source.TENSORS:
        log.info("not in such lists: %s", summary.missing)
        log.info("next: transit compile %s --policy auto -o plan.json", output)
        return
    log.info("not in such files: %s; the trace cannot be compiled", summary.missing)
    log.info("next: transit show %s", output)
