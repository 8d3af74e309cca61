"""Made-up iterations with made-up windows, and jobs that do not quite keep to them."""

from __future__ import annotations

import copy as copies
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from reference_aligner import ANY, PLANNED, Launch, Reference
from reference_aligner import Step as Aligned
from shim_job import NEVER, PIECE
from windowed_plans import (
    LOADS,
    WRITES_BACK,
    Part,
    Step,
    Window,
    WindowedJob,
    alloc,
    copy,
    download,
    fill,
    free,
    order,
    scale,
    upload,
    with_stale,
    zero,
)

GRAPH: Launch = (0, ANY)  # whatever it does
MAX_SEED = 10**6


def reads(step: Step) -> list[Part]:
    return [part for key, part in step.items() if key == "source"]


def writes(step: Step) -> list[Part]:
    return [part for key, part in step.items() if key == "to"]


def overlaps(one: Part, other: Part) -> bool:
    return (
        one[0] == other[0]
        and one[1] < other[1] + other[2]
        and other[1] < one[1] + one[2]
    )


def overwrites(step: Step, part: Part) -> bool:
    """Tell whether nothing is left of what a part held."""
    return not any(overlaps(part, source) for source in reads(step)) and any(
        overlaps(part, to) and to[1] <= part[1] and part[1] + part[2] <= to[1] + to[2]
        for to in writes(step)
    )


def is_alike(one: Step, other: Step) -> bool:
    return all(one.get(key) == other.get(key) for key in ("op", "to", "source"))


# Iterations


def random_range(random: Random, pieces: Sequence[int], most: int) -> Part:
    buffer = random.randrange(len(pieces))
    count = random.randint(1, min(most, pieces[buffer]))
    return buffer, random.randint(0, pieces[buffer] - count), count


def random_step(random: Random, pieces: Sequence[int], stream: int) -> Step:
    """One launch, which reads and writes some memory that lies side by side or not."""
    to = random_range(random, pieces, 2)
    fitting = [
        (buffer, first, to[2])
        for buffer, count in enumerate(pieces)
        for first in range(count - to[2] + 1)
    ]
    source = random.choice([s for s in fitting if s == to or not overlaps(s, to)])
    factor = random.uniform(0.9, 1.1)
    step = random.choice(
        [scale(to, source, factor, stream)] * 6
        + [copy(to, source, stream)] * (2 * (source != to))
        + [upload(to, random.randrange(MAX_SEED), stream), fill(to, factor, stream)]
        + [zero(to, stream)]
    )
    if step["op"] == "scale" and random.random() < 0.1:
        return with_stale(step, random_range(random, pieces, 1))
    return step


def renewed(step: Step, random: Random) -> Step:
    """Return the same launch, with another number."""
    numbers: dict[str, Callable[[], float]] = {
        "value": lambda: random.uniform(0.9, 1.1),
        "seed": lambda: random.randrange(MAX_SEED),
    }
    return step | {key: new() for key, new in numbers.items() if key in step}


# Windows


@dataclass(frozen=True)
class Touch:
    """What a launch does to a part."""

    position: int
    writes: bool
    overwrites: bool


def touches_of(part: Part, iteration: Sequence[Step]) -> list[Touch]:
    return [
        Touch(
            position,
            any(overlaps(part, to) for to in writes(step)),
            overwrites(step, part),
        )
        for position, step in enumerate(iteration)
        if any(overlaps(part, used) for used in reads(step) + writes(step))
    ]


def random_windows(
    random: Random, touches: Sequence[Touch], num_launches: int
) -> list[Window]:
    """Let some touches find a part on the GPU, the others in host memory."""
    start = random.randrange(len(touches))
    touches = [*touches[start:], *touches[:start]]
    groups: list[list[Touch]] = []
    at_home: list[bool] = []
    for touch in touches:
        is_home = random.random() < 0.25
        if groups and not is_home and not at_home[-1] and random.random() < 0.7:
            groups[-1].append(touch)
        else:
            groups.append([touch])
            at_home.append(is_home)
    if all(at_home):
        at_home[random.randrange(len(groups))] = False
    ends: list[int] = []  # of each group, as a position
    for index, group in enumerate(groups):
        following = groups[(index + 1) % len(groups)][0]
        room = (following.position - group[-1].position - 1) % num_launches
        late = random.randint(0, room) if random.random() < 0.3 else 0
        ends.append((group[-1].position + late * (not at_home[index])) % num_launches)
    windows = []
    for index, group in enumerate(groups):
        if at_home[index]:
            continue
        after = (index + 1) % len(groups)
        windows.append(
            _window(
                random,
                group,
                last=ends[index],
                before=ends[index - 1],
                following=groups[after][0],
                home=groups[after][0].position if at_home[after] else NEVER,
                num_launches=num_launches,
            )
        )
    return sorted(windows, key=lambda window: window.first)


def _window(
    random: Random,
    group: Sequence[Touch],
    *,
    last: int,
    before: int,
    following: Touch,
    home: int,
    num_launches: int,
) -> Window:
    first = group[0].position
    is_loaded = not group[0].overwrites or random.random() < 0.2
    ahead = random.randint(0, (first - before - 1) % num_launches)
    written = [touch.position for touch in group if touch.writes]
    is_stored = bool(written) and (not following.overwrites or random.random() < 0.2)
    late = random.randint(0, (last - written[-1]) % num_launches) if is_stored else 0
    return Window(
        issue=(first - ahead * is_loaded) % num_launches,
        first=first,
        last=last,
        written=(written[-1] + late) % num_launches if is_stored else last,
        flags=LOADS * is_loaded | WRITES_BACK * is_stored,
        home=home,
    )


def random_job(random: Random) -> WindowedJob:
    """Some buffers, an iteration on two streams, windows, and just enough memory.

    The iteration does not use the buffers that are not there from the start.
    """
    pieces = [random.randint(1, 3) for _ in range(random.randint(3, 5))]
    late = [random.randint(1, 2) for _ in range(random.randint(0, 2))]
    iteration = [
        random_step(random, pieces, int(random.random() < 0.25))
        for _ in range(random.randint(3, 10))
    ]
    windows: dict[Part, list[Window]] = {}
    for part in _parts(random, pieces):
        touches = touches_of(part, iteration)
        if touches and random.random() < 0.75:
            windows[part] = random_windows(random, touches, len(iteration))
    for buffer, count in enumerate(late, len(pieces)):
        # Used by nothing, it comes and goes all the same.
        first = random.randrange(len(iteration))
        windows[buffer, 0, count] = [
            Window(first, first, first, first, LOADS | WRITES_BACK, home=NEVER)
        ]
    total = [*pieces, *late]
    held = most_held(windows, len(iteration))
    resident = sum(total) - sum(part[2] for part in windows)
    budget = (resident + held + random.choice([0, 0, 1, 4])) * PIECE
    return WindowedJob(total, iteration, windows, budget, len(pieces))


def _parts(random: Random, pieces: Sequence[int]) -> Iterator[Part]:
    for buffer, count in enumerate(pieces):
        cut = random.choice([count, random.randint(1, count)])
        yield buffer, 0, cut
        if cut < count:
            yield buffer, cut, count - cut


def most_held(windows: dict[Part, list[Window]], num_launches: int) -> int:
    """Return how many pieces are on the GPU at most at one launch."""
    held = [0] * num_launches
    for part, own in windows.items():
        for window in own:
            length = (window.last - window.first) % num_launches + 1
            for at in range(length):
                held[(window.first + at) % num_launches] += part[2]
    return max(held)


# Jobs


@dataclass
class Wanderer:
    """Makes the steps of a job that reads only what a plan lets it.

    By the plan some memory is dead after a launch. When that has come, as it is
    planned, the memory is not read again before it is overwritten.
    """

    job: WindowedJob
    random: Random
    steps: list[Step] = field(default_factory=list)
    dead: set[Part] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.numbers: dict[frozenset[int], int] = {frozenset(): 0}
        planned = [self._launch(step) for step in self.job.iteration]
        self.aligner = Reference(planned)
        count = self.job.num_allocated or 0
        self.alive = set(range(count))
        self.num_allocated = count
        # Which streams read and wrote a piece since they waited for each other.
        self.used: dict[tuple[int, int], list[tuple[int, bool]]] = {}
        for buffer in sorted(self.alive):
            self.aligner.next(self._launch(self._filling(buffer)))

    def _filling(self, buffer: int) -> Step:
        return upload((buffer, 0, self.job.pieces[buffer]), buffer)

    def _launch(self, step: Step) -> Launch:
        signature, addresses = self.job.launch(step)
        number = self.numbers.setdefault(frozenset(addresses), len(self.numbers))
        return signature, number

    def do(self, step: Step) -> None:
        """Do a step, if the plan can tell what it is."""
        used = reads(step) + writes(step) + [p for k, p in step.items() if k == "stale"]
        if any(buffer not in self.alive for buffer, *_ in used):
            return
        for part in sorted(self.dead):
            if any(overlaps(part, source) for source in reads(step)):
                self._revive(part)
                if part in self.dead:
                    return
        aligner = copies.copy(self.aligner)
        where, position, *_ = aligned = aligner.next(self._launch(step))
        is_planned = where == PLANNED and self._is_known(step, aligned)
        if is_planned and not is_alike(step, self.job.iteration[position]):
            return  # it looks like another one
        self.aligner = aligner
        self._wait_for_other_stream(step)
        self.steps.append(step)
        self.dead -= {part for part in self.dead if overwrites(step, part)}
        if is_planned:
            self.dead |= self._dead_after(position)

    def _revive(self, part: Part) -> None:
        """Overwrite what is dead, by what is not one of the plan's, if that can be."""
        for step in (
            upload(part, self.random.randrange(MAX_SEED)),
            fill(part, self.random.uniform(0.5, 1)),
            zero(part),
        ):
            if part in self.dead:
                self.do(step)

    def _is_known(self, step: Step, aligned: Aligned) -> bool:
        _, position, _, is_exact, *_ = aligned
        _, planned = self.job.launch(self.job.iteration[position])
        _, named = self.job.launch(step)
        return bool(is_exact) or set(planned) <= set(named)

    def _dead_after(self, position: int) -> set[Part]:
        return {
            part
            for part, windows in self.job.windows.items()
            for window in windows
            if window.last == position and not window.flags & WRITES_BACK
            if self._is_written_in(part, window)
        }

    def _is_written_in(self, part: Part, window: Window) -> bool:
        count = len(self.job.iteration)
        length = (window.last - window.first) % count
        return any(
            touch.writes and (touch.position - window.first) % count <= length
            for touch in touches_of(part, self.job.iteration)
        )

    def _wait_for_other_stream(self, step: Step) -> None:
        stream = step["stream"]
        uses = [
            ((buffer, piece), is_write)
            for parts, is_write in ((reads(step), False), (writes(step), True))
            for buffer, first, count in parts
            for piece in range(first, first + count)
        ]
        if any(
            other != stream and (is_write or was_write)
            for piece, is_write in uses
            for other, was_write in self.used.get(piece, [])
        ):
            self._let_streams_wait(stream)
        for piece, is_write in uses:
            self.used.setdefault(piece, []).append((stream, is_write))

    def _let_streams_wait(self, stream: int) -> None:
        if self.random.random() < 0.2:
            self.steps.append({"op": "synchronize"})
            self.used.clear()
            return
        self.steps.append(order(stream))
        for piece, uses in self.used.items():
            self.used[piece] = [use for use in uses if use[0] == stream]

    # What jobs do

    def lap(self) -> None:
        """Do the iteration, mostly."""
        steps = [renewed(step, self.random) for step in self.job.iteration]
        deviation = self.random.choice(
            [
                *[self.as_planned] * 6,
                *[self.with_insertions] * 2,
                *[self.with_gaps] * 2,
                self.with_repeats,
                self.in_other_order,
                self.elsewhere,
                self.broken_off,
                self.with_evaluation,
                self.with_memory_changed,
                self.with_graph,
            ]
        )
        deviation(steps)
        if self.random.random() < 0.1:
            self.look()

    def as_planned(self, steps: list[Step]) -> None:
        for step in steps:
            self.do(step)

    def with_insertions(self, steps: list[Step]) -> None:
        for step in steps:
            while self.random.random() < 0.3:
                self.do(self.other_step())
            self.do(step)

    def other_step(self) -> Step:
        if self.random.random() < 0.4:
            return renewed(self.random.choice(self.job.iteration), self.random)
        if self.random.random() < 0.2:
            return download(random_range(self.random, self.job.pieces, 3))
        return random_step(self.random, self.job.pieces, self.random.randrange(2))

    def with_gaps(self, steps: list[Step]) -> None:
        self.as_planned([step for step in steps if self.random.random() < 0.7])

    def with_repeats(self, steps: list[Step]) -> None:
        self.as_planned(
            [s for s in steps for _ in range(self.random.choice([1, 1, 2]))]
        )

    def in_other_order(self, steps: list[Step]) -> None:
        at = self.random.randrange(len(steps))
        self.as_planned([*steps[:at], *reversed(steps[at:])])

    def elsewhere(self, steps: list[Step]) -> None:
        """Do one of the launches on other memory."""
        at = self.random.randrange(len(steps))
        others = (self.other_step() for _ in range(100))
        alike = [step for step in others if step["op"] == steps[at]["op"]]
        self.as_planned([*steps[:at], *alike[:1], *steps[at + 1 :]])

    def broken_off(self, steps: list[Step]) -> None:
        self.as_planned(steps[: self.random.randrange(len(steps))])

    def with_evaluation(self, steps: list[Step]) -> None:
        at = self.random.randrange(len(steps))
        self.as_planned(steps[:at])
        kinds = [self.other_step() for _ in range(self.random.randint(1, 6))]
        for _ in range(self.random.choice([1, 5, 60])):
            self.as_planned([renewed(step, self.random) for step in kinds])
        self.as_planned(steps[at:])

    def with_memory_changed(self, steps: list[Step]) -> None:
        at = self.random.randrange(len(steps))
        self.as_planned(steps[:at])
        if self.num_allocated < len(self.job.pieces):
            buffer = self.num_allocated
            self.num_allocated += 1
            self.alive.add(buffer)
            self.steps += [{"op": "synchronize"}, alloc(buffer)]
            self.used.clear()
            self.aligner.next(self._launch(self._filling(buffer)))
        elif len(self.alive) > 2:
            buffer = self.random.choice(sorted(self.alive))
            self.alive.remove(buffer)
            self.dead -= {part for part in self.dead if part[0] == buffer}
            self.steps += [{"op": "synchronize"}, free(buffer)]
            self.used.clear()
        self.as_planned(steps[at:])

    def with_graph(self, steps: list[Step]) -> None:
        at = self.random.randrange(len(steps))
        self.as_planned(steps[:at])
        nodes = [random_step(self.random, self.job.pieces, 0) for _ in range(2)]
        nodes = [
            node
            for node in nodes
            if node["op"] in ("scale", "copy", "fill")
            and all(
                part[0] in self.alive and not any(overlaps(part, d) for d in self.dead)
                for key, part in node.items()
                if key in ("to", "source", "stale")
            )
        ]
        if nodes:
            self.steps.append({"op": "synchronize"})
            self.used.clear()
            self.aligner.next(GRAPH)
            self.steps.append({"op": "capture", "steps": nodes})
            self.steps.append({"op": "synchronize"})
        self.as_planned(steps[at:])

    def look(self) -> None:
        """Read everything that is not dead."""
        for buffer in sorted(self.alive):
            for piece in range(self.job.pieces[buffer]):
                part = buffer, piece, 1
                if not any(overlaps(part, dead) for dead in self.dead):
                    self.do(download(part))

    def end(self) -> None:
        """Leave nothing that must not be read."""
        for part in sorted(self.dead):
            self._revive(part)
        self.steps.append({"op": "synchronize"})
        self.steps += [free(buffer) for buffer in sorted({b for b, *_ in self.dead})]


def random_steps(job: WindowedJob, random: Random, num_laps: int) -> list[Step]:
    """Return the steps of a job of some laps."""
    wanderer = Wanderer(job, random)
    for _ in range(3):
        wanderer.as_planned([renewed(step, random) for step in job.iteration])
    for _ in range(num_laps):
        wanderer.lap()
    wanderer.end()
    return wanderer.steps
