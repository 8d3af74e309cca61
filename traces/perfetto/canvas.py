"""Draws events as tracks: as many as it takes for none to overlap on one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from transit.traces.perfetto.lanes import assign_lanes
from transit.traces.perfetto.track_event import TrackEventWriter

Ints = npt.NDArray[np.int64]

UNKNOWN = -1  # in place of a missing time or argument; none is negative


@dataclass
class Exported:
    """What an export holds, in events, and what had to be left out."""

    slices: int = 0
    instants: int = 0
    untimed: int = 0
    """Nobody knows when they happened."""


@dataclass(frozen=True)
class Events:
    """Things that happened, in any order."""

    names: Ints
    start_ns: Ints
    end_ns: Ints  # unknown if it is not known to have lasted
    arguments: dict[str, Ints] = field(default_factory=dict)
    flows: Ints | None = None

    def where(self, rows: npt.NDArray[Any]) -> Events:
        """Return some of the events, by a mask or by their places."""
        return Events(
            self.names[rows],
            self.start_ns[rows],
            self.end_ns[rows],
            {name: values[rows] for name, values in self.arguments.items()},
            None if self.flows is None else self.flows[rows],
        )

    def by_known_arguments(self) -> Iterator[Events]:
        """Split into groups; all events of one group have the same arguments."""
        for name, values in self.arguments.items():
            known = values != UNKNOWN
            if not known.all():
                yield from self.where(known).by_known_arguments()
                rest = {k: v for k, v in self.arguments.items() if k != name}
                yield from (
                    replace(self, arguments=rest).where(~known).by_known_arguments()
                )
                return
        yield self


class Canvas:
    """Draws events as tracks, and counts them."""

    def __init__(self, writer: TrackEventWriter) -> None:
        self.writer = writer
        self.exported = Exported()

    def draw(self, parent: int, title: str, events: Events) -> None:
        """Draw events below a track, on as many tracks of one title as it takes."""
        timed = events.start_ns != UNKNOWN
        self.exported.untimed += int((~timed).sum())
        lasting = timed & (events.end_ns != UNKNOWN)
        for group in events.where(lasting).by_known_arguments():
            self._draw_slices(parent, title, group)
        for group in events.where(timed & ~lasting).by_known_arguments():
            self._draw_instants(parent, title, group)

    def _draw_slices(self, parent: int, title: str, events: Events) -> None:
        # What begins first; at one time, what takes no time.
        ordered = events.where(np.lexsort((events.end_ns, events.start_ns)))
        lanes = assign_lanes(ordered.start_ns, ordered.end_ns)
        num_lanes = int(lanes.max(initial=-1)) + 1
        tracks = [self.writer.track(title, parent) for _ in range(num_lanes)]
        self.writer.slices(
            np.array(tracks, np.int64)[lanes],
            ordered.names,
            ordered.start_ns,
            ordered.end_ns,
            ordered.arguments,
            ordered.flows,
        )
        self.exported.slices += len(lanes)

    def _draw_instants(self, parent: int, title: str, events: Events) -> None:
        if not len(events.start_ns):
            return
        self.writer.instants(
            self.writer.track(title, parent),
            events.names,
            events.start_ns,
            events.arguments,
            events.flows,
        )
        self.exported.instants += len(events.start_ns)
