"""What it costs to leave a range in host memory and reach it over the link.

Host memory is not cached in the GPU's L2: a kernel that reads a range once pays the
link once, one that re-reads it (a matrix product does, tile by tile) pays every time.
No list of kernel names decides that; how long the kernel runs does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Floats, sum_by
from transit.compiler.iteration import Accesses, SteadyIteration
from transit.compiler.machine import MachineProfile

# A kernel this much slower than one pass over its bytes still counts as streaming:
# access patterns are imperfect, and writes may be among what is named once.
STREAMING_SLACK = 2.5
# An operand this much smaller than the launch's largest is read once per row of it (a
# bias, a scale, a table of angles), which the duration does not show.
BROADCAST_RATIO = 16


@dataclass(frozen=True)
class AccessCosts:
    """The cost of each access of an iteration, were its whole range zero-copy."""

    rereads: Bools
    link_bytes: Floats
    link_ns: Floats


def access_costs(iteration: SteadyIteration, machine: MachineProfile) -> AccessCosts:
    """Estimate every access's cost on the link, per iteration."""
    accesses = iteration.accesses
    duration_ns = iteration.duration_ns[accesses.position]
    size = (accesses.stop - accesses.start).astype(np.float64)
    named = _per_launch(accesses, size, iteration.num_launches)
    sure = _sure_bytes(accesses)
    surely_named = _per_launch(accesses, sure, iteration.num_launches)
    largest = np.zeros(iteration.num_launches)
    np.maximum.at(largest, accesses.position, sure)
    broadcast = sure * BROADCAST_RATIO < largest[accesses.position]
    stream_ns = surely_named / machine.hbm_bytes_per_s * 1e9
    patience_ns = STREAMING_SLACK * stream_ns + machine.launch_overhead_ns
    # NaN compares false: a kernel of unknown duration may re-read.
    is_kernel = iteration.is_kernel[accesses.position]
    slow = is_kernel & ~(duration_ns <= patience_ns)
    rereads = (slow | (is_kernel & broadcast)) & accesses.reads
    passes_hbm, passes_l2 = (
        np.nan_to_num(duration_ns * 1e-9 * rate / named, nan=1.0)
        for rate in (machine.hbm_bytes_per_s, machine.l2_bytes_per_s)
    )
    # Several launches of a multi-tensor optimizer name a whole tensor and each touch a
    # part: none can have touched more than memory delivers while it runs.
    at_most_once = np.where(is_kernel & ~slow, np.minimum(passes_hbm, 1.0), 1.0)
    passes = np.where(rereads, np.maximum(passes_l2, 1.0), at_most_once)
    moved = size * passes * accesses.frequency
    return AccessCosts(
        rereads=rereads,
        link_bytes=moved * (accesses.reads * 1.0 + accesses.writes * 1.0),
        link_ns=moved / _rates(accesses, machine) * 1e9,
    )


def _per_launch(accesses: Accesses, values: Floats, num_launches: int) -> Floats:
    totals = sum_by(accesses.position, values * accesses.frequency, num_launches)
    return totals[accesses.position]


def _sure_bytes(accesses: Accesses) -> Floats:
    """Bound each access from below: up to the next place where one starts.

    Only a start is known of most accesses. A kernel that is handed one layer's part of
    a large buffer seems to name the rest of the buffer, which would hide that it
    re-reads its part. Parts of one buffer are known by their common end.
    """
    order = np.lexsort((accesses.start, accesses.stop, accesses.allocation_id))
    allocation = accesses.allocation_id[order]
    start, stop = accesses.start[order], accesses.stop[order]
    same_buffer = (allocation[1:] == allocation[:-1]) & (stop[1:] == stop[:-1])
    is_last = np.append(~(same_buffer & (start[1:] == start[:-1])), True)[: len(start)]
    runs = np.flatnonzero(is_last)  # the last access of each run of equal starts
    has_next = np.append(same_buffer, False)[runs]
    bound = np.where(has_next, np.append(start, 0)[runs + 1], stop[runs])
    bound = bound[np.cumsum(is_last) - is_last]
    sure = np.empty(len(accesses), np.float64)
    sure[order] = np.where(accesses.exact[order], stop, bound) - start
    return sure


def _rates(accesses: Accesses, machine: MachineProfile) -> Floats:
    return np.where(
        accesses.reads & accesses.writes,
        machine.zero_copy_both_bytes_per_s,
        np.where(
            accesses.reads,
            machine.zero_copy_read_bytes_per_s,
            machine.zero_copy_write_bytes_per_s,
        ),
    )
