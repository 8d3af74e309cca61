"""Reads one large JSON object piece by piece, in bounded memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NoReturn, TextIO

from transit.errors import TraceError

CHUNK_CHARS = 1 << 20
MAX_VALUE_CHARS = 64 << 20
MAX_CHARS = 8 << 30
_SPACE: Any = re.compile(r"[ \t\n\r]*")  # matches anywhere


class JsonStream:
    """An object in a text file.

    Numbers with a fraction become `Decimal`: microseconds since 1970 are more than a
    float can hold.

    Parameters
    ----------
    file
        The text.
    where
        Its name, for errors.
    """

    def __init__(self, file: TextIO, where: str) -> None:
        self._file = file
        self._where = where
        self._text = ""
        self._at = 0
        self._num_read = 0
        self._decoder = json.JSONDecoder(
            parse_float=Decimal, parse_constant=self._refuse_constant
        )

    def members(self, array: str) -> Iterator[tuple[str, Any]]:
        """Yield the object's keys with their values.

        The value of the key `array` has to be an array, and comes element by element.
        """
        self._one_of("{")
        if self._peek() == "}":
            return
        separator = ","
        while separator == ",":
            key = self._value()
            if not isinstance(key, str):
                self._fail("not valid JSON: a key is no text")
            self._one_of(":")
            if key == array:
                yield from ((key, element) for element in self._elements())
            else:
                yield key, self._value()
            separator = self._one_of(",}")

    def _elements(self) -> Iterator[Any]:
        self._one_of("[")
        if self._peek() == "]":
            self._at += 1
            return
        separator = ","
        while separator == ",":
            yield self._value()
            separator = self._one_of(",]")

    def _value(self) -> Any:
        self._peek()
        while True:
            problem = "ends in the middle"
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                # A number may go on behind the buffer.
                if end < len(self._text):
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                problem = f"not complete, or not valid JSON: {error.msg}"
            except (RecursionError, ValueError, ArithmeticError) as error:
                self._fail(f"not JSON that can be read: {error}")
            if len(self._text) - self._at > MAX_VALUE_CHARS:
                self._fail("not valid JSON, or one value is larger than 64 MiB")
            if not self._refill():
                self._fail(problem)

    def _one_of(self, expected: str) -> str:
        found = self._peek()
        if found not in expected:
            self._fail(f'not valid JSON: "{found}" where "{expected[-1]}" should be')
        self._at += 1
        return found

    def _peek(self) -> str:
        while True:
            self._at = _SPACE.match(self._text, self._at).end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._refill():
                self._fail("ends in the middle" if self._num_read else "empty")

    def _refill(self) -> bool:
        rest = self._text[self._at :]
        # As much again, so that a long value is not parsed too often.
        more = self._file.read(max(CHUNK_CHARS, len(rest)))
        self._num_read += len(more)
        if self._num_read > MAX_CHARS:
            self._fail("larger than 8 GiB when unpacked; profile fewer steps")
        self._text, self._at = rest + more, 0
        return bool(more)

    def _refuse_constant(self, text: str) -> NoReturn:
        raise ValueError(f"{text} is no JSON number")

    def _fail(self, problem: str) -> NoReturn:
        at = self._num_read - len(self._text) + self._at
        raise TraceError(f"{self._where}, character {at:,}: {problem}.")
