"""Collects rows from outside into tables, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import pyarrow as pa

from transit.errors import TraceError

_BATCH_ROWS = 1 << 16  # bounds the Python objects that are alive at once


class Rows:
    """Rows of one schema, converted in batches.

    Parameters
    ----------
    schema
        What the rows have to fit.
    where
        The place they come from, for errors.
    """

    def __init__(self, schema: pa.Schema, where: str) -> None:
        self._schema = schema
        self._where = where
        self._pending: list[Sequence[Any]] = []
        self._batches: list[Any] = []

    def add(self, row: Sequence[Any]) -> None:
        """Add one row, its values in the schema's order."""
        self._pending.append(row)
        if len(self._pending) == _BATCH_ROWS:
            self._convert()

    def extend(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add several rows."""
        for row in rows:
            self.add(row)

    def table(self) -> pa.Table:
        """Return all rows; texts are dictionary-encoded, with one dictionary."""
        self._convert()
        table = pa.Table.from_batches(self._batches, encoded(self._schema))
        return table.unify_dictionaries().combine_chunks()

    def _convert(self) -> None:
        if not self._pending:
            return
        columns: list[Any] = []
        for field, values in zip(
            self._schema, zip(*self._pending, strict=True), strict=True
        ):
            is_integer = pa.types.is_integer(field.type)
            if is_integer and not {*map(type, values)} <= {int, NoneType}:
                # Arrow would cut off a fraction without a word.
                raise TraceError(f"{self._where}: {field.name} is no integer.")
            try:
                column: Any = pa.array(values, field.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                raise TraceError(
                    f"{self._where}: impossible {field.name}: {error}."
                ) from error
            if column.null_count and not field.nullable:
                raise TraceError(
                    f"{self._where}: {field.name} is missing or impossible."
                )
            if pa.types.is_string(field.type):
                column = column.dictionary_encode()
            columns.append(column)
        self._batches.append(
            pa.RecordBatch.from_arrays(columns, schema=encoded(self._schema))
        )
        self._pending = []


def encoded(schema: pa.Schema) -> pa.Schema:
    """Return the schema with dictionaries in place of texts."""
    return pa.schema(
        field.with_type(pa.dictionary(pa.int32(), pa.string()))
        if pa.types.is_string(field.type)
        else field
        for field in schema
    )
