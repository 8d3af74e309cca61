"""Compile a trace into a plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

from pydantic import ValidationError

from transit._version import __version__
from transit.compiler import iteration as iterations
from transit.compiler import plan as plans
from transit.compiler.alike import groups, share
from transit.compiler.budget import (
    check_budget,
    check_budget_for_windows,
    no_schedule,
)
from transit.compiler.choice import Choice, choose_static, choose_windows
from transit.compiler.compiled import Compiled, GpuResult
from transit.compiler.cost import access_costs
from transit.compiler.files import describe
from transit.compiler.iteration import SteadyIteration
from transit.compiler.labels import Labels
from transit.compiler.lifetimes import read_allocations
from transit.compiler.link import Link
from transit.compiler.liveness import Holders
from transit.compiler.machine import BackendName, MachineProfile
from transit.compiler.model import Model
from transit.compiler.placements import place
from transit.compiler.plan import MAX_BYTES, VERSION, Plan
from transit.compiler.planner import NothingFitsError
from transit.compiler.policies import AUTO, POLICIES
from transit.compiler.problem import Problem
from transit.compiler.provenance import trace_reference
from transit.compiler.regions import find_regions, read_unexplained
from transit.compiler.rivals import predict_rivals
from transit.compiler.submissions import Submissions, find_submissions
from transit.compiler.totals import GpuTotals, predict, totals
from transit.errors import BudgetError, MachineError, TraceError
from transit.traces.check import refuse_contradictions, refuse_without_accesses
from transit.traces.reader import Trace


@dataclass(frozen=True)
class Options:
    """What `compile_trace` is asked for."""

    gpu_memory_bytes: int
    policy: str
    machine: MachineProfile
    backend: BackendName
    compare: bool

    def check(self) -> None:
        """Refuse what no plan can be made for."""
        if self.policy not in (*POLICIES, AUTO):
            names = ", ".join((*POLICIES, AUTO))
            raise BudgetError(f"no policy {self.policy!r}; there are {names}")
        if self.policy == AUTO:
            self.machine.windows(self.backend)
        elif not self.machine.has_zero_copy:
            raise MachineError(
                f"on machine {self.machine.name} kernels cannot reach host memory (its "
                f"profile has no zero_copy_* rates); policy {self.policy} knows no "
                f"other place for what leaves the GPU; --policy {AUTO} does"
            )
        if not 0 < self.gpu_memory_bytes < MAX_BYTES:
            raise BudgetError(
                f"a budget of {self.gpu_memory_bytes} bytes makes no sense; give the "
                "GPU memory that the job may take up, such as 40GiB"
            )


_Compiled = tuple[plans.RankPlan, list[GpuResult]]


def compile_trace(
    trace: Trace,
    *,
    gpu_memory_bytes: int,
    policy: str,
    machine: MachineProfile,
    backend: BackendName = "vmm",
    compare: bool = True,
) -> Plan:
    """Choose a placement for every movable byte of the job.

    Parameters
    ----------
    trace
        The recording.
    gpu_memory_bytes
        What the job may take up on each GPU.
    policy
        `auto`, or one of `transit.compiler.policies.POLICIES`.
    machine
        The rates to reckon with.
    backend
        Which way of enacting plans is reckoned with.
    compare
        Whether to predict what other policies would take, beside `auto`.

    Raises
    ------
    TraceError
        If the trace is damaged or has no steady iteration.
    BudgetError
        If the policy cannot meet the budget.
    MachineError
        If the policy needs what the machine cannot do.
    """
    options = Options(gpu_memory_bytes, policy, machine, backend, compare)
    return compile_job(trace, options).plan


def compile_job(trace: Trace, options: Options) -> Compiled:
    """Do what `compile_trace` does, and keep what is known beside the plan."""
    # First: of a trace without accesses, a share of its memory is a budget of nothing.
    for rank in trace.ranks:
        refuse_without_accesses(trace, rank)
    options.check()
    try:
        return _compile(trace, options)
    except ValidationError as invalid:
        raise TraceError(
            f"{trace.path}: holds what no plan can: {describe(invalid)}"
        ) from None


def _compile(trace: Trace, options: Options) -> Compiled:
    machine = options.machine
    ranks: list[plans.RankPlan] = []
    solved: list[GpuTotals] = []
    results: list[GpuResult] = []
    alike = groups(trace)
    leaders = [group[0] for group in alike]
    compiled = _compile_ranks(trace, leaders, options)
    for group, (rank_plan, gpus) in zip(alike, compiled, strict=True):
        ranks += share(rank_plan, trace, group)
        solved += [gpu.totals for gpu in gpus] * len(group)
        results += gpus
    ranks.sort(key=lambda rank_plan: rank_plan.ranks)
    reference = trace_reference(trace)
    has_rates = reference.gpu_name == machine.gpu_name
    plan = Plan(
        format="transit-plan",
        version=VERSION,
        producer=f"transit {__version__}",
        policy=options.policy,
        gpu_memory_bytes=options.gpu_memory_bytes,
        trace=reference,
        machine=plans.Machine(name=machine.name, fingerprint=machine.fingerprint),
        summary=totals(ranks, solved, has_rates=has_rates),
        prediction=predict(solved) if has_rates else None,
        ranks=tuple(ranks),
    )
    return Compiled(plan, results)


def _compile_ranks(
    trace: Trace, ranks: list[int], options: Options
) -> Iterable[_Compiled]:
    """Compile several ranks: side by side, where each takes long."""
    one = partial(_compile_rank, trace, options=options)
    workers = min(len(ranks), len(os.sched_getaffinity(0)))
    if options.policy != AUTO or workers < 2:
        return map(one, ranks)
    # Started afresh: what pyarrow runs in the background does not survive a fork.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(one, ranks))


def _compile_rank(trace: Trace, rank: int, options: Options) -> _Compiled:
    refuse_contradictions(trace, rank)
    steady = iterations.find(trace, rank)
    allocations: list[plans.Allocation] = []
    results = []
    for device, problem in build_problems(trace, rank, steady, options):
        where = f"rank {rank}, GPU {device}"
        choice, rivals = _choose(trace, rank, steady, problem, options, where)
        labels = Labels.read(trace, rank, problem.allocations)
        allocations += place(problem, choice, steady.busy_ns, labels)
        results.append(
            GpuResult.of(rank, device, problem, choice, rivals, steady.steps)
        )
    submissions = _submissions(trace, rank, steady, allocations)
    rank_plan = plans.RankPlan(
        ranks=(rank,),
        iteration=plans.Iteration(
            launches=steady.num_launches,
            steps=steady.steps,
            signature=steady.fingerprint,
            found_by=steady.found_by,
            confidence=round(steady.confidence, 4),
            sequence=submissions and submissions.sequence.encode(),
            unsteady_calls=submissions and submissions.num_unsteady,
        ),
        allocations=tuple(allocations),
    )
    return rank_plan, results


def _submissions(
    trace: Trace,
    rank: int,
    steady: SteadyIteration,
    allocations: list[plans.Allocation],
) -> Submissions | None:
    """Return what replay needs to find the launches of windows, if there are any."""
    if not any(placed.windows for one in allocations for placed in one.placements):
        return None
    return find_submissions(trace, rank, steady, allocations)


def build_problems(
    trace: Trace, rank: int, steady: SteadyIteration, options: Options
) -> Iterator[tuple[int, Problem]]:
    """Return each GPU that a rank uses, and what is to be decided about it."""
    costs = access_costs(steady, options.machine)
    unexplained = read_unexplained(trace, rank)
    for device, gpu in read_allocations(trace, rank).by_device():
        movable = gpu.where(gpu.ordinal >= 0)
        regions = find_regions(movable, steady, costs, unexplained)
        if options.policy == AUTO:
            # What is nowhere when a kernel reaches it ends the job.
            regions = regions.with_whole_allocations_unexplained()
        yield (
            device,
            Problem.build(gpu, regions, gpu_memory_bytes=options.gpu_memory_bytes),
        )


def build_model(
    trace: Trace, rank: int, steady: SteadyIteration, problem: Problem
) -> Model:
    """Return the iteration as schedules see it."""
    holders = Holders.read(trace, rank, problem.allocations)
    model = Model.build(problem, steady, holders)
    # What libraries have at other times, as at the start, has to fit as well.
    least = int(problem.unmovable.max(initial=0))
    more = least - int(problem.unmovable_at(steady.launch_ids).max(initial=0))
    return replace(model, fixed_pieces=model.fixed_pieces + max(more, 0))


def _choose(
    trace: Trace,
    rank: int,
    steady: SteadyIteration,
    problem: Problem,
    options: Options,
    where: str,
) -> tuple[Choice, dict[str, float | None]]:
    """Choose for one GPU; with `auto`, say what other policies would come to."""
    budget_bytes = options.gpu_memory_bytes
    if options.policy != AUTO:
        check_budget(problem, budget_bytes, options.policy, where)
        return choose_static(problem, steady, options.policy), {}
    if not (steady.duration_ns > 0).any():
        raise TraceError(
            f"{trace.path}, rank {rank}: no launch of the iteration has a time, so "
            f"policy {AUTO} cannot tell what a step takes; record again, or use "
            "--policy reuse"
        )
    model = build_model(trace, rank, steady, problem)
    check_budget_for_windows(model, problem, budget_bytes, where)
    link = Link.of_windows(options.machine.windows(options.backend))
    try:
        choice = choose_windows(problem, steady, model, link)
    except NothingFitsError:
        raise BudgetError(no_schedule(model, budget_bytes, where)) from None
    if not options.compare:
        return choice, {}
    return choice, predict_rivals(problem, model, steady, options.machine)
