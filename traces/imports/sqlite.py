"""Reads tables of an SQLite file whose tables and columns may or may not be there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyarrow as pa

from transit.errors import TraceError
from transit.traces.imports.rows import Rows, encoded

_MAGIC = b"SQLite format 3\0"
_THREAD_BITS = 24  # the lowest of a global id
_MAX_VALUE_BYTES = 64 << 20


class Columns:
    """The columns of one table, as SQL expressions.

    Parameters
    ----------
    where
        File and table, for errors.
    names
        The columns that are there.
    has_strings
        Whether there is a table of texts, ``StringIds``.
    """

    def __init__(self, where: str, names: set[str], *, has_strings: bool) -> None:
        self._where = where
        self._names = names
        self._has_strings = has_strings

    def __getitem__(self, name: str) -> str:
        """Return a column that has to be there."""
        if name not in self._names:
            raise TraceError(
                f'{self._where} has no column "{name}": transit does not know this'
                " version of the export."
            )
        return f't."{name}"'

    def get(self, name: str, default: str = "NULL") -> str:
        """Return a column, or `default` where it is not there or null."""
        return f'coalesce(t."{name}", {default})' if name in self._names else default

    def below(self, name: str, limit: int) -> str:
        """Return a column that has to be there, null where it is not below `limit`."""
        return f"CASE WHEN {self[name]} < {limit} THEN {self[name]} END"

    def text(self, name: str) -> str:
        """Return the text that a column gives the id of, or null."""
        if name not in self._names or not self._has_strings:
            return "NULL"
        return f'(SELECT value FROM "StringIds" WHERE id = t."{name}")'

    def process(self, name: str) -> str:
        """Return the process that a global process or thread id is of, or null."""
        return f"({self.get(name)} >> {_THREAD_BITS})"


class Database:
    """An SQLite file, opened to be read; whatever is wrong is a `TraceError`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        # Tables only: a view can be made to run for ever.
        found = connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
        self.tables = {str(name) for (name,) in found}

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open a file for the length of a ``with`` block."""
        try:
            with path.open("rb") as file:
                magic = file.read(len(_MAGIC))
        except OSError as error:
            raise TraceError(f"Cannot read {path}: {error.strerror}.") from error
        if magic != _MAGIC:
            raise TraceError(
                f"{path} is not an SQLite file. Export a report by: nsys export"
                " --type sqlite REPORT.nsys-rep"
            )
        connection = None
        try:
            uri = f"{path.absolute().as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
            yield cls(path, connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise TraceError(f"{path} is damaged: {error}.") from error
        finally:
            if connection:
                connection.close()

    def read(
        self,
        table: str,
        schema: pa.Schema,
        expressions: Callable[[Columns], list[str]],
        condition: Callable[[Columns], str] = lambda _: "1",
    ) -> pa.Table:
        """Read a table, or nothing where it is not there.

        Parameters
        ----------
        table
            Its name; ``t`` in SQL.
        schema
            The columns to make.
        expressions
            Returns an SQL expression for each of them.
        condition
            Returns which rows to read, in SQL.
        """
        if table not in self.tables:
            return encoded(schema).empty_table()
        where = f"{self._path}, {table}"
        info = self._connection.execute(
            "SELECT name FROM pragma_table_info(?)", [table]
        )
        columns = Columns(
            where,
            {str(name) for (name,) in info},
            has_strings="StringIds" in self.tables,
        )
        rows = Rows(schema, where)
        selected = ", ".join(expressions(columns))
        query = f'SELECT {selected} FROM "{table}" AS t WHERE {condition(columns)}'
        rows.extend(self._connection.execute(query))
        return rows.table()
