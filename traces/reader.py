"""Reads a trace folder; whatever is wrong with it is a `TraceError`."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from transit.errors import TraceError
from transit.traces import manifest as manifests
from transit.traces.footers import footer_digest
from transit.traces.manifest import Manifest
from transit.traces.schema import FORMAT, SINCE_VERSION, TABLES, VERSION


class Trace:
    """A trace on disk.

    Attributes
    ----------
    path
        The trace folder.
    manifest
        Its description.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest; tables are read when asked for."""
        return cls(path, manifests.load(path))

    @property
    def ranks(self) -> list[int]:
        """Ranks in the trace, ascending."""
        return sorted(info.rank for info in self.manifest.ranks)

    @property
    def tables(self) -> list[str]:
        """Tables that a trace of this version has."""
        version = self.manifest.version
        return [name for name in TABLES if SINCE_VERSION.get(name, 1) <= version]

    def table(
        self, rank: int, name: str, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read one table of one rank.

        Parameters
        ----------
        rank
            One of `ranks`.
        name
            A table of `transit.traces.schema.TABLES`.
        columns
            The columns to read, in this order; all if not given.
        """
        expected_rows = self.manifest.rank(rank).counts.get(name)
        schema = TABLES[name]
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        if name not in self.tables:
            return schema.empty_table()
        path = self.path / f"rank={rank}" / f"{name}.parquet"
        if not path.is_file():
            raise TraceError(f"The trace is not complete: {path} is missing.")
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                version = _check_identity(path, file, rank, name)
                later = _later_columns(name, schema, version)
                _check_columns(path, file.schema_arrow, schema, later)
                found = [column for column in schema.names if column not in later]
                rows = file.read(columns=found)
                rows.validate(full=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise TraceError(f"{path} is damaged: {_first_line(error)}.") from error
        _check_rows(path, rows.num_rows, expected_rows)
        for field in later.values():
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        rows = rows.select(schema.names)
        _check_nulls(path, rows, schema)
        self._check_footer(path)
        return rows.cast(schema)

    def _check_footer(self, path: Path) -> None:
        name = path.relative_to(self.path).as_posix()
        expected = self.manifest.footers.get(name)
        if expected not in (None, footer_digest(path)):
            raise TraceError(
                f"{path} is damaged: its footer is not the one that was written."
            )


def _check_identity(path: Path, file: pq.ParquetFile, rank: int, name: str) -> int:
    """Return the version of the file."""
    metadata = file.schema_arrow.metadata or {}
    if metadata.get(b"transit.format") != FORMAT.encode():
        raise TraceError(f"{path} is a Parquet file that transit did not write.")
    try:
        version = int(metadata.get(b"transit.version", b""))
        meta = json.loads(metadata.get(b"transit.meta", b""))
    except ValueError as error:
        raise TraceError(f"{path} is damaged: its metadata is unreadable.") from error
    if version > VERSION:
        raise TraceError(
            f"{path} has version {version}; this transit reads up to version {VERSION}."
        )
    if meta != {"rank": rank, "table": name}:
        raise TraceError(
            f"{path} holds other data than its place says: {json.dumps(meta)}."
        )
    return version


def _later_columns(
    name: str, expected: pa.Schema, version: int
) -> dict[str, pa.Field[Any]]:
    """Return the columns that a file of an older version does not have yet."""
    return {
        field.name: field
        for field in expected
        if SINCE_VERSION.get(f"{name}.{field.name}", 1) > version
    }


def _check_columns(
    path: Path, found: pa.Schema, expected: pa.Schema, later: Container[str]
) -> None:
    for field in expected:
        if field.name in later:
            continue
        index = found.get_field_index(field.name)
        if index < 0:
            raise TraceError(f'{path} has no column "{field.name}".')
        if found.field(index).type != field.type:
            raise TraceError(
                f'{path}: column "{field.name}" is {found.field(index).type},'
                f" not {field.type}."
            )


def _check_rows(path: Path, found: int, expected: int | None) -> None:
    if found != expected:
        raise TraceError(
            f"{path} has {found} rows, but the manifest counts {expected or 'none'}:"
            " the folder mixes two recordings."
        )


def _check_nulls(path: Path, rows: pa.Table, schema: pa.Schema) -> None:
    for field in schema:
        if not field.nullable and rows.column(field.name).null_count:
            raise TraceError(f'{path}: column "{field.name}" has missing values.')


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else "unreadable"
