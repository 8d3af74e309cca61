"""Options that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

JobCommand = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="The job, as you would start it.",
        show_default=False,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", "-f", help="Replace an existing output.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Rows = Annotated[
    int, typer.Option(min=1, envvar="TRANSIT_ROWS", help="Rows per table.")
]
HostMemory = Annotated[
    str | None,
    typer.Option(
        "--host-memory",
        metavar="SIZE",
        envvar="TRANSIT_HOST_MEMORY",
        help="Host memory for what is not on the GPU, of all processes together; "
        "default: what is available at the start. 80% is a share of that.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print the environment and the command only."),
]
SimulatedGpu = Annotated[
    bool,
    typer.Option(
        "--simulated-gpu",
        envvar="TRANSIT_SIMULATED_GPU",
        help="Run the job on the simulated GPU: no GPU needed, no speed shown.",
    ),
]


def required_command(command: Sequence[str] | None) -> list[str]:
    """Return the job's command, or tell how to write one."""
    if not command:
        raise typer.BadParameter(
            "the job's command is missing; write it after --, for instance: "
            "-- python train.py"
        )
    return list(command)


def print_dry_run(variables: Mapping[str, str], command: Sequence[str]) -> None:
    """Print a shell line that would start the job as transit does."""
    for name, value in variables.items():
        print(f"{name}={shlex.quote(value)} \\")
    print(shlex.join(command))
