"""Decides which tracks a trace becomes, and what is on each."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transit.errors import TraceError
from transit.files import replacing
from transit.kernel_names import demangle, shorten
from transit.traces.check import refuse_contradictions
from transit.traces.perfetto.canvas import UNKNOWN, Canvas, Events, Exported
from transit.traces.perfetto.memory import memory_use
from transit.traces.perfetto.track_event import TrackEventWriter
from transit.traces.reader import Trace

Ints = npt.NDArray[np.int64]

_COMPRESSION_LEVEL = 4
_FLOWS_PER_RANK = 1 << 40
_FIRST_HANDLE = 1 << 16  # streams with smaller numbers are special ones
_MEMORY_DESCRIPTION = (
    "Bytes as asked for. A change is shown when the host makes its next launch, so it "
    "comes before what the GPU does at that time."
)
_PLURALS = {"kernel": "kernels", "copy": "copies", "set": "sets", "graph": "graphs"}
_GRID = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


def export_trace(trace: Trace, path: Path) -> Exported:
    """Write a trace as a compressed file in Perfetto's TrackEvent format.

    Parameters
    ----------
    trace
        The trace to read.
    path
        The file to write. It is replaced when the new one is complete.
    """
    first_rank = trace.manifest.rank(trace.ranks[0])
    # gzip's header would hold name and time: the same trace is to give the same bytes.
    with (
        replacing(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", _COMPRESSION_LEVEL, raw, mtime=0) as file,
    ):
        writer = TrackEventWriter(file, first_rank.clocks.realtime_ns)
        canvas = Canvas(writer)
        for index, rank in enumerate(trace.ranks):
            _RankDrawing(canvas, trace, rank).draw(first_flow=index * _FLOWS_PER_RANK)
    return canvas.exported


class _RankDrawing:
    """Draws one rank below a track of its own."""

    def __init__(self, canvas: Canvas, trace: Trace, rank: int) -> None:
        refuse_contradictions(trace, rank)
        self._canvas = canvas
        self._trace = trace
        self._rank = rank
        info = trace.manifest.rank(rank)
        self._root = canvas.writer.track(f"rank {rank}, pid {info.pid}")
        self._gpu_names = {gpu.device: gpu.name for gpu in info.devices}
        self._gpu_tracks: dict[int, int] = {}

    def draw(self, first_flow: int) -> None:
        """Draw everything; flows are numbered from `first_flow`."""
        columns = ["name", "kind", "device", "stream", "host_ns"]
        launches = self._table("launches", columns)
        work = self._events("launches", "name", "launch_id", "graph_id", *_GRID)
        work = replace(work, flows=work.arguments["launch_id"] + first_flow)
        self._draw_iterations(work)
        self._draw_memory()
        # The host first: at one time, a launch comes before what it starts.
        self._draw_host(launches, work)
        self._draw_streams(launches, work)
        self._draw_unified_memory()
        self._draw("recording overhead", self._events("overhead", "kind"))

    def _draw_iterations(self, work: Events) -> None:
        """Draw iterations as the GPU had them: from first to last piece of work."""
        table = self._table("iterations")
        launch_id = work.arguments["launch_id"]
        first, last, numbers = (
            _integers(table[name])
            for name in ("first_launch_id", "last_launch_id", "iteration")
        )
        timed = work.start_ns != UNKNOWN
        start_ns = np.where(timed, work.start_ns, np.iinfo(np.int64).max)
        begins = np.searchsorted(launch_id, first)
        stops = np.searchsorted(launch_id, last, side="right")
        ranges = [slice(*pair) for pair in zip(begins, stops, strict=True)]
        known = np.array([timed[r].any() for r in ranges], np.bool_)
        from_ns = np.array([start_ns[r].min() for r in ranges], np.int64)
        to_ns = np.array([work.end_ns[r].max() for r in ranges], np.int64)
        iterations = Events(
            self._canvas.writer.names([f"iteration {number}" for number in numbers]),
            np.where(known, from_ns, UNKNOWN),
            np.where(known, to_ns, UNKNOWN),
            {"first_launch_id": first, "last_launch_id": last},
        )
        self._draw("iterations", iterations)

    def _draw_memory(self) -> None:
        writer = self._canvas.writer
        for use in memory_use(self._trace, self._rank):
            parent = self._root if use.device is None else self._gpu(use.device)
            track = writer.counter_track(use.what, parent, _MEMORY_DESCRIPTION)
            writer.counter(track, use.time_ns, use.bytes)

    def _draw_host(self, launches: pa.Table, work: Events) -> None:
        calls = replace(
            work,
            start_ns=self._times("launches", "host_ns", launches["host_ns"]),
            end_ns=np.full(len(work.names), UNKNOWN),
            arguments={"launch_id": work.arguments["launch_id"]},
        )
        self._draw("launches on the host", calls)

    def _draw_streams(self, launches: pa.Table, work: Events) -> None:
        """Draw one track for each device, stream and kind of work."""
        kinds, kind_texts = _coded(launches["kind"])
        devices, streams = _integers(launches["device"]), _integers(launches["stream"])
        arguments = self._arguments(launches, work)
        order = np.lexsort((kinds, streams, devices))
        keys = np.stack([kinds, streams, devices])[:, order]
        changes = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        for rows in np.split(order, np.flatnonzero(changes) + 1):
            if not len(rows):
                continue
            kind, stream = kind_texts[kinds[rows[0]]], int(streams[rows[0]])
            label = f"{stream:#x}" if stream >= _FIRST_HANDLE else str(stream)
            self._canvas.draw(
                self._gpu(int(devices[rows[0]])),
                f"stream {label} {_PLURALS.get(kind, kind)}",
                replace(work, arguments=arguments.get(kind, {})).where(rows),
            )

    def _arguments(
        self, launches: pa.Table, work: Events
    ) -> dict[str, dict[str, Ints]]:
        """Return what is worth telling about each kind of work."""
        launch_id = work.arguments["launch_id"]
        names, texts = _coded(launches["name"])
        function = self._canvas.writer.texts([demangle(text) for text in texts])[names]
        moved = {"launch_id": launch_id, "bytes": self._moved_bytes(launch_id)}
        grid = {name: work.arguments[name] for name in _GRID}
        graph = {name: work.arguments[name] for name in ("launch_id", "graph_id")}
        return {
            "kernel": {"launch_id": launch_id, "function": function, **grid},
            "copy": moved,
            "set": moved,
            "graph": graph,
        }

    def _moved_bytes(self, launch_id: Ints) -> Ints:
        accesses = self._table("accesses", ["launch_id", "source", "bytes"])
        source: Any = accesses["source"].cast(pa.string())
        moving = pc.is_in(source, pa.array(["copy", "set"]))
        accesses = accesses.filter(pc.and_(moving, pc.is_valid(accesses["bytes"])))
        moved_bytes = np.full(len(launch_id), UNKNOWN, np.int64)
        # A copy on the GPU has two accesses, and moves as much as either says.
        index = np.searchsorted(launch_id, _integers(accesses["launch_id"]))
        np.maximum.at(moved_bytes, index, _integers(accesses["bytes"]))
        return moved_bytes

    def _draw_unified_memory(self) -> None:
        for table, split_by, name, title, arguments in (
            ("uvm_migrations", "direction", "cause", "UVM migrations, {}", ("bytes",)),
            ("uvm_faults", "processor", "access", "UVM page faults, {}", ("groups",)),
            ("uvm_events", "kind", "kind", "UVM {}", ("bytes",)),
        ):
            events = self._events(table, name, "address", *arguments)
            codes, texts = _coded(self._table(table, [split_by])[split_by])
            for code, text in enumerate(texts):
                self._draw(title.format(text), events.where(codes == code))

    def _draw(self, title: str, events: Events) -> None:
        self._canvas.draw(self._root, title, events)

    def _gpu(self, device: int) -> int:
        if device not in self._gpu_tracks:
            name = self._gpu_names.get(device, "unknown")
            track = self._canvas.writer.track(f"GPU {device}: {name}", self._root)
            self._gpu_tracks[device] = track
        return self._gpu_tracks[device]

    def _table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        return self._trace.table(self._rank, name, columns)

    def _events(self, table: str, name: str, *arguments: str) -> Events:
        rows = self._table(table, [name, "start_ns", "end_ns", *arguments])
        codes, texts = _coded(rows[name])
        start_ns = self._times(table, "start_ns", rows["start_ns"])
        end_ns = self._times(table, "end_ns", rows["end_ns"])
        if ((end_ns < start_ns) & (end_ns != UNKNOWN)).any():
            raise self._damaged(f"{table}: something ends before it starts")
        names = [shorten(demangle(text)) for text in texts]
        return Events(
            self._canvas.writer.names(names)[codes],
            start_ns,
            end_ns,
            {argument: _integers(rows[argument]) for argument in arguments},
        )

    def _times(self, table: str, name: str, column: Any) -> Ints:
        if (pc.min(column).as_py() or 0) < 0:
            raise self._damaged(f"{table}: a time in {name} is negative")
        return _integers(column)

    def _damaged(self, what: str) -> TraceError:
        return TraceError(
            f"{self._trace.path}, rank {self._rank}, contradicts itself: {what}."
        )


def _integers(column: Any) -> Ints:
    if column.null_count:
        column = column.fill_null(pa.scalar(UNKNOWN, column.type))
    return np.asarray(column.to_numpy()).astype(np.int64, copy=False)


def _coded(column: Any) -> tuple[Ints, list[str]]:
    """Return texts as numbers, and the text of each number."""
    codes = column.cast(pa.string()).combine_chunks().dictionary_encode()
    return codes.indices.to_numpy().astype(np.int64), codes.dictionary.to_pylist()
