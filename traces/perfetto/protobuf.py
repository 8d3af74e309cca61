"""Encodes protocol buffers, many messages of one shape at a time.

All messages of a batch take equally many bytes: varints are padded to the width that
the largest of them needs, which every decoder accepts. So NumPy can lay them out as
the rows of a matrix, and the lengths of nested messages are constants.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64] | npt.NDArray[np.uint64]
Columns = list[npt.NDArray[np.uint8]]
"""Parts of a message side by side: one row per message, or one row for all."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2  # wire types


def integer(field: int, values: Ints | int) -> Columns:
    """Encode a field of type ``int64``, ``uint64``, ``enum`` or the like."""
    return [_tag(field, _VARINT), _varints(values)]


def fixed64(field: int, values: Ints) -> Columns:
    """Encode a field of type ``fixed64``."""
    little_endian = np.ascontiguousarray(values, "<u8")
    return [_tag(field, _FIXED64), little_endian.view(np.uint8).reshape(-1, 8)]


def text(field: int, value: str) -> Columns:
    """Encode a ``string`` field that is the same in all messages."""
    encoded = np.frombuffer(value.encode(), np.uint8)[np.newaxis]
    return message(field, [encoded])


def message(field: int, content: Columns) -> Columns:
    """Encode a nested message; at the top level, one message of a stream."""
    length = sum(column.shape[1] for column in content)
    return [_tag(field, _BYTES), _varints(length), *content]


def rows(columns: Columns) -> npt.NDArray[np.uint8]:
    """Lay out the messages: each is a row of the result."""
    num_rows = max(len(column) for column in columns)
    width = sum(column.shape[1] for column in columns)
    result = np.empty((num_rows, width), np.uint8)
    end = 0
    for column in columns:
        start, end = end, end + column.shape[1]
        result[:, start:end] = column
    return result


def _tag(field: int, wire_type: int) -> npt.NDArray[np.uint8]:
    return _varints(field << 3 | wire_type)


def _varints(values: Ints | int) -> npt.NDArray[np.uint8]:
    # As unsigned: a negative number takes ten bytes, as the format has it.
    numbers = np.atleast_1d(np.asarray(values)).astype(np.uint64)
    width = max(1, -(-int(numbers.max(initial=0)).bit_length() // 7))
    shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
    groups = (numbers[:, np.newaxis] >> shifts).astype(np.uint8)
    groups |= 0x80  # another group follows
    groups[:, -1] &= 0x7F
    return groups
