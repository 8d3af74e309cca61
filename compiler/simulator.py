"""A step of a job under a schedule, in time: launches, transfers, and waits.

Launches run one after the other. Transfers run beside them, one at a time each way, in
the order in which they are due or were released; each takes its memory when it begins
and gives it back when it ends. Before the one and after the other addresses change what
they mean, where that takes time one chunk after the other. A launch waits until what it
needs is on the GPU and there is memory for what comes into being with it. The budget is
never exceeded: what does not fit waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import cycle, islice

import numpy as np

from transit.compiler.arrays import Bools, Floats, Ints
from transit.compiler.link import CHUNK_PIECES, Link
from transit.compiler.model import Model
from transit.compiler.schedule import NEVER, Schedule
from transit.compiler.segments import Segments

MAX_CHUNKS = 8000
IDLE = -1
# How many loads are looked at for one that can begin.
MAX_AHEAD = 128
MAX_STEPS = 8
STEADY = 1e-3


@dataclass(frozen=True)
class Simulated:
    """A steady step as the model sees it.

    `issue` is, for each window, the position at which its load began. `timeline` tells
    of the step's segments: stretches of launches between which windows begin and end.
    """

    step_ns: float
    issue: Ints
    loaded_pieces: int
    stored_pieces: int
    peak_pieces: int
    timeline: Timeline


@dataclass(frozen=True)
class Timeline:
    """What happened in each segment, from the one at position 0 on.

    It begins with the launch at `position`, which waited for `stall_ns` from `start_ns`
    on. `used_pieces` are on the GPU when it begins; `loaded_pieces` and `stored_pieces`
    crossed the link until the next.
    """

    position: Ints
    start_ns: Floats
    stall_ns: Floats
    used_pieces: Ints
    loaded_pieces: Ints
    stored_pieces: Ints


class StuckError(Exception):
    """What a schedule waits for never happens, as memory is too short."""


def simulate(model: Model, schedule: Schedule, link: Link) -> Simulated:
    """Run steps until they take the same time.

    Raises
    ------
    StuckError
        If some launch would wait for ever.
    """
    return _Simulation(model, schedule, link).run()


class _Direction:
    """One direction of the link, and the chunk of a window that it copies."""

    def __init__(self, rate: float, both: float, fixed_ns: float) -> None:
        self._alone, self._shared, self._fixed_ns = rate, min(rate, both), fixed_ns
        self._left = self._fixed_left_ns = 0.0
        self.window = IDLE
        self.pieces = 0

    @property
    def is_busy(self) -> bool:
        return self.window != IDLE

    def begin(self, window: int, pieces: int, *, is_first: bool) -> None:
        self.window, self.pieces, self._left = window, pieces, float(pieces)
        self._fixed_left_ns = self._fixed_ns if is_first else 0.0

    def ns_left(self, free: float, *, shared: bool) -> float:
        rate = free * (self._shared if shared else self._alone)
        if not self.is_busy or not rate:
            return np.inf
        return self._fixed_left_ns + self._left / rate

    def advance(self, ns: float, free: float, *, shared: bool) -> None:
        fixed = min(self._fixed_left_ns, ns)
        self._fixed_left_ns -= fixed
        self._left -= (ns - fixed) * free * (self._shared if shared else self._alone)


class _Mapper:
    """Changes what addresses mean, one after the other."""

    def __init__(self) -> None:
        self._left: deque[tuple[float, Callable[[], None]]] = deque()
        self._left_ns = 0.0  # of the first

    def add(self, ns: float, then: Callable[[], None]) -> None:
        if not ns and not self._left:
            then()
            return
        if not self._left:
            self._left_ns = ns
        self._left.append((ns, then))

    def ns_left(self) -> float:
        return self._left_ns if self._left else np.inf

    def advance(self, ns: float) -> None:
        if not self._left:
            return
        self._left_ns -= ns
        while self._left and self._left_ns <= 0:
            _, then = self._left.popleft()
            self._left_ns = self._left[0][0] if self._left else 0.0
            then()


class _Simulation:
    """The state at one moment: what is on the GPU, in flight and waiting."""

    def __init__(self, model: Model, schedule: Schedule, link: Link) -> None:
        self.link, self.mapper = link, _Mapper()
        self.segments = segments = Segments(model, schedule)
        self.windows, self.budget = schedule.windows, model.budget_pieces
        self.load = _Direction(link.load, link.both, link.load_fixed_ns)
        self.store = _Direction(link.store, link.both, link.store_fixed_ns)
        self.chunk = max(CHUNK_PIECES, int(segments.pieces.sum()) // MAX_CHUNKS)
        # What comes into being is there at once, unless it takes time to map memory.
        self.is_awaited = self.windows.load | link.takes_time_to_map
        loads = np.flatnonzero(self.is_awaited)
        order = loads[np.argsort(segments.first[loads], kind="stable")].tolist()
        self.upcoming = cycle(order)
        # Of each window one load waits at a time.
        ahead = min(MAX_AHEAD, len(order))
        self.due = deque(islice(self.upcoming, ahead))
        self.at_first = _grouped(segments.first, len(segments))
        self.at_last = _grouped(segments.last, len(segments))
        self.at_written = _grouped(segments.written, len(segments), self.windows.store)
        self.pieces = segments.pieces.tolist()
        self.to_load = [0] * len(self.windows)  # pieces of each window
        self.left_to_load = [0] * len(self.windows)  # those not there yet
        # Chunks that have their memory, and those of them that wait to be copied.
        self.num_entering = 0
        self.most_entering = 2 if link.takes_time_to_map else 1
        self.mapped: deque[tuple[int, int, bool]] = deque()
        num_parts = int(self.windows.part.max(initial=0)) + 1
        self.is_loaded = [False] * len(self.windows)
        self.is_home = np.ones(num_parts, np.bool_)
        order = np.lexsort((segments.first, self.windows.part))
        self.preceding = _preceding(self.windows.part, order)
        self.latest = np.zeros(num_parts, np.int64)  # window that each part left last
        self.latest[self.windows.part[order]] = order
        # Pieces of windows to store, the first to be released first.
        self.to_store: list[tuple[int, int]] = []
        self.store_left = [0] * len(self.windows)
        self.stored = [0] * len(self.windows)
        self.is_released = [False] * len(self.windows)
        self.to_leave = list(self.pieces)
        self.early = np.zeros(len(segments), np.int64)
        self.segment, self.is_entered, self.now_ns = 0, False, 0.0
        self.issue = segments.start[segments.first]
        self.begin_ns, self.stall_ns = np.zeros((2, len(segments)))
        self.used_at, self.loaded, self.stored_in = np.zeros(
            (3, len(segments)), np.int64
        )
        self.turn = 0
        # Before the first launch, what is on the GPU over the iteration's end is there.
        begun = np.flatnonzero(segments.wraps)
        self.is_home[self.windows.part[begun]] = False
        self.used = int(segments.fixed[0] + segments.pieces[begun].sum())
        self.peak = self.used
        for window in begun[self.windows.store[begun]].tolist():
            if segments.written[window] >= segments.first[window]:
                self._written(window)

    def run(self) -> Simulated:
        """Run whole steps until one takes as long as the one before it."""
        step_ns, count = np.inf, 0
        while True:
            began_ns = self.now_ns
            self.loaded[:], self.stored_in[:] = 0, 0
            self.peak = 0
            for segment in range(len(self.segments)):
                self.segment = segment
                self._run_segment()
            before_ns, step_ns = step_ns, self.now_ns - began_ns
            count += 1
            self.turn += 1
            if abs(step_ns - before_ns) <= STEADY * step_ns or count == MAX_STEPS:
                return Simulated(
                    step_ns=step_ns,
                    issue=self.issue,
                    loaded_pieces=int(self.loaded.sum()),
                    stored_pieces=int(self.stored_in.sum()),
                    peak_pieces=self.peak,
                    timeline=Timeline(
                        position=self.segments.start,
                        start_ns=self.begin_ns - began_ns,
                        stall_ns=self.stall_ns,
                        used_pieces=self.used_at,
                        loaded_pieces=self.loaded,
                        stored_pieces=self.stored_in,
                    ),
                )

    def _run_segment(self) -> None:
        segment = self.segment
        self.begin_ns[segment] = self.now_ns
        self.is_entered = False
        waited_ns = 0.0
        self._begin_transfers()
        while not self._may_enter():
            waited_ns += self._advance(np.inf, 1.0, 1.0)
        self.stall_ns[segment] = waited_ns
        self._enter()
        self.used_at[segment] = self.used
        left = float(self.segments.duration[segment])
        free = self.segments.free_load[segment], self.segments.free_store[segment]
        while left > 0:
            left -= self._advance(left, *free)
        self.early[segment] = 0
        for window in self.at_written[segment]:
            self._written(window)
        for window in self.at_last[segment]:
            self._release(window)

    def _may_enter(self) -> bool:
        segment, born = self.segment, 0
        for window in self.at_first[segment]:
            if not self.is_awaited[window]:
                born += self.pieces[window]
            elif not self.is_loaded[window]:
                return False
        fixed = self.segments.fixed[segment] - self.segments.fixed[segment - 1]
        if segment == 0 and self.now_ns == 0:
            fixed = 0
        return bool(self.used + born + fixed <= self.budget)

    def _enter(self) -> None:
        segment = self.segment
        self.is_entered = True
        if self.now_ns:
            self.used += int(
                self.segments.fixed[segment] - self.segments.fixed[segment - 1]
            )
        for window in self.at_first[segment]:
            if not self.is_awaited[window]:
                self.used += self.pieces[window]
                self.is_home[self.windows.part[window]] = False
        self.peak = max(self.peak, self.used)

    def _written(self, window: int) -> None:
        """Let a window be stored, in the order in which windows are released."""
        last = int(self.segments.last[window])
        turn = self.turn + (self.now_ns > 0 and last < self.segments.written[window])
        heappush(self.to_store, (turn * len(self.segments) + last, window))
        self.store_left[window] = self.pieces[window]

    def _release(self, window: int) -> None:
        self.is_loaded[window] = False
        if self.windows.store[window]:
            self.is_released[window] = True
            self._forget_stored(window)
        else:
            self._leave(window, self.pieces[window])

    def _leave(self, window: int, pieces: int) -> None:
        """Give memory back, a chunk at a time."""
        is_used = self.windows.home[window] != NEVER
        ns = self.link.unmap_ns + is_used * self.link.map_home_ns
        while pieces:
            chunk = min(self.chunk, pieces)
            self.mapper.add(ns * _num_remaps(chunk), partial(self._left, window, chunk))
            pieces -= chunk

    def _left(self, window: int, pieces: int) -> None:
        self.used -= pieces
        self.to_leave[window] -= pieces
        if self.to_leave[window]:
            return
        self.to_leave[window] = self.pieces[window]
        part = self.windows.part[window]
        self.is_home[part] = True
        self.latest[part] = window

    def _advance(self, most_ns: float, free_load: float, free_store: float) -> float:
        """Let time pass until something ends; return how much."""
        both = self.load.is_busy and self.store.is_busy
        load_ns = self.load.ns_left(free_load, shared=both)
        store_ns = self.store.ns_left(free_store, shared=both)
        map_ns = self.mapper.ns_left()
        ns = min(most_ns, load_ns, store_ns, map_ns)
        if ns == np.inf:
            raise StuckError
        self.now_ns += ns
        self.load.advance(ns, free_load, shared=both)
        self.store.advance(ns, free_store, shared=both)
        if load_ns <= ns:
            window, pieces = self.load.window, self.load.pieces
            self.load.window = IDLE
            self.loaded[self.segment] += pieces
            self._entered(window, pieces)
        if store_ns <= ns:
            self._end_store()
        self.mapper.advance(ns)
        if min(load_ns, store_ns, map_ns) <= ns:
            self._begin_transfers()
        return ns

    def _entered(self, window: int, pieces: int) -> None:
        self.num_entering -= 1
        self.left_to_load[window] -= pieces
        self.is_loaded[window] = not self.left_to_load[window]

    def _end_store(self) -> None:
        window, pieces = self.store.window, self.store.pieces
        self.store.window = IDLE
        self.stored_in[self.segment] += pieces
        self.stored[window] += pieces
        if self.is_released[window]:
            self._forget_stored(window)

    def _forget_stored(self, window: int) -> None:
        """Take back the memory of what is stored and released."""
        stored, self.stored[window] = self.stored[window], 0
        is_in_flight = self.store.window == window
        if not self.store_left[window] and not is_in_flight:
            self.is_released[window] = False
        self._leave(window, stored)

    def _begin_transfers(self) -> None:
        if not self.store.is_busy and self.to_store:
            _, window = self.to_store[0]
            left = self.store_left[window]
            pieces = min(self.chunk, left)
            self.store.begin(window, pieces, is_first=left == self.pieces[window])
            self.store_left[window] -= pieces
            if left == pieces:
                heappop(self.to_store)
        while self.num_entering < self.most_entering and self._begin_load():
            pass
        self._begin_copy()

    def _begin_copy(self) -> None:
        if self.mapped and not self.load.is_busy:
            window, pieces, is_first = self.mapped.popleft()
            self.load.begin(window, pieces, is_first=is_first)

    def _begin_load(self) -> bool:
        """Begin the most urgent load whose data is on the host and that has room."""
        for window in self.due:
            is_first = not self.to_load[window]
            part = self.windows.part[window]
            if is_first and not (
                self.is_home[part]
                and self.latest[part] == self.preceding[window]
                and self._is_ready(window)
            ):
                continue
            left = self.to_load[window] or self.pieces[window]
            pieces = min(self.chunk, left)
            if not self._has_room(int(self.segments.first[window]), pieces):
                return False
            if is_first:
                self.is_home[part] = False
                self.left_to_load[window] = left
                self.issue[window] = self.segments.start[self.segment]
            self.to_load[window] = left - pieces
            self.used += pieces
            self.peak = max(self.peak, self.used)
            self.num_entering += 1
            self.mapper.add(
                self.link.map_ns * _num_remaps(pieces),
                partial(self._map, window, pieces, is_first),
            )
            if left == pieces:
                self.due.remove(window)
                self.due.append(next(self.upcoming))
            return True
        return False

    def _map(self, window: int, pieces: int, is_first: bool) -> None:
        if self.windows.load[window]:
            self.mapped.append((window, pieces, is_first))
        else:
            self._entered(window, pieces)

    def _is_ready(self, window: int) -> bool:
        """Tell whether all launches that reach it in place before it are over."""
        ready, count = int(self.segments.ready[window]), len(self.segments)
        if ready == NEVER:
            return True
        left = int(self.segments.last[self.preceding[window]])
        since = (self.segment - left) % count
        if not since and not self.is_entered:
            since = count
        return since >= (ready - left) % count

    def _has_room(self, first: int, pieces: int) -> bool:
        """Tell whether memory is free now, and stays so until the load is due."""
        if self.used + pieces > self.budget:
            return False
        spans = self._until(first)
        limit = self.budget - pieces
        for span in spans:
            if (self.segments.need[span] + self.early[span]).max(initial=0) > limit:
                return False
        for span in spans:
            self.early[span] += pieces
        return True

    def _until(self, first: int) -> list[slice]:
        """Return the segments from now until one, around the iteration."""
        if first >= self.segment:
            return [slice(self.segment, first)]
        return [slice(self.segment, None), slice(0, first)]


def _num_remaps(pieces: int) -> int:
    """Return how often addresses change: what is simulated at once may be more."""
    return -(-pieces // CHUNK_PIECES)


def _preceding(part: Ints, order: Ints) -> Ints:
    """Return the window before each one of the same part, around the iteration."""
    sorted_part = part[order]
    is_first = np.r_[True, sorted_part[1:] != sorted_part[:-1]][: len(part)]
    is_last = np.r_[is_first[1:], True][: len(part)]
    before = np.r_[-1, order[:-1]][: len(part)]
    before[is_first] = order[is_last]
    preceding = np.empty(len(part), np.int64)
    preceding[order] = before
    return preceding


def _grouped(segment: Ints, count: int, which: Bools | None = None) -> list[list[int]]:
    """List the windows of each segment, or some of them."""
    groups: list[list[int]] = [[] for _ in range(count)]
    chosen = np.arange(len(segment)) if which is None else np.flatnonzero(which)
    for window in chosen.tolist():
        groups[segment[window]].append(window)
    return groups
