"""``transit status``."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from transit.commands.options import Json
from transit.errors import JobError

if TYPE_CHECKING:
    from transit.runtime.looks import Look

log = logging.getLogger(__name__)

Pair = tuple["Look", "Look"]  # one run, before and now


def status(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[PID|FOLDER]",
            help="A process of the job, transit's own, or the run's folder.",
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again until the job ends.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds between looks, which rates are taken of."),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the jobs that transit runs or replays now.

    Where their memory is, what the link carries, how the job follows the plan, and the
    measured step beside the predicted one.

    Example: transit status --watch
    """
    views = islice(_views(target, interval), None if watch else 1)
    if as_json:
        _print_objects(views)
    elif watch and sys.stdout.isatty():
        _show_live(views)
    else:
        _print_screens(views)


def _views(target: str | None, interval: float) -> Iterator[list[Pair]]:
    """Yield two looks at each run, time after time, until none runs any more."""
    from transit.runtime.looks import look

    before = look(target)
    while before:
        time.sleep(interval)
        try:
            after = look(target)
        except JobError:  # it has ended, and its folder is gone
            break
        old = {look.folder: look for look in before}
        yield [(old.get(now.folder, now), now) for now in after]
        before = [now for now in after if now.is_running]
    yield []


def _print_objects(views: Iterable[list[Pair]]) -> None:
    from transit.commands.status_screen import describe_run

    for pairs in views:
        runs = [describe_run(*pair) for pair in pairs]
        report = {"format": "transit-runs", "version": 1, "runs": runs}
        print(json.dumps(report), flush=True)


def _print_screens(views: Iterable[list[Pair]]) -> None:
    from rich.console import Console

    from transit.commands.status_screen import screen
    from transit.commands.tables import PIPED_COLUMNS

    console = Console(width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    for pairs in views:
        for pair in pairs:
            console.print(screen(*pair))
        if not pairs:
            _tell_nothing_runs()


def _show_live(views: Iterable[list[Pair]]) -> None:
    from rich.console import Group
    from rich.live import Live

    from transit.commands.status_screen import screen

    with Live(auto_refresh=False) as live:
        for pairs in views:
            if pairs:
                screens = Group(*(screen(*pair) for pair in pairs))
                live.update(screens, refresh=True)
    _tell_nothing_runs()


def _tell_nothing_runs() -> None:
    log.info("nothing runs now; next: transit replay --plan PLAN -- COMMAND")
