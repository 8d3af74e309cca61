"""The command line. `main` alone prints errors and decides on exit codes."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, NoReturn

import typer

from transit._version import __version__
from transit.commands.calibrate import calibrate
from transit.commands.compile import compile_
from transit.commands.demo import demo
from transit.commands.diff import diff
from transit.commands.doctor import doctor
from transit.commands.export import export
from transit.commands.import_ import import_
from transit.commands.record import record
from transit.commands.replay import replay
from transit.commands.run import run
from transit.commands.show import show
from transit.commands.status import status
from transit.errors import TransitError

log = logging.getLogger("transit")

app = typer.Typer(
    name="transit",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text comes up in half the time
    epilog="Example: transit record -o trace/ -- python train.py",
)
JOB_COMMAND = {"allow_interspersed_args": False}  # what follows the job is the job's
app.command("record", context_settings=JOB_COMMAND)(record)
app.command("compile")(compile_)
app.command("replay", context_settings=JOB_COMMAND)(replay)
app.command("status")(status)
app.command("run", context_settings=JOB_COMMAND)(run)
app.command("show")(show)
app.command("diff")(diff)
app.command("export")(export)
app.command("import")(import_)
app.command("calibrate")(calibrate)
app.command("doctor")(doctor)
app.command("demo")(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"transit {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Say only what went wrong.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say what is done and how.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """Train models that do not fit the GPU, unmodified.

    Record what a job touches, compile placements of its memory, replay the job so.
    """
    if quiet:
        log.setLevel(logging.WARNING)
    elif verbose:
        log.setLevel(logging.DEBUG)
    _warn_unknown_variables(context)


def _warn_unknown_variables(context: typer.Context) -> None:
    from transit.runtime.preload import unknown_variables

    known = option_variables(context.command)
    for name in unknown_variables(os.environ, known):
        log.warning("%s is set and nothing reads it; is it misspelt?", name)


def option_variables(root_command: object) -> set[str]:
    """Return the environment variables that stand for options of the commands."""
    commands = getattr(root_command, "commands", {}).values()
    return {
        str(parameter.envvar)
        for command in commands
        for parameter in command.params
        if parameter.envvar
    }


class _PrefixFormatter(logging.Formatter):
    """``transit: warning: ...``: told apart from the job's own output."""

    def format(self, record: logging.LogRecord) -> str:
        level = (
            "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        )
        return f"transit: {level}{super().format(record)}"


def _set_up_logging() -> None:
    handler = logging.StreamHandler()  # stderr: stdout is for data
    handler.setFormatter(_PrefixFormatter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def main() -> NoReturn:
    """Run the command line and exit."""
    _set_up_logging()
    try:
        app(prog_name="transit")
    except TransitError as error:
        log.error("%s", error)
        sys.exit(error.exit_code)
    except OSError as error:
        log.error("%s", error)
        sys.exit(1)
    raise AssertionError("typer exits by itself")
