"""The page of ``transit compile --report``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from transit.errors import PlanError, TransitError
from transit.files import write_text

if TYPE_CHECKING:
    from transit.compiler.compiled import Compiled
    from transit.compiler.compiler import Options
    from transit.compiler.sweep import Point
    from transit.traces.reader import Trace

log = logging.getLogger(__name__)

NUM_BUDGETS = 5


def write_report(
    path: Path, trace: Trace, options: Options, compiled: Compiled
) -> None:
    """Write what there is to see about a plan, with its step for other budgets."""
    from transit.compiler.report import render
    from transit.compiler.report.data import gather

    page = render(gather(trace, options, compiled, _sweep(trace, options)))
    try:
        write_text(path, page)
    except OSError as failed:
        raise PlanError(f"{path}: cannot be written: {failed.strerror}") from None
    log.info("wrote %s", path)


def _sweep(trace: Trace, options: Options) -> list[Point]:
    """Predict steps for a few budgets, or say why that cannot be."""
    from rich.console import Console
    from rich.progress import track

    from transit.compiler.sweep import sweep

    console = Console(stderr=True)
    points = track(
        sweep(trace, options.machine, options.backend, NUM_BUDGETS),
        "other budgets",
        total=NUM_BUDGETS,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    try:
        return list(points)
    except TransitError as failed:
        log.warning("the report shows no other budgets: %s", failed)
        return []
