"""Say in a plan which recording it was made from."""

from __future__ import annotations

import hashlib

from transit.compiler.plan import TraceReference
from transit.errors import TraceError
from transit.traces.manifest import FILE_NAME as MANIFEST
from transit.traces.reader import Trace


def trace_reference(trace: Trace) -> TraceReference:
    """Identify a trace by its content, its command and its GPU."""
    devices = trace.manifest.rank(trace.ranks[0]).devices
    if not devices:
        raise TraceError(f"{trace.path}: no GPU was used in the recording")
    return TraceReference(
        fingerprint=_fingerprint(trace),
        command=tuple(trace.manifest.command),
        gpu_name=devices[0].name,
        gpu_total_bytes=devices[0].memory_bytes,
        compute_capability=devices[0].compute_capability,
    )


def _fingerprint(trace: Trace) -> str:
    """Hash the manifest and every table."""
    names = [MANIFEST]
    names += [
        f"rank={rank}/{table}.parquet" for rank in trace.ranks for table in trace.tables
    ]
    digest = hashlib.sha256()
    for name in names:
        path = trace.path / name
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as failed:
            raise TraceError(f"{path}: cannot be read: {failed.strerror}") from None
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()
