"""Refuse a budget that a policy cannot meet, and say what can be met."""

from __future__ import annotations

import numpy as np

from transit.compiler.arrays import sum_by
from transit.compiler.model import Model
from transit.compiler.plan import PIECE_BYTES
from transit.compiler.policies import AUTO, POLICIES, Policy
from transit.compiler.problem import Problem
from transit.errors import BudgetError
from transit.units import format_bytes

GIB = 1 << 30


def smallest_budget(problem: Problem, policy: Policy) -> int:
    """Return the least pieces of 2 MiB that a policy can make do with."""
    spilled = np.where(policy.may_spill(problem), problem.regions.num_pieces, 0)
    return problem.peak(spilled)


def smallest_for_windows(model: Model) -> int:
    """Return pieces without which some launch cannot run, whatever comes and goes."""
    accesses = model.accesses
    # What a kernel can read in host memory, and does so once, needs no room.
    pieces = np.where(accesses.may_be_in_place, 0, model.num_pieces[accesses.region])
    needed = sum_by(accesses.position, pieces, model.num_launches)
    return int((model.fixed_pieces + needed).max(initial=0))


def check_budget_for_windows(
    model: Model, problem: Problem, gpu_memory_bytes: int, where: str
) -> None:
    """Raise `BudgetError` if some launch needs more than the budget."""
    smallest = smallest_for_windows(model)
    if smallest <= model.budget_pieces:
        return
    raise BudgetError(
        f"{where}: policy {AUTO} needs at least {_enough(smallest)} of GPU memory, and "
        f"the budget is {format_bytes(gpu_memory_bytes)}: "
        f"{'; '.join(_reasons(problem, smallest, 'some launch needs the rest'))}. "
        f"Give --gpu-memory {_enough(smallest, '')} or more"
    )


def no_schedule(model: Model, gpu_memory_bytes: int, where: str) -> str:
    """Say that no schedule was found for a budget that suffices for each launch."""
    needed = _enough(smallest_for_windows(model))
    return (
        f"{where}: policy {AUTO} found no schedule that keeps to the budget of "
        f"{format_bytes(gpu_memory_bytes)}. Some launch needs {needed} at once, which "
        "may not be enough. Give more --gpu-memory; --sweep shows what is enough"
    )


def check_budget(
    problem: Problem, gpu_memory_bytes: int, policy_name: str, where: str
) -> None:
    """Raise `BudgetError` if the policy cannot meet the problem's budget."""
    policy = POLICIES[policy_name]
    smallest = smallest_budget(problem, policy)
    if smallest <= problem.budget:
        return
    slow = "what kernels re-read stays, as the link is slow to re-read"
    reasons = _reasons(problem, smallest, slow)
    message = (
        f"{where}: policy {policy_name} needs at least {_enough(smallest)} of GPU "
        f"memory, and the budget is {format_bytes(gpu_memory_bytes)}: "
        f"{'; '.join(reasons)}. Give --gpu-memory {_enough(smallest, '')} or more"
    )
    for name, other in POLICIES.items():
        if smallest_budget(problem, other) <= problem.budget:
            message += (
                f", or use --policy {name}, which spills that too and may be slow"
            )
    raise BudgetError(message)


def _reasons(problem: Problem, smallest: int, why_the_rest: str) -> list[str]:
    unmovable = int(problem.unmovable.max())
    reasons = []
    if unmovable:
        reasons.append(f"{_enough(unmovable)} belong to libraries and cannot be moved")
    if problem.regions.unexplained.any():
        reasons.append("what is touched through pointers that no launch names stays")
    if smallest > unmovable:
        reasons.append(why_the_rest)
    return reasons


def _enough(pieces: int, space: str = " ") -> str:
    """Write pieces as a size, rounded up so that it is enough as a budget."""
    num_bytes = pieces * PIECE_BYTES
    if num_bytes < GIB:
        return f"{num_bytes >> 20}{space}MiB"
    hundredths = -(-num_bytes * 100 // GIB)
    return f"{hundredths // 100}.{hundredths % 100:02}{space}GiB"
