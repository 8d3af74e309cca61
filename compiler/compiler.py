"""Compile a trace into a plan."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from transit._version import __version__
from transit.compiler import iteration as iterations
from transit.compiler import plan as plans
from transit.compiler.arrays import Ints, sum_by
from transit.compiler.cost import AccessCosts, access_costs
from transit.compiler.iteration import SteadyIteration
from transit.compiler.lifetimes import Allocations, read_allocations
from transit.compiler.machine import MachineProfile
from transit.compiler.placements import place
from transit.compiler.plan import MAX_BYTES, PIECE_BYTES, Plan
from transit.compiler.policies import POLICIES, Policy
from transit.compiler.problem import Problem
from transit.compiler.regions import find_regions
from transit.errors import BudgetError, TraceError
from transit.traces.manifest import FILE_NAME as MANIFEST
from transit.traces.reader import Trace
from transit.traces.schema import TABLES

GIB = 1 << 30


@dataclass(frozen=True)
class _Solved:
    """One GPU of one rank with its placements chosen."""

    problem: Problem
    zero_copy: Ints
    smallest_budget: int
    link_bytes: float
    extra_ns: float


def compile_trace(
    trace: Trace, *, gpu_memory_bytes: int, policy: str, machine: MachineProfile
) -> Plan:
    """Choose a placement for every movable byte of the job.

    Parameters
    ----------
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
    """
    if policy not in POLICIES:
        raise BudgetError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
    if not 0 < gpu_memory_bytes < MAX_BYTES:
        raise BudgetError(
            f"a budget of {gpu_memory_bytes} bytes makes no sense; give the GPU memory "
            "that the job may take up, such as 40GiB"
        )
    ranks: list[plans.Rank] = []
    solved: list[_Solved] = []
    for rank in trace.ranks:
        steady = iterations.find(trace, rank)
        gpus = _solve_rank(trace, rank, steady, gpu_memory_bytes, policy, machine)
        ranks.append(_rank_plan(rank, steady, gpus))
        solved += gpus
    return Plan(
        format="transit-plan",
        version=1,
        producer=f"transit {__version__}",
        policy=policy,
        gpu_memory_bytes=gpu_memory_bytes,
        trace=_trace_reference(trace),
        machine=plans.Machine(name=machine.name, fingerprint=machine.fingerprint),
        summary=_summarise(solved),
        ranks=tuple(ranks),
    )


def _solve_rank(
    trace: Trace,
    rank: int,
    steady: SteadyIteration,
    gpu_memory_bytes: int,
    policy: str,
    machine: MachineProfile,
) -> list[_Solved]:
    costs = access_costs(steady, machine)
    allocations = read_allocations(trace, rank)
    solved = []
    for device in np.unique(allocations.device):
        gpu = allocations.where(allocations.device == device)
        problem = _build_problem(gpu, steady, costs, gpu_memory_bytes)
        _check_budget(problem, policy, f"rank {rank}, GPU {device}")
        solved.append(_solve(problem, POLICIES[policy], steady))
    return solved


def _build_problem(
    gpu: Allocations,
    steady: SteadyIteration,
    costs: AccessCosts,
    gpu_memory_bytes: int,
) -> Problem:
    regions = find_regions(gpu.where(gpu.ordinal >= 0), steady, costs)
    return Problem.build(gpu, regions, gpu_memory_bytes=gpu_memory_bytes)


def _check_budget(problem: Problem, policy: str, where: str) -> None:
    spilled = POLICIES[policy].may_spill(problem)
    smallest = problem.peak(spilled)
    if smallest <= problem.budget:
        return
    message = (
        f"{where}: policy {policy} needs at least {_gib_up(smallest)} of GPU memory, "
        f"and the budget is {problem.budget * PIECE_BYTES / GIB:.2f} GiB: "
        f"{_gib_up(int(problem.unmovable.max(initial=0)))} belong to libraries and "
        "cannot be moved"
    )
    if not spilled.all():
        message += (
            ", and the rest is re-read by kernels, which over the link is too slow"
        )
    for name, other in POLICIES.items():
        if (less := problem.peak(other.may_spill(problem))) <= problem.budget:
            message += f"; policy {name}, slower, can go down to {_gib_up(less)}"
    raise BudgetError(f"{message}. Allow at least {_gib_up(smallest)}")


def _gib_up(pieces: int) -> str:
    """Format pieces as GiB, rounded up so that the figure is enough as a budget."""
    hundredths = -(-pieces * PIECE_BYTES * 100 // GIB)
    return f"{hundredths / 100:.2f} GiB"


def _solve(problem: Problem, policy: Policy, steady: SteadyIteration) -> _Solved:
    zero_copy = policy.choose(problem)
    lists = problem.regions.accesses
    share = (zero_copy / problem.regions.num_pieces)[lists.region]
    # A launch takes as long as its kernel or its link traffic, whichever is longer.
    link_ns = sum_by(lists.position, lists.link_ns * share, steady.num_launches)
    extra_ns = np.maximum(link_ns - np.nan_to_num(steady.duration_ns), 0).sum()
    return _Solved(
        problem=problem,
        zero_copy=zero_copy,
        smallest_budget=problem.peak(policy.may_spill(problem)),
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
            for allocation in place(gpu.problem, gpu.zero_copy)
        ),
    )


def _summarise(solved: list[_Solved]) -> plans.Summary:
    def most(values: list[int]) -> int:
        return max(values, default=0) * PIECE_BYTES

    nothing = [np.zeros_like(gpu.zero_copy) for gpu in solved]
    zero_copy = sum(int(gpu.zero_copy.sum()) for gpu in solved)
    pieces = sum(int(gpu.problem.regions.num_pieces.sum()) for gpu in solved)
    return plans.Summary(
        job_peak_bytes=most(
            [
                _peak(gpu.problem, kept)
                for gpu, kept in zip(solved, nothing, strict=True)
            ]
        ),
        peak_resident_bytes=most([_peak(gpu.problem, gpu.zero_copy) for gpu in solved]),
        resident_bytes=(pieces - zero_copy) * PIECE_BYTES,
        zero_copy_bytes=zero_copy * PIECE_BYTES,
        window_bytes=0,
        unmovable_bytes=most([int(gpu.problem.unmovable.max()) for gpu in solved]),
        smallest_budget_bytes=most([gpu.smallest_budget for gpu in solved]),
        estimated_link_bytes_per_iteration=round(sum(gpu.link_bytes for gpu in solved)),
        estimated_extra_ns_per_iteration=round(
            max((gpu.extra_ns for gpu in solved), default=0.0)
        ),
    )


def _peak(problem: Problem, zero_copy: Ints) -> int:
    return int(problem.resident(zero_copy).max())


def _trace_reference(trace: Trace) -> plans.TraceReference:
    devices = trace.manifest.rank(trace.ranks[0]).devices
    if not devices:
        raise TraceError(f"{trace.path}: no GPU was used in the recording")
    return plans.TraceReference(
        fingerprint=_fingerprint(trace),
        command=tuple(trace.manifest.command),
        gpu_name=devices[0].name,
        gpu_total_bytes=devices[0].memory_bytes,
        compute_capability=devices[0].compute_capability,
    )


def _fingerprint(trace: Trace) -> str:
    """Hash the manifest and every table, so that a plan names its recording."""
    digest = hashlib.sha256()
    names = [MANIFEST]
    names += [f"rank={r}/{table}.parquet" for r in trace.ranks for table in TABLES]
    for name in names:
        path = trace.path / name
        try:
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as failed:
            raise TraceError(f"{path}: cannot be read: {failed.strerror}") from None
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()
