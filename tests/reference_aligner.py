"""What an aligner is to do, as plainly as it can be said."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

UNLOCKED, PLANNED, INSERTED = range(3)
ANY = 2**64 - 1
MAX_RUN = 256

Launch = tuple[int, int]  # signature, addresses
Launches = list[Launch]
# where, position, skipped, is exact, is newly locked, the next position
Step = tuple[int, int, int, int, int, int]


def equal(planned: Launch, launch: Launch) -> bool:
    return planned[0] == launch[0] and planned[1] in (launch[1], ANY)


@dataclass
class Reference:
    """Where a job is in its plan."""

    plan: Launches
    is_locked: bool = False
    position: int = 0
    run: Launches = field(default_factory=list)
    num_inserted: int = 0
    exactness: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.length = min(len(self.plan), MAX_RUN)
        self.ends: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for end in range(len(self.plan)):
            self.ends[tuple(s for s, _ in self.planned_run(end))].append(end)

    def planned_run(self, end: int) -> Launches:
        return [self.plan[end - i] for i in reversed(range(self.length))]

    def next(self, launch: Launch) -> Step:
        if not self.is_locked:
            return self.search(launch)
        distances = [0] if self.plan[self.position][0] == launch[0] else []
        distances += [
            distance
            for distance in range(1, min(65, len(self.plan)))
            if equal(self.plan[(self.position + distance) % len(self.plan)], launch)
        ]
        return self.take(distances[0], launch) if distances else self.insert(launch)

    def search(self, launch: Launch) -> Step:
        self.run = [*self.run, launch][-self.length :]
        end = self.end_of_run() if len(self.run) == self.length else None
        if end is None:
            return UNLOCKED, self.position, 0, 0, 0, self.position
        self.is_locked, self.run, self.num_inserted = True, [], 0
        self.exactness = []
        self.position = (end + 1) % len(self.plan)
        return PLANNED, end, 0, int(equal(self.plan[end], launch)), 1, self.position

    def end_of_run(self) -> int | None:
        ends = self.ends.get(tuple(signature for signature, _ in self.run), [])
        exact = [
            [equal(*pair) for pair in zip(self.planned_run(end), self.run, strict=True)]
            for end in ends
        ]
        whole = [end for end, equals in zip(ends, exact, strict=True) if all(equals)]
        if len(whole) == 1:
            return whole[0]
        if len(ends) == 1 and sum(exact[0]) * 10 >= self.length * 9:
            return ends[0]
        return None

    def insert(self, launch: Launch) -> Step:
        step = self.search(launch)
        if step[0] == PLANNED:
            return step
        self.num_inserted += 1
        self.is_locked = self.num_inserted < 256
        if self.is_locked:
            return INSERTED, *step[1:]
        self.num_inserted = 0
        return step

    def take(self, distance: int, launch: Launch) -> Step:
        position = (self.position + distance) % len(self.plan)
        self.position = (position + 1) % len(self.plan)
        self.run, self.num_inserted = [], 0
        is_exact = equal(self.plan[position], launch)
        self.exactness = [*self.exactness, is_exact][-128:]
        if not is_exact and self.exactness.count(False) >= 64:
            self.is_locked = False
            return UNLOCKED, self.position, 0, 0, 0, self.position
        return PLANNED, position, distance, int(is_exact), 0, self.position
