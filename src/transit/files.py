"""Write outputs without losing what was there."""

from __future__ import annotations

import os
from pathlib import Path

from transit.errors import TransitError


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse an output that is there already, before any work is put into it."""
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise TransitError(f"{path}: exists already; pass --force to replace it")


def write_text(path: Path, text: str) -> None:
    """Write a file beside `path`, then rename it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
