"""Digests of Parquet footers, which have no checksum of their own as pages do."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_TAIL_BYTES = 8  # the footer's length and the magic number
_DIGEST_BYTES = 16


def footer_digest(path: Path) -> str:
    """Hash a file's footer: the places, encodings and sizes of all that is in it."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - _TAIL_BYTES, 0))
        footer_bytes = int.from_bytes(file.read(4), "little")
        file.seek(max(size - _TAIL_BYTES - footer_bytes, 0))
        return hashlib.blake2b(file.read(), digest_size=_DIGEST_BYTES).hexdigest()
