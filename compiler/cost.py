"""What it costs to leave a range in host memory and reach it over the link.

Host memory is not cached in the GPU's L2: a kernel that reads a range once pays the
link once, one that re-reads it (a matrix product does, tile by tile) pays every time.
No list of kernel names decides that; how long the kernel runs does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transit.compiler.arrays import Bools, Floats, Ints, mix, sum_by
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
    slow, small = _slow_kernels(iteration, machine), _small_operands(iteration)
    rereads = (slow | small) & accesses.reads
    moved = np.where(
        rereads,
        _bytes_reread(iteration, machine),
        np.where(slow, accesses.size, _bytes_streamed(iteration, machine)),
    )
    moved *= accesses.frequency
    return AccessCosts(
        rereads=rereads,
        link_bytes=moved * (accesses.reads * 1.0 + accesses.writes * 1.0),
        link_ns=_link_ns(moved, accesses, machine),
    )


def _slow_kernels(iteration: SteadyIteration, machine: MachineProfile) -> Bools:
    """Tell which accesses are of kernels that take longer than streaming does."""
    position = iteration.accesses.position
    named = _per_launch(iteration, _sure_bytes(iteration.accesses))
    stream_ns = named / machine.hbm_bytes_per_s * 1e9
    patience_ns = STREAMING_SLACK * stream_ns + machine.launch_overhead_ns
    # NaN compares false: a kernel of unknown duration may re-read.
    in_time = iteration.duration_ns[position] <= patience_ns
    return np.asarray(iteration.is_kernel[position] & ~in_time)


def _small_operands(iteration: SteadyIteration) -> Bools:
    """Tell which accesses of kernels may be read once per row of a larger operand."""
    position = iteration.accesses.position
    sure = _sure_bytes(iteration.accesses)
    largest = np.zeros(iteration.num_launches)
    np.maximum.at(largest, position, sure)
    is_small = sure * BROADCAST_RATIO < largest[position]
    return np.asarray(iteration.is_kernel[position] & is_small)


def _bytes_reread(iteration: SteadyIteration, machine: MachineProfile) -> Floats:
    """Bound re-reading by what L2 delivers while the kernel runs."""
    accesses = iteration.accesses
    seconds = iteration.duration_ns[accesses.position] * 1e-9
    passes = seconds * machine.l2_bytes_per_s / _per_launch(iteration, accesses.size)
    return np.asarray(accesses.size * np.fmax(passes, 1.0))  # 1 if unknown


def _bytes_streamed(iteration: SteadyIteration, machine: MachineProfile) -> Floats:
    """Share out ranges that launches name together; bound by what HBM delivers."""
    accesses = iteration.accesses
    is_kernel = iteration.is_kernel[accesses.position]
    size = np.where(is_kernel, accesses.size / _num_sharing(iteration), accesses.size)
    seconds = iteration.duration_ns[accesses.position] * 1e-9
    passes = seconds * machine.hbm_bytes_per_s / _per_launch(iteration, size)
    return np.asarray(np.where(is_kernel, size * np.fmin(passes, 1.0), size))


def _num_sharing(iteration: SteadyIteration) -> Ints:
    """Count the accesses that take turns on one range.

    The launches of a multi-tensor optimizer follow each other; each names whole tensors
    and touches a part of them, so that together they go through every tensor once.
    """
    accesses, function = iteration.accesses, iteration.function
    run = np.cumsum(np.append(True, function[1:] != function[:-1]))[accesses.position]
    direction = accesses.reads * 2 + accesses.writes
    key = mix(run)
    for part in (accesses.allocation_id, accesses.start, accesses.stop, direction):
        key = mix(key ^ part.astype(np.uint64))
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    return np.asarray(count[which])


def _per_launch(iteration: SteadyIteration, values: Floats) -> Floats:
    """Sum over each access's launch."""
    accesses = iteration.accesses
    totals = sum_by(
        accesses.position, values * accesses.frequency, iteration.num_launches
    )
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


def _link_ns(moved: Floats, accesses: Accesses, machine: MachineProfile) -> Floats:
    """Time what goes over the link; for ever, where kernels cannot reach the host."""
    read_rate = machine.zero_copy_read_bytes_per_s
    write_rate = machine.zero_copy_write_bytes_per_s
    both_rate = machine.zero_copy_both_bytes_per_s
    if read_rate is None or write_rate is None or both_rate is None:
        return np.full_like(moved, np.inf)
    one_way = np.where(accesses.reads, read_rate, write_rate)
    rates = np.where(accesses.reads & accesses.writes, both_rate, one_way)
    return np.asarray(moved / rates * 1e9)
