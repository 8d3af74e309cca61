"""``transit export``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from transit.commands.options import Force
from transit.units import format_bytes

log = logging.getLogger(__name__)


def export(
    trace: Annotated[
        Path, typer.Argument(help="The trace folder to read.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")],
    perfetto: Annotated[
        bool,
        typer.Option("--perfetto", help="Write what ui.perfetto.dev shows."),
    ] = False,
    force: Force = False,
) -> None:
    """Write a trace in the format of another tool.

    Example: transit export --perfetto trace/ -o job.pftrace.gz
    """
    from transit.files import refuse_existing
    from transit.traces.perfetto.export import export_trace
    from transit.traces.reader import Trace

    if not perfetto:
        raise typer.BadParameter("name the format to write: --perfetto")
    refuse_existing(output, overwrite=force)
    exported = export_trace(Trace.open(trace), output)
    if exported.untimed:
        log.warning("%d events left out: nobody knows their times", exported.untimed)
    log.info(
        "wrote %s: %d slices and %d instants in %s",
        output,
        exported.slices,
        exported.instants,
        format_bytes(output.stat().st_size),
    )
    log.info("next: open it in ui.perfetto.dev")
