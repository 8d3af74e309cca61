"""What a step takes under the other policies, to compare a plan with."""

from __future__ import annotations

from transit.compiler.budget import smallest_budget
from transit.compiler.choice import choose_static
from transit.compiler.iteration import SteadyIteration
from transit.compiler.link import Link
from transit.compiler.machine import MachineProfile
from transit.compiler.model import Model
from transit.compiler.paging import page
from transit.compiler.policies import POLICIES
from transit.compiler.problem import Problem


def predict_rivals(
    problem: Problem, model: Model, steady: SteadyIteration, machine: MachineProfile
) -> dict[str, float | None]:
    """Return each policy's step in ns; None where it cannot keep to the budget.

    What a machine has no rates for is left out: without zero-copy the policies that
    use it, without faults `base`, and without unified memory `prefetch`.
    """
    steps: dict[str, float | None] = {}
    if machine.has_zero_copy:
        for name, policy in POLICIES.items():
            fits = smallest_budget(problem, policy) <= problem.budget
            steps[name] = choose_static(problem, steady, name).step_ns if fits else None
    fault, evict = machine.fault_h2d_bytes_per_s, machine.evict_d2h_bytes_per_s
    if fault and evict:
        link = Link.of(fault, evict, min(fault, evict))
        steps["base"] = page(
            model, load_pieces_per_ns=link.load, store_pieces_per_ns=link.store
        )
    if "uvm" in machine.backends:
        link = Link.of_windows(machine.backends["uvm"])
        steps["prefetch"] = page(
            model,
            load_pieces_per_ns=link.load,
            store_pieces_per_ns=link.store,
            both_pieces_per_ns=link.both,
        )
    return steps
