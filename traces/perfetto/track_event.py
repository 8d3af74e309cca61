"""Writes Perfetto's TrackEvent format.

The numbers are those of Perfetto's ``protos/perfetto/trace``. Viewers sort events by
time and keep the order of the file among events of one time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from transit.traces.perfetto import protobuf
from transit.traces.perfetto.protobuf import Columns

Ints = npt.NDArray[np.int64]

_EVENTS_PER_BATCH = 1 << 16  # bounds the memory that encoding takes
_SEQUENCE_ID = 1
_STATE_CLEARED, _STATE_NEEDED = 1, 2
_CLOCK_REALTIME = 1
_EXPLICIT_ORDER = 3
_UNIT_BYTES = 3
_INT_VALUE = 4
# Arguments that are no plain numbers: a pointer is shown as a hexadecimal number, a
# text is named by its number in `TrackEventWriter.texts`.
_VALUE_FIELDS = {"address": 7, "function": 17}


class _Field(IntEnum):
    """Fields of ``Trace`` and ``TracePacket``."""

    PACKET = 1
    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    TRACK_DESCRIPTOR = 60


class _Event(IntEnum):
    """Fields of ``TrackEvent``."""

    ANNOTATIONS = 4
    TYPE = 9
    NAME_IID = 10
    TRACK = 11
    COUNTER_VALUE = 30
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48


class _Type(IntEnum):
    """Values of ``TrackEvent.type``."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class _Interned(IntEnum):
    """Fields of ``InternedData``: what has a number in place of its text."""

    EVENT_NAMES = 2
    ANNOTATION_NAMES = 3
    ANNOTATION_TEXTS = 29


class _Annotation(NamedTuple):
    """A named value of each event; `field` says of which type."""

    iid: int
    field: int
    values: Ints


class BytesSink(Protocol):
    """What takes bytes: a file, compressed or not."""

    def write(self, data: bytes, /) -> int:
        """Take some bytes."""


class TrackEventWriter:
    """Writes tracks and what happens on them.

    Parameters
    ----------
    file
        Where to write.
    time_ns
        Some time of the recording, to say that times are those of the wall clock.
    """

    def __init__(self, file: BytesSink, time_ns: int) -> None:
        self._file = file
        self._num_tracks = 0
        self._iids: dict[tuple[_Interned, str], int] = {}
        clock = protobuf.integer(1, _CLOCK_REALTIME) + protobuf.integer(2, time_ns)
        snapshot = protobuf.message(1, clock) + protobuf.integer(2, _CLOCK_REALTIME)
        self._packet(
            protobuf.integer(_Field.SEQUENCE_FLAGS, _STATE_CLEARED)
            + protobuf.message(_Field.CLOCK_SNAPSHOT, snapshot)
        )

    def track(self, name: str, parent: int | None = None) -> int:
        """Add a track below the tracks of the same parent, and return its id.

        Tracks of one parent and name are shown as one.
        """
        return self._add_track(name, parent, [])

    def counter_track(self, name: str, parent: int, description: str) -> int:
        """Add a track for a number of bytes, and return its id."""
        unit = protobuf.message(8, protobuf.integer(3, _UNIT_BYTES))
        return self._add_track(name, parent, unit + protobuf.text(14, description))

    def names(self, texts: list[str]) -> Ints:
        """Return the numbers that stand for the names of events."""
        return np.array(self._intern(_Interned.EVENT_NAMES, texts), np.int64)

    def texts(self, texts: list[str]) -> Ints:
        """Return the numbers that stand for texts as arguments of events."""
        return np.array(self._intern(_Interned.ANNOTATION_TEXTS, texts), np.int64)

    def slices(
        self,
        tracks: Ints,
        names: Ints,
        start_ns: Ints,
        end_ns: Ints,
        arguments: Mapping[str, Ints],
        flows: Ints | None = None,
    ) -> None:
        """Write what has a duration; on one track, in order and without overlaps.

        `flows` are numbers of instants that lead here.
        """
        annotations = self._annotations(arguments)
        for batch in _batches(len(start_ns)):
            event = protobuf.integer(_Event.NAME_IID, names[batch])
            if flows is not None:
                event += protobuf.fixed64(_Event.TERMINATING_FLOW_IDS, flows[batch])
            event += _encode(annotations, batch)
            track = tracks[batch]
            begin = _event_packet(start_ns[batch], _Type.SLICE_BEGIN, track, event)
            end = _event_packet(end_ns[batch], _Type.SLICE_END, track, [])
            self._file.write(protobuf.rows(begin + end).tobytes())

    def instants(
        self,
        track: int,
        names: Ints,
        time_ns: Ints,
        arguments: Mapping[str, Ints],
        flows: Ints | None = None,
    ) -> None:
        """Write what has no duration. `flows` are numbers of their own."""
        annotations = self._annotations(arguments)
        for batch in _batches(len(time_ns)):
            event = protobuf.integer(_Event.NAME_IID, names[batch])
            if flows is not None:
                event += protobuf.fixed64(_Event.FLOW_IDS, flows[batch])
            event += _encode(annotations, batch)
            packet = _event_packet(time_ns[batch], _Type.INSTANT, track, event)
            self._file.write(protobuf.rows(packet).tobytes())

    def counter(self, track: int, time_ns: Ints, values: Ints) -> None:
        """Write what a counter shows from each time on."""
        for batch in _batches(len(time_ns)):
            event = protobuf.integer(_Event.COUNTER_VALUE, values[batch])
            packet = _event_packet(time_ns[batch], _Type.COUNTER, track, event)
            self._file.write(protobuf.rows(packet).tobytes())

    def _add_track(self, name: str, parent: int | None, kind: Columns) -> int:
        self._num_tracks += 1
        track = self._num_tracks
        fields = protobuf.integer(1, track) + protobuf.text(2, name) + kind
        if parent is not None:
            fields += protobuf.integer(5, parent)
        fields += protobuf.integer(11, _EXPLICIT_ORDER) + protobuf.integer(12, track)
        self._packet(protobuf.message(_Field.TRACK_DESCRIPTOR, fields))
        return track

    def _annotations(self, arguments: Mapping[str, Ints]) -> list[_Annotation]:
        iids = self._intern(_Interned.ANNOTATION_NAMES, list(arguments))
        fields = (_VALUE_FIELDS.get(name, _INT_VALUE) for name in arguments)
        return list(map(_Annotation, iids, fields, arguments.values()))

    def _intern(self, kind: _Interned, texts: list[str]) -> list[int]:
        entries: Columns = []
        for text in texts:
            if (kind, text) not in self._iids:
                iid = self._iids[kind, text] = len(self._iids) + 1
                entry = protobuf.integer(1, iid) + protobuf.text(2, text)
                entries += protobuf.message(kind, entry)
        if entries:
            self._packet(
                protobuf.integer(_Field.SEQUENCE_FLAGS, _STATE_NEEDED)
                + protobuf.message(_Field.INTERNED_DATA, entries)
            )
        return [self._iids[kind, text] for text in texts]

    def _packet(self, fields: Columns) -> None:
        fields = protobuf.integer(_Field.SEQUENCE_ID, _SEQUENCE_ID) + fields
        packet = protobuf.message(_Field.PACKET, fields)
        self._file.write(protobuf.rows(packet).tobytes())


def _event_packet(
    time_ns: Ints, kind: _Type, track: Ints | int, fields: Columns
) -> Columns:
    event = protobuf.integer(_Event.TYPE, kind)
    event += protobuf.integer(_Event.TRACK, track) + fields
    return protobuf.message(
        _Field.PACKET,
        protobuf.integer(_Field.TIMESTAMP, time_ns)
        + protobuf.integer(_Field.SEQUENCE_ID, _SEQUENCE_ID)
        + protobuf.integer(_Field.SEQUENCE_FLAGS, _STATE_NEEDED)
        + protobuf.message(_Field.TRACK_EVENT, event),
    )


def _encode(annotations: list[_Annotation], batch: slice) -> Columns:
    columns: Columns = []
    for iid, field, values in annotations:
        content = protobuf.integer(1, iid) + protobuf.integer(field, values[batch])
        columns += protobuf.message(_Event.ANNOTATIONS, content)
    return columns


def _batches(count: int) -> Iterator[slice]:
    for start in range(0, count, _EVENTS_PER_BATCH):
        yield slice(start, min(start + _EVENTS_PER_BATCH, count))
