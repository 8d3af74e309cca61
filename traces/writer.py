"""Writes a trace folder: complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from transit.errors import TraceError
from transit.traces import manifest as manifests
from transit.traces.footers import footer_digest
from transit.traces.manifest import Manifest
from transit.traces.schema import DELTA_ENCODED, SORTED_BY, TABLES, file_metadata

ROW_GROUP_ROWS = 131_072


class TraceWriter:
    """Collects tables in a hidden folder beside the target, which `finish` renames.

    Use as a context manager: leaving it without `finish` leaves nothing behind.

    Parameters
    ----------
    path
        The trace folder to make.
    overwrite
        Replace a trace that is there; it is kept until the new one is complete.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self._path = path
        self._overwrite = overwrite
        self._footers: dict[str, str] = {}
        refuse_existing(path, overwrite=overwrite)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._partial = Path(
                tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent)
            )
        except OSError as error:
            raise TraceError(f"Cannot write {path}: {error.strerror}.") from error

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove what was not finished."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def write(self, rank: int, table: str, rows: pa.Table | Iterable[pa.Table]) -> int:
        """Write one table of one rank, and return how many rows it has.

        `rows` has the table's columns in any order. Given in parts, of which the row
        groups are made, the table need never be in memory as a whole.
        """
        parts = [rows] if isinstance(rows, pa.Table) else rows
        name = f"rank={rank}/{table}.parquet"
        path = self._partial / name
        try:
            path.parent.mkdir(exist_ok=True)
            num_rows = _write_parquet(path, rank, table, parts)
            self._footers[name] = footer_digest(path)
            return num_rows
        except OSError as error:
            raise TraceError(f"Cannot write {self._path}: {error}.") from error

    def write_text(self, name: str, text: str) -> None:
        """Add a file that is none of the tables."""
        try:
            (self._partial / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise TraceError(f"Cannot write {self._path}: {error}.") from error

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest and put the trace in its place."""
        try:
            manifest = manifest.model_copy(update={"footers": self._footers})
            manifests.dump(manifest, self._partial)
            # mkdtemp makes folders for their owner only.
            self._partial.chmod(0o777 & ~_umask())
            self._publish()
        except OSError as error:
            raise TraceError(f"Cannot write {self._path}: {error}.") from error

    def _publish(self) -> None:
        refuse_existing(self._path, overwrite=self._overwrite)
        if not self._path.exists():
            self._partial.rename(self._path)
            return
        old = self._partial.with_name(self._partial.name + ".old")
        self._path.rename(old)
        try:
            self._partial.rename(self._path)
        except OSError:
            old.rename(self._path)
            raise
        shutil.rmtree(old, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Raise if writing a trace to `path` would lose something.

    With `overwrite`, only a trace or an empty folder may be replaced.
    """
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise TraceError(f"{path} exists. Choose another name, or use --force.")
    replaceable = path.is_dir() and not path.is_symlink()
    if replaceable and any(path.iterdir()):
        replaceable = (path / manifests.FILE_NAME).is_file()
    if not replaceable:
        raise TraceError(
            f"{path} exists and is not a trace: it is not replaced, also by force."
        )


def _write_parquet(path: Path, rank: int, table: str, parts: Iterable[pa.Table]) -> int:
    schema = TABLES[table].with_metadata(file_metadata(table, rank))
    names = schema.names
    encoding: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": [name for name in names if name not in DELTA_ENCODED],
        "column_encoding": {
            name: "DELTA_BINARY_PACKED" for name in names if name in DELTA_ENCODED
        },
        "sorting_columns": [
            pq.SortingColumn(names.index(name)) for name in SORTED_BY[table]
        ],
    }
    num_rows = 0
    with pq.ParquetWriter(
        path, schema, write_page_index=True, write_page_checksum=True, **encoding
    ) as writer:
        for rows in parts:
            num_rows += rows.num_rows
            writer.write_table(rows.select(names).cast(schema), ROW_GROUP_ROWS)
    return num_rows


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
