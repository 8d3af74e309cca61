"""How the shim finds out where in the plan's iteration a job is."""

from __future__ import annotations

import subprocess
from array import array
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import build
from reference_aligner import (
    ANY,
    INSERTED,
    MAX_RUN,
    PLANNED,
    UNLOCKED,
    Launches,
    Reference,
    Step,
)


@dataclass(frozen=True)
class Followed:
    steps: list[Step]
    num_locks: int
    num_unlocks: int
    num_inserted: int
    num_skipped: int
    num_inexact: int

    def where(self) -> list[int]:
        return [step[0] for step in self.steps]


class Follow:
    """Runs the program that lets an aligner follow a job."""

    def __init__(self, program: Path) -> None:
        self.program = program

    def __call__(self, plan: Launches, job: Launches) -> Followed:
        words = array("Q", [len(plan), len(job)])
        for launch in plan + job:
            words.extend(launch)
        done = subprocess.run([self.program], input=words.tobytes(), check=True,
                              capture_output=True)  # fmt: skip
        *steps, counters = (map(int, line.split()) for line in done.stdout.splitlines())
        return Followed([_step(*step) for step in steps], *counters)


def _step(*numbers: int) -> Step:
    where, position, skipped, is_exact, is_new, following = numbers
    return where, position, skipped, is_exact, is_new, following


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory) -> Follow:
    sources = [f"runtime/native/windows/{name}" for name in ("aligner", "runs")]
    folder = tmp_path_factory.mktemp("native")
    return Follow(build("follow_launches", sources, folder))


def iteration(num_launches: int) -> Launches:
    """Layers alike on tensors of their own, then an optimizer's few launches."""
    layers = [(1 + i % 7, 1000 + i) for i in range(num_launches - 5)]
    return layers + [(100, i) for i in range(5)]


def repeated(plan: Launches, start: int, count: int) -> Launches:
    return [plan[(start + i) % len(plan)] for i in range(count)]


launches = st.tuples(st.integers(1, 4), st.one_of(st.integers(0, 3), st.just(ANY)))


@st.composite
def plans(draw: st.DrawFn) -> Launches:
    layer = draw(st.lists(launches, min_size=1, max_size=8))
    num_layers = draw(st.integers(1, 60))
    own = draw(st.integers(0, 1))  # tensors of each layer
    layers = [
        (signature, addresses if addresses == ANY else addresses + own * number)
        for number in range(num_layers)
        for signature, addresses in layer
    ]
    return layers + draw(st.lists(launches, max_size=8))


@st.composite
def jobs(draw: st.DrawFn, plan: Launches) -> Launches:
    """Parts of the plan from anywhere, on its tensors or others, and other launches."""
    parts = []
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(plan) - 1))
        part = repeated(plan, start, draw(st.integers(1, 700)))
        every = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 40]))
        if every:
            part[::every] = [(signature, 999) for signature, _ in part[::every]]
        parts.append(part)
        parts.append(draw(st.lists(launches, max_size=5)) * draw(st.integers(0, 60)))
    return [launch for part in parts for launch in part]


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_every_step_is_as_plainly_said(follow: Follow, data: st.DataObject) -> None:
    plan = data.draw(plans())
    job = data.draw(jobs(plan))
    reference = Reference(plan)
    followed = follow(plan, job)
    for number, (launch, step) in enumerate(zip(job, followed.steps, strict=True)):
        assert step == reference.next(launch), number
        if step[0] == PLANNED:
            assert plan[step[1]][0] == launch[0]


@pytest.mark.parametrize("count", [1, 2, 40, 256, 257, 1000])
@pytest.mark.parametrize("start", [0, 17])
def test_a_job_that_follows_the_plan_locks_and_stays(
    follow: Follow, count: int, start: int
) -> None:
    plan = iteration(count) if count > 5 else [(i, 0) for i in range(count)]
    job = repeated(plan, start, 3 * count + 600)
    followed = follow(plan, job)
    run = min(count, MAX_RUN)
    assert followed.where() == [UNLOCKED] * (run - 1) + [PLANNED] * (len(job) - run + 1)
    planned = [step[1] for step in followed.steps[run - 1 :]]
    assert planned == [(start + run - 1 + i) % count for i in range(len(planned))]
    assert all(step[3] for step in followed.steps[run - 1 :])
    assert (followed.num_locks, followed.num_unlocks) == (1, 0)


def test_launches_more_and_launches_less_keep_it_locked(follow: Follow) -> None:
    plan = iteration(1000)
    job = plan + plan[:500] + [(50, i) for i in range(200)] + plan[530:] + plan
    followed = follow(plan, job)
    assert (followed.num_locks, followed.num_unlocks) == (1, 0)
    assert (followed.num_inserted, followed.num_skipped) == (200, 30)
    assert followed.steps[-1] == (PLANNED, 999, 0, 1, 0, 0)


def test_an_evaluation_on_other_tensors_is_not_taken_for_a_step(follow: Follow) -> None:
    plan = iteration(1000)
    evaluation = [(signature, address + 5000) for signature, address in plan]
    followed = follow(plan, plan + evaluation + plan)
    where = followed.where()
    assert where[1000:1063] == [PLANNED] * 63
    # From where nine in ten of the last 256 are the plan's again.
    assert where[1063:2230] == [UNLOCKED] * (2230 - 1063)
    assert where[2230:] == [PLANNED] * 770
    assert followed.num_inexact == 64


def test_a_few_launches_on_other_tensors_do_not_keep_it_from_locking(
    follow: Follow,
) -> None:
    plan = iteration(1000)
    job = [(s, 7) if i % 20 == 3 else (s, a) for i, (s, a) in enumerate(plan)]
    followed = follow(plan, job * 2)
    assert (followed.num_locks, followed.num_unlocks) == (1, 0)
    assert followed.steps[-1] == (PLANNED, 999, 0, 1, 0, 0)
    assert followed.num_inexact == 50


def test_a_last_batch_of_another_shape_is_left_alone(follow: Follow) -> None:
    plan = iteration(1000)
    other = [(signature + 1000, address) for signature, address in plan]
    followed = follow(plan, plan + other + plan)
    assert PLANNED not in followed.where()[1000:2000]
    assert followed.where()[2255:] == [PLANNED] * 745


def test_a_restart_is_found_within_a_run(follow: Follow) -> None:
    plan = [(i, 7) for i in range(1000)]
    followed = follow(plan, plan + plan[:500] + plan)
    assert set(followed.where()[1500:1755]) == {INSERTED}
    assert followed.steps[1755] == (PLANNED, 255, 0, 1, 1, 256)
    assert followed.steps[-1] == (PLANNED, 999, 0, 1, 0, 0)
    assert (followed.num_locks, followed.num_unlocks) == (2, 1)


def test_a_restart_among_layers_alike_is_found_once_too_few_addresses_fit(
    follow: Follow,
) -> None:
    plan = iteration(1000)
    followed = follow(plan, plan + plan[:500] + plan)
    assert followed.num_inexact == 64
    first = followed.where().index(UNLOCKED, 1500)
    assert first < 1500 + 70
    assert followed.where()[first + 1 : first + 257] == [UNLOCKED] * 255 + [PLANNED]
    assert followed.steps[first + 256][1] == first + 256 - 1500
    assert followed.steps[-1] == (PLANNED, 999, 0, 1, 0, 0)


def test_what_repeats_in_an_iteration_locks_where_it_is_told_apart(
    follow: Follow,
) -> None:
    batch = [(1 + i % 7, i) for i in range(700)]
    plan = batch * 4 + [(100, i) for i in range(20)]
    followed = follow(plan, repeated(plan, 300, 2 * len(plan)))
    first = followed.where().index(PLANNED)
    assert followed.steps[first][:2] == (PLANNED, 4 * 700)
    assert PLANNED not in followed.where()[:first]
    assert (followed.num_locks, followed.num_unlocks) == (1, 0)


def test_graphs_are_told_by_their_signatures_alone(follow: Follow) -> None:
    plan = [*iteration(300), (9, ANY)]
    followed = follow(plan, plan * 3)
    assert followed.steps[-1] == (PLANNED, 300, 0, 1, 0, 0)
    job = [*iteration(300), (9, 12345)] * 3
    assert follow(plan, job).steps[-1] == (PLANNED, 300, 0, 1, 0, 0)
