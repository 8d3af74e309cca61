"""Flat plans with windows for jobs of a few steps, and running them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from shim_job import (
    MIB,
    NEVER,
    PIECE,
    RESIDENT,
    WINDOWED,
    Job,
    Launch,
    Range,
    flat_plan,
)

from transit.runtime.status import ProcessStatus
from transit.traces.signatures import signatures

STEPS_JOB = Path(__file__).with_name("steps_job.py")
LOADS, WRITES_BACK = 1, 2

Part = tuple[int, int, int]  # buffer, first piece, number of pieces
Step = dict[str, Any]


class Window(NamedTuple):
    """As FlatWindow, without its range."""

    issue: int
    first: int
    last: int
    written: int
    flags: int
    home: int = NEVER


# name and kind of the launches that steps make
LAUNCHES = {
    "scale": ("scale", 1),
    "fill": ("fill", 1),
    "copy": ("cuMemcpyDtoDAsync_v2", 2),
    "upload": ("cuMemcpyHtoDAsync_v2", 2),
    "zero": ("cuMemsetD32Async", 3),
    "download": ("cuMemcpyDtoH_v2", 2),
}


NAMING = ("to", "source", "stale")


def scale(to: Part, source: Part, value: float = 1.25, stream: int = 0) -> Step:
    return {"op": "scale", "to": to, "source": source, "value": value, "stream": stream}


def with_stale(step: Step, part: Part) -> Step:
    """Let a kernel name a part in a word that it does not look at."""
    return step | {"stale": part}


def copy(to: Part, source: Part, stream: int = 0) -> Step:
    return {"op": "copy", "to": to, "source": source, "stream": stream}


def zero(to: Part, stream: int = 0) -> Step:
    return {"op": "zero", "to": to, "stream": stream}


def fill(to: Part, value: float, stream: int = 0) -> Step:
    return {"op": "fill", "to": to, "value": value, "stream": stream}


def upload(to: Part, seed: int, stream: int = 0) -> Step:
    return {"op": "upload", "to": to, "seed": seed, "stream": stream}


def download(source: Part, stream: int = 0) -> Step:
    return {"op": "download", "source": source, "stream": stream}


def order(stream: int) -> Step:
    return {"op": "order", "stream": stream}


def alloc(buffer: int) -> Step:
    return {"op": "alloc", "buffer": buffer}


def free(buffer: int) -> Step:
    return {"op": "free", "buffer": buffer}


@cache
def signature(name: str, kind: int) -> int:
    shape = [1] * 6 if kind == 1 else [0] * 6
    names = pa.array([name]).dictionary_encode()
    return int(signatures(names, [np.array([n]) for n in [kind, *shape]])[0])


@dataclass(frozen=True)
class WindowedJob:
    """Buffers of some pieces each, an iteration, and the windows of its parts.

    What has no window is resident. The first `num_allocated` buffers are there from the
    start, all if None. `words` are where in their parameters kernels have addresses; of
    a kernel that is not there it is not known. `steps` are those of the iteration.
    """

    pieces: Sequence[int]
    iteration: Sequence[Step]
    windows: Mapping[Part, Sequence[Window]]
    gpu_memory_bytes: int = 64 * MIB
    num_allocated: int | None = None
    words: Mapping[str, Sequence[int]] = field(default_factory=dict)
    steps: int = 1

    def plan(self) -> bytes:
        planned, windows, num_ranges = [], [], 0
        for buffer, num_pieces in enumerate(self.pieces):
            ranges = self._ranges(buffer, num_pieces)
            for index, (offset, size, _) in enumerate(ranges, num_ranges):
                part = buffer, offset // PIECE, size // PIECE
                windows += [(index, *window) for window in self.windows.get(part, ())]
            num_ranges += len(ranges)
            planned.append((buffer, num_pieces * PIECE, ranges))
        return flat_plan(
            planned,
            addresses=dict(enumerate(self._offsets())),
            windows=windows,
            launches=[self.launch(s) for s in self.iteration if s["op"] in LAUNCHES],
            words={signature(*LAUNCHES[k]): own for k, own in self.words.items()},
            gpu_memory_bytes=self.gpu_memory_bytes,
            steps=self.steps,
        )

    def _offsets(self) -> list[int]:
        return [int(end) * PIECE for end in np.cumsum([0, *self.pieces])[:-1]]

    def _ranges(self, buffer: int, num_pieces: int) -> list[Range]:
        own = sorted(part for part in self.windows if part[0] == buffer)
        ranges: list[Range] = []
        end = 0
        for _, first, count in own:
            if first > end:
                ranges.append((end * PIECE, (first - end) * PIECE, RESIDENT))
            ranges.append((first * PIECE, count * PIECE, WINDOWED))
            end = first + count
        if end < num_pieces:
            ranges.append((end * PIECE, (num_pieces - end) * PIECE, RESIDENT))
        return ranges

    def launch(self, step: Step) -> Launch:
        """Return what a step looks like in a plan."""
        parts = {tuple(step[key]) for key in NAMING if key in step}
        offsets = self._offsets()
        named = {offsets[buffer] + first * PIECE for buffer, first, _ in parts}
        return signature(*LAUNCHES[step["op"]]), named

    def run(
        self,
        job: Job,
        folder: Path,
        steps: Sequence[Step],
        env: Mapping[str, str] | None = None,
    ) -> ProcessStatus:
        """Do the steps with the plan and without: all that is read must be equal."""
        program = folder / "steps.json"
        allocated = (
            len(self.pieces) if self.num_allocated is None else self.num_allocated
        )
        description = {"pieces": self.pieces, "allocated": allocated, "steps": steps}
        program.write_text(json.dumps(description))
        plain, _ = job(str(STEPS_JOB), str(program))
        replayed, [status] = job(
            str(STEPS_JOB), str(program), plan=self.plan(), env=env
        )
        assert json.loads(replayed.stdout) == json.loads(plain.stdout)
        return status


def laps(iteration: Sequence[Step], count: int) -> list[Step]:
    """Repeat an iteration, each time with other numbers."""
    return [_changed(step, lap) for lap in range(count) for step in iteration]


def _changed(step: Step, lap: int) -> Step:
    changes = {"value": lambda v: v + lap / 64, "seed": lambda s: s + 1000 * lap}
    return step | {k: f(step[k]) for k, f in changes.items() if k in step}
