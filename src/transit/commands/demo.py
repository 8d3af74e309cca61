"""``transit demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            envvar="TRANSIT_KEEP",
            help="Leave the trace, plan and status files in this new folder.",
        ),
    ] = None,
) -> None:
    """Record, compile and replay a small training job on the simulated GPU.

    Needs no GPU and no options.

    Example: transit demo --keep demo/
    """
    import tempfile

    from transit.commands.demo_story import tell

    if keep:
        keep.mkdir(parents=True)
        tell(keep)
        return
    with tempfile.TemporaryDirectory(prefix="transit-demo-") as temporary:
        tell(Path(temporary))
