"""Compile a trace into a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from transit._version import __version__
from transit.compiler import iteration as iterations
from transit.compiler import plan as plans
from transit.compiler.arrays import Ints, sum_by
from transit.compiler.budget import check_budget, smallest_budget
from transit.compiler.cost import access_costs
from transit.compiler.files import describe
from transit.compiler.iteration import SteadyIteration
from transit.compiler.lifetimes import read_allocations
from transit.compiler.machine import MachineProfile
from transit.compiler.placements import place
from transit.compiler.plan import MAX_BYTES, PIECE_BYTES, Plan
from transit.compiler.policies import POLICIES, Policy
from transit.compiler.problem import Problem
from transit.compiler.provenance import trace_reference
from transit.compiler.regions import find_regions, read_unexplained
from transit.errors import BudgetError, MachineError, TraceError
from transit.traces.check import refuse_contradictions, refuse_without_accesses
from transit.traces.reader import Trace


@dataclass(frozen=True)
class _Solved:
    """One GPU of one rank with its placements chosen."""

    problem: Problem
    policy: Policy
    zero_copy: Ints  # pieces of each region
    link_bytes: float
    extra_ns: float


def compile_trace(
    trace: Trace, *, gpu_memory_bytes: int, policy: str, machine: MachineProfile
) -> Plan:
    """Choose a placement for every movable byte of the job.

    Parameters
    ----------
    trace
        The recording.
    gpu_memory_bytes
        What the job may take up on each GPU.
    policy
        One of `transit.compiler.policies.POLICIES`.
    machine
        The rates to reckon with.

    Raises
    ------
    TraceError
        If the trace is damaged or has no steady iteration.
    BudgetError
        If the policy cannot meet the budget.
    MachineError
        If the policy needs what the machine cannot do.
    """
    if policy not in POLICIES:
        raise BudgetError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
    if not machine.has_zero_copy:
        raise MachineError(
            f"on machine {machine.name} kernels cannot reach host memory (its profile "
            f"has no zero_copy_* rates); policy {policy} knows no other place for what "
            "leaves the GPU"
        )
    for rank in trace.ranks:
        refuse_without_accesses(trace, rank)
    if not 0 < gpu_memory_bytes < MAX_BYTES:
        raise BudgetError(
            f"a budget of {gpu_memory_bytes} bytes makes no sense; give the GPU memory "
            "that the job may take up, such as 40GiB"
        )
    try:
        return _compile(trace, gpu_memory_bytes, policy, machine)
    except ValidationError as invalid:
        raise TraceError(
            f"{trace.path}: holds what no plan can: {describe(invalid)}"
        ) from None


def _compile(
    trace: Trace, gpu_memory_bytes: int, policy: str, machine: MachineProfile
) -> Plan:
    ranks: list[plans.Rank] = []
    solved: list[_Solved] = []
    for rank in trace.ranks:
        refuse_contradictions(trace, rank)
        steady = iterations.find(trace, rank)
        problems = _build_problems(trace, rank, steady, gpu_memory_bytes, machine)
        gpus = []
        for device, problem in problems:
            check_budget(
                problem, gpu_memory_bytes, policy, f"rank {rank}, GPU {device}"
            )
            gpus.append(_solve(problem, POLICIES[policy], steady))
        ranks.append(_rank_plan(rank, steady, gpus))
        solved += gpus
    reference = trace_reference(trace)
    return Plan(
        format="transit-plan",
        version=1,
        producer=f"transit {__version__}",
        policy=policy,
        gpu_memory_bytes=gpu_memory_bytes,
        trace=reference,
        machine=plans.Machine(name=machine.name, fingerprint=machine.fingerprint),
        summary=_totals(solved, has_rates=reference.gpu_name == machine.gpu_name),
        ranks=tuple(ranks),
    )


def _build_problems(
    trace: Trace,
    rank: int,
    steady: SteadyIteration,
    gpu_memory_bytes: int,
    machine: MachineProfile,
) -> Iterator[tuple[int, Problem]]:
    costs = access_costs(steady, machine)
    unexplained = read_unexplained(trace, rank)
    for device, gpu in read_allocations(trace, rank).by_device():
        movable = gpu.where(gpu.ordinal >= 0)
        regions = find_regions(movable, steady, costs, unexplained)
        yield device, Problem.build(gpu, regions, gpu_memory_bytes=gpu_memory_bytes)


def _solve(problem: Problem, policy: Policy, steady: SteadyIteration) -> _Solved:
    zero_copy = policy.choose(problem)
    lists = problem.regions.accesses
    share = (zero_copy / problem.regions.num_pieces)[lists.region]
    # A launch takes as long as its kernel or its link traffic, whichever is longer.
    link_ns = sum_by(lists.position, lists.link_ns * share, steady.num_launches)
    extra_ns = np.maximum(link_ns - np.nan_to_num(steady.duration_ns), 0).sum()
    return _Solved(
        problem=problem,
        policy=policy,
        zero_copy=zero_copy,
        link_bytes=float((lists.link_bytes * share).sum()),
        extra_ns=float(extra_ns),
    )


def _rank_plan(rank: int, steady: SteadyIteration, gpus: list[_Solved]) -> plans.Rank:
    return plans.Rank(
        rank=rank,
        iteration=plans.Iteration(
            launches=steady.num_launches,
            signature=steady.fingerprint,
            found_by=steady.found_by,
            confidence=round(steady.confidence, 4),
        ),
        allocations=tuple(
            allocation
            for gpu in gpus
            for allocation in place(
                gpu.problem, gpu.zero_copy, why_spilled=gpu.policy.why_spilled
            )
        ),
    )


def _totals(solved: list[_Solved], *, has_rates: bool) -> plans.Summary:
    """Add up; the time is only known from rates of the GPU that was recorded."""

    def most(pieces: Iterator[int]) -> int:
        return max(pieces, default=0) * PIECE_BYTES

    pieces = sum(int(gpu.problem.regions.num_pieces.sum()) for gpu in solved)
    zero_copy = sum(int(gpu.zero_copy.sum()) for gpu in solved)
    return plans.Summary(
        job_peak_bytes=most(
            gpu.problem.peak(np.zeros_like(gpu.zero_copy)) for gpu in solved
        ),
        peak_resident_bytes=most(gpu.problem.peak(gpu.zero_copy) for gpu in solved),
        resident_bytes=(pieces - zero_copy) * PIECE_BYTES,
        zero_copy_bytes=zero_copy * PIECE_BYTES,
        window_bytes=0,
        unmovable_bytes=most(int(gpu.problem.unmovable.max()) for gpu in solved),
        smallest_budget_bytes=most(
            smallest_budget(gpu.problem, gpu.policy) for gpu in solved
        ),
        estimated_link_bytes_per_iteration=round(sum(gpu.link_bytes for gpu in solved)),
        estimated_extra_ns_per_iteration=(
            round(max((gpu.extra_ns for gpu in solved), default=0.0))
            if has_rates or not zero_copy
            else None
        ),
    )
