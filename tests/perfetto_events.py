"""Reads an export back, by Perfetto's own description of the format."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    Trace,
    TracePacket,
    TrackEvent,
)


@dataclass
class Event:
    """A slice, or an instant, whose start is its end."""

    track: str
    name: str
    start_ns: int
    end_ns: int
    arguments: dict[str, int | str]
    flows: list[int]


@dataclass
class Export:
    """What a viewer would show; tracks by their titles from the top."""

    packets: list[TracePacket]
    tracks: dict[int, str] = field(default_factory=dict)
    slices: list[Event] = field(default_factory=list)
    instants: list[Event] = field(default_factory=list)
    counters: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    annotation_names: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def on(self, *titles: str) -> list[tuple[str, int, int]]:
        """Return name, start and end of the slices of a track."""
        return [
            (event.name, event.start_ns, event.end_ns)
            for event in self.slices
            if event.track == "/".join(titles)
        ]


def read_export(path: Path) -> Export:
    """Parse an export, and fail on what a viewer could not show."""
    packets = list(Trace.FromString(gzip.decompress(path.read_bytes())).packet)
    export = Export(packets)
    assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    for packet in packets:
        assert packet.trusted_packet_sequence_id == 1
        _learn(export, packet)
    running: dict[int, Event] = {}
    # Stable, as viewers sort: at one time, the order of the file counts.
    for packet in sorted(packets, key=lambda packet: packet.timestamp):
        if packet.HasField("track_event"):
            _follow(export, running, packet)
    assert running == {}
    return export


def _learn(export: Export, packet: TracePacket) -> None:
    interned = packet.interned_data
    export.names |= {entry.iid: entry.name for entry in interned.event_names}
    export.annotation_names |= {
        entry.iid: entry.name for entry in interned.debug_annotation_names
    }
    export.texts |= {
        entry.iid: entry.str.decode()
        for entry in interned.debug_annotation_string_values
    }
    track = packet.track_descriptor
    if track.uuid:
        assert track.uuid not in export.tracks
        parent = f"{export.tracks[track.parent_uuid]}/" if track.parent_uuid else ""
        export.tracks[track.uuid] = parent + track.name
        if track.HasField("counter"):
            export.counters[parent + track.name] = []


def _follow(export: Export, running: dict[int, Event], packet: TracePacket) -> None:
    assert packet.sequence_flags == TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
    event, time_ns = packet.track_event, packet.timestamp
    track = export.tracks[event.track_uuid]
    if event.type == TrackEvent.TYPE_COUNTER:
        export.counters[track].append((time_ns, event.counter_value))
    elif event.type == TrackEvent.TYPE_SLICE_END:
        ended = running.pop(event.track_uuid)
        ended.end_ns = time_ns
        export.slices.append(ended)
    else:
        found = Event(
            track,
            export.names[event.name_iid],
            time_ns,
            time_ns,
            {
                export.annotation_names[a.name_iid]: export.texts.get(
                    a.string_value_iid, a.pointer_value or a.int_value
                )
                for a in event.debug_annotations
            },
            [*event.flow_ids, *event.terminating_flow_ids],
        )
        if event.type == TrackEvent.TYPE_INSTANT:
            export.instants.append(found)
        else:
            assert event.type == TrackEvent.TYPE_SLICE_BEGIN
            assert event.track_uuid not in running, f"{track}: slices overlap"
            running[event.track_uuid] = found
