"""Write outputs without losing what was there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transit.errors import TransitError


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse an output that is there already, before any work is put into it."""
    if (path.exists() or path.is_symlink()) and not overwrite:
        raise TransitError(f"{path}: exists already; pass --force to replace it")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file beside `path`, which is renamed into place if all goes well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file beside `path`, then rename it into place."""
    with replacing(path) as temporary:
        temporary.write_text(text)
