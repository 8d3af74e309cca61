"""Regions: every piece once, cut where accesses change, with the right statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiler_traces import Chunk, Launch, Touch, jobs, make_trace
from hypothesis import given, settings

from transit.compiler import iteration, machine
from transit.compiler.cost import access_costs
from transit.compiler.lifetimes import read_allocations
from transit.compiler.plan import PIECE_BYTES, round_up
from transit.compiler.regions import Regions, find_regions

P = PIECE_BYTES


def regions_of(chunks: list[Chunk], launches: list[Launch]) -> Regions:
    trace = make_trace(chunks, launches)
    steady = iteration.find(trace, 0)
    allocations = read_allocations(trace, 0)
    movable = allocations.where(allocations.ordinal >= 0)
    return find_regions(movable, steady, access_costs(steady, machine.load("h200")))


def pieces(regions: Regions) -> list[tuple[int, int]]:
    return list(
        zip(regions.first_piece.tolist(), regions.num_pieces.tolist(), strict=True)
    )


def test_regions_are_cut_where_accesses_start_and_stop() -> None:
    first = Launch("a", 1000, (Touch(0, 0, 3 * P + 5),))
    second = Launch("b", 1000, (Touch(0, 2 * P + 1, 6 * P),))
    regions = regions_of([Chunk(10 * P)], [first, second])
    assert pieces(regions) == [(0, 2), (2, 2), (4, 2), (6, 4)]
    assert regions.num_launches.tolist() == [1, 2, 1, 0]
    assert regions.first_position.tolist() == [0, 0, 1, -1]
    assert regions.last_position.tolist() == [0, 1, 1, -1]


def test_neighbours_with_the_same_accesses_are_one_region() -> None:
    halves = (Touch(0, 0, 4 * P), Touch(0, 4 * P, 8 * P))
    regions = regions_of([Chunk(8 * P), Chunk(P)], [Launch("a", 1000, halves)])
    assert pieces(regions) == [(0, 8), (0, 1)]
    assert regions.num_launches.tolist() == [1, 0]


def test_an_allocation_without_accesses_is_a_region() -> None:
    regions = regions_of([Chunk(5 * P)], [Launch("a", 1000, ())])
    assert pieces(regions) == [(0, 5)]
    assert regions.link_bytes.tolist() == [0]
    assert regions.idle_ns.tolist() == [1000]  # the whole iteration


def test_what_is_unexplained_in_part_is_so_as_a_whole() -> None:
    first = Launch("a", 1000, (Touch(0, 0, 2 * P), Touch(1, 0, P)))
    regions = regions_of([Chunk(4 * P), Chunk(2 * P)], [first])
    assert pieces(regions) == [(0, 2), (2, 2), (0, 1), (1, 1)]
    odd = replace(regions, unexplained=np.array([False, True, False, False]))
    whole = odd.with_whole_allocations_unexplained()
    assert whole.unexplained.tolist() == [True, True, False, False]


def test_reuse_distance_goes_around_the_iteration() -> None:
    launches = [
        Launch("a", 1_000, (Touch(0, 0, P),)),
        Launch("b", 30_000, (Touch(1, 0, 4 * P),)),
        Launch("c", 2_000, (Touch(0, 0, P),)),
        Launch("d", 50_000, (Touch(1, 0, P),)),
    ]
    regions = regions_of([Chunk(P), Chunk(4 * P)], launches)
    first = regions.allocation == 0
    assert regions.idle_ns[first].tolist() == [50_000]  # from c, over the end, to a
    assert regions.idle_bytes[first].tolist() == [4 * P]  # from a to c


def test_an_iteration_of_one_launch_has_no_idle_time() -> None:
    regions = regions_of([Chunk(P)], [Launch("a", 1000, (Touch(0, 0, P),))])
    assert regions.idle_ns.tolist() == [0]


@settings(deadline=None, max_examples=30)
@given(jobs())
def test_every_piece_is_in_one_region_and_no_cost_is_lost(
    job: tuple[list[Chunk], list[Launch]],
) -> None:
    chunks, launches = job
    trace = make_trace(chunks, launches)
    steady = iteration.find(trace, 0)
    costs = access_costs(steady, machine.load("h200"))
    allocations = read_allocations(trace, 0)
    movable = allocations.where(allocations.ordinal >= 0)
    regions = find_regions(movable, steady, costs)
    for index, size in enumerate(movable.bytes):
        mine = regions.allocation == index
        ends = np.cumsum(regions.num_pieces[mine])
        assert (regions.first_piece[mine] == ends - regions.num_pieces[mine]).all()
        assert ends[-1] * PIECE_BYTES == round_up(int(size))
    touched = np.isin(steady.accesses.allocation_id, movable.allocation_id)
    assert regions.link_ns.sum() == pytest.approx(costs.link_ns[touched].sum())
    assert regions.link_bytes.sum() == pytest.approx(costs.link_bytes[touched].sum())


@settings(deadline=None, max_examples=30)
@given(jobs())
def test_regions_know_every_launch_that_touches_them(
    job: tuple[list[Chunk], list[Launch]],
) -> None:
    chunks, launches = job
    trace = make_trace(chunks, launches)
    steady = iteration.find(trace, 0)
    allocations = read_allocations(trace, 0)
    movable = allocations.where(allocations.ordinal >= 0)
    regions = find_regions(movable, steady, access_costs(steady, machine.load("h200")))
    accesses = steady.accesses
    for region in range(len(regions)):
        start = int(regions.first_piece[region]) * PIECE_BYTES
        stop = start + int(regions.num_pieces[region]) * PIECE_BYTES
        owner = movable.allocation_id[regions.allocation[region]]
        # Piece by piece: what touches one piece of a region touches all of them.
        for piece in range(start, stop, PIECE_BYTES):
            touching = (
                (accesses.allocation_id == owner)
                & (accesses.start < piece + PIECE_BYTES)
                & (accesses.stop > piece)
            )
            positions = set(accesses.position[touching].tolist())
            assert len(positions) == regions.num_launches[region]
            listed = regions.accesses.position[regions.accesses.region == region]
            assert positions == set(listed.tolist())
