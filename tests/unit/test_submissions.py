"""What a plan says of the calls of the iteration: signatures, and what they name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from compiler_traces import (
    Chunk,
    Launch,
    Touch,
    access_rows,
    make_trace,
    tables,
    trace_of,
)
from trace_factory import MIB, LayeredLoop, in_graphs, write_tables

from transit.compiler import iteration, machine
from transit.compiler.compiler import compile_trace
from transit.compiler.plan import PIECE_BYTES, Allocation, Placement
from transit.compiler.sequence import ANY_ADDRESSES, Sequence
from transit.compiler.submissions import find_submissions
from transit.traces import schema
from transit.traces.reader import Trace

MASK = 2**64 - 1


def mix(x: int) -> int:
    """SplitMix64, as runtime/native/windows/named_addresses.cpp has it."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def planned(ordinal: int, address_offset: int | None) -> Allocation:
    whole = Placement(offset=0, bytes=PIECE_BYTES, placement="resident", why="")
    return Allocation(
        device=0,
        ordinal=ordinal,
        bytes=PIECE_BYTES,
        address_offset=address_offset,
        placements=(whole,),
    )


def sequence_of(trace: Trace, *allocations: Allocation) -> Sequence:
    return find_submissions(trace, 0, iteration.find(trace, 0), allocations).sequence


def test_addresses_are_hashed_as_a_set_from_the_lowest_on() -> None:
    chunks = [Chunk(PIECE_BYTES), Chunk(PIECE_BYTES, movable=False), Chunk(PIECE_BYTES)]
    launches = [
        Launch("a", 1_000, (Touch(0, 0, 8), Touch(2, 512, 1024))),
        # Twice the same place, and memory of a library, which is not in the plan.
        Launch("b", 1_000, (Touch(1, 0, 8), Touch(2, 64, 72), Touch(2, 64, 128))),
        Launch("c", 1_000, (Touch(1, 0, 8),)),
    ]
    trace = make_trace(chunks, launches)
    far = 6 * PIECE_BYTES
    found = sequence_of(trace, planned(0, 0), planned(1, far))
    assert found.addresses.tolist() == [
        (mix(0) + mix(far + 512)) & MASK,
        mix(far + 64),
        0,
    ]
    assert found.num_named.tolist() == [2, 1, 0]
    assert found.named.tolist() == [0, far + 512, far + 64]
    assert found.num_positions.tolist() == [1, 1, 1]
    recorded = trace.table(0, "launches")["signature"].to_pylist()
    assert found.signature.tolist() == recorded[:3]


def test_what_has_no_place_does_not_count() -> None:
    launch = Launch("a", 1_000, (Touch(0, 8, 16), Touch(1, 8, 16)))
    trace = make_trace([Chunk(PIECE_BYTES), Chunk(PIECE_BYTES)], [launch])
    found = sequence_of(trace, planned(0, 0), planned(1, None))
    assert found.addresses.tolist() == [mix(8)]
    assert found.named.tolist() == [8]


def words_of(found: Sequence) -> list[list[int]]:
    ends = np.cumsum(found.num_words)
    starts = ends - found.num_words
    return [
        found.words[start:end].tolist() for start, end in zip(starts, ends, strict=True)
    ]


def test_words_are_those_that_hold_an_address_each_time() -> None:
    """A launch that ran without does not use the word, whatever it holds."""
    here = {0: 4 * MIB, 8: 5 * MIB, 16: 6 * MIB}
    trace = trace_of_words([here, here, {0: 4 * MIB, 8: 7 * MIB}, here])
    found = sequence_of(trace, planned(0, 0))
    assert words_of(found) == [[0, 8]]
    assert found.named.tolist() == [4 * MIB]  # at 8 it is not always the same


@pytest.mark.parametrize(("other", "count"), [(5 * MIB, 0), (7 * MIB, 1)])
def test_calls_that_name_other_memory_at_times_are_counted(
    other: int, count: int
) -> None:
    here = {0: 4 * MIB, 8: 5 * MIB}
    trace = trace_of_words([here, here, {0: 4 * MIB, 8: other}, here])
    steady = iteration.find(trace, 0)
    assert find_submissions(trace, 0, steady, [planned(0, 0)]).num_unsteady == count


def test_an_iteration_ends_when_the_same_memory_is_named_again() -> None:
    """The allocator goes around between three places; the first one is left out."""
    places = [{0: 4 * MIB}, {0: 5 * MIB}, {0: 6 * MIB}]
    trace = trace_of_words(places * 3)
    steady = iteration.find(trace, 0)
    assert (steady.steps, steady.num_launches) == (3, 3)
    found = find_submissions(trace, 0, steady, [planned(0, 0)])
    assert found.num_unsteady == 0
    first = [places[i % 3][0] for i in steady.launch_ids.tolist()]
    assert found.sequence.named.tolist() == first
    fits = compile_trace(
        trace,
        gpu_memory_bytes=8 * PIECE_BYTES,
        policy="auto",
        machine=machine.load("h200").model_copy(
            update={"gpu_name": trace.manifest.rank(0).devices[0].name}
        ),
    )
    assert fits.prediction
    assert fits.prediction.step_ns == 1_000
    assert fits.ranks[0].iteration.steps == 3


def test_each_place_has_to_be_seen_twice() -> None:
    """Of five iterations after the first one, who knows what comes next?"""
    places = [{0: 4 * MIB}, {0: 5 * MIB}, {0: 6 * MIB}]
    trace = trace_of_words([*places, *places])
    steady = iteration.find(trace, 0)
    assert (steady.steps, steady.num_launches) == (1, 1)
    assert find_submissions(trace, 0, steady, [planned(0, 0)]).num_unsteady == 1


def test_halves_of_addresses_are_none() -> None:
    """Beside a number they look like one a little above a multiple of 4 GiB."""
    half = {0: 4 * MIB, 8: 0, 16: 5}
    found = sequence_of(trace_of_words([half] * 4), planned(0, 0))
    assert words_of(found) == [[0]]
    assert found.named.tolist() == [4 * MIB]


def test_where_the_words_are_is_not_known_of_older_traces() -> None:
    trace = make_trace([Chunk(PIECE_BYTES)], [Launch("a", 1_000, (Touch(0, 0, 8),))])
    found = sequence_of(trace, planned(0, 0))
    assert not len(found.kernel)
    assert found.named.tolist() == [0]


def trace_of_words(iterations: list[dict[int, int]]) -> Trace:
    """Return a trace of one launch per iteration with addresses in words of it."""
    made = tables([Chunk(8 * PIECE_BYTES)], [Launch("a", 1_000, ())], len(iterations))
    rows = [
        access | {"launch_id": launch_id, "offset": offset, "parameter_offset": word}
        for launch_id, words in enumerate(iterations)
        for word, offset in sorted(words.items(), key=lambda item: item[1])
        for access in access_rows(launch_id, Launch("a", 1_000, (Touch(0, 0, 8),)))
    ]
    accesses = pa.Table.from_pylist(rows, schema.TABLES["accesses"])
    return trace_of(made | {"accesses": accesses})


def test_a_graph_is_one_call_known_by_its_name(tmp_path: Path) -> None:
    loop = LayeredLoop()
    trace = Trace.open(write_tables(tmp_path / "t", {0: in_graphs(loop.tables())}))
    found = sequence_of(trace, planned(0, 0))
    assert found.num_positions.tolist() == [1, loop.launches_per_iteration - 1]
    signature = 0xCBF29CE484222325
    for step in (*b"cuGraphLaunch", 4, 0, 0, 0, 0, 0, 0):
        signature = (signature ^ step) * 0x100000001B3 & MASK
    assert int(found.signature[1]) == signature
    assert int(found.addresses[1]) == ANY_ADDRESSES
    assert int(found.addresses[0]) == mix(0)  # the weight of layer 0, and no more
    assert found.num_named.tolist() == [1, 0]
    assert found.is_graph.tolist() == [False, True]


def test_ranks_whose_memory_lies_elsewhere_have_the_same_sequence(
    tmp_path: Path,
) -> None:
    chunks = [Chunk(PIECE_BYTES), Chunk(PIECE_BYTES)]
    launches = [Launch("a", 1_000, (Touch(0, 8, 16), Touch(1, 0, 8)))]
    here = tables(chunks, launches)
    rows = here["allocations"].to_pylist()
    for row in rows:
        row["address"] += (3 - 2 * row["allocation_id"]) << 40
    moved = pa.Table.from_pylist(rows, schema.TABLES["allocations"])
    ranks = {0: here, 1: here | {"allocations": moved}}
    trace = Trace.open(write_tables(tmp_path / "t", ranks))
    plans = (planned(0, 0), planned(1, 2 * PIECE_BYTES))
    first, second = (
        find_submissions(trace, rank, iteration.find(trace, rank), plans)
        for rank in ranks
    )
    assert first.sequence.encode() == second.sequence.encode()


def test_nothing_comes_or_goes_while_a_graph_runs(tmp_path: Path) -> None:
    graphs = in_graphs(LayeredLoop(layers=8).tables(), graphs=3)
    trace = Trace.open(write_tables(tmp_path / "t", {0: graphs}))
    profile = machine.load("h200").model_copy(update={"gpu_name": "Test GPU"})
    plan = compile_trace(
        trace, gpu_memory_bytes=224 * MIB, policy="auto", machine=profile
    )
    (rank_plan,) = plan.ranks
    calls = rank_plan.iteration.calls()
    assert calls is not None
    assert len(calls.num_positions) == 4
    on_gpu = np.zeros(4, np.int64)
    for placed in (p for a in rank_plan.allocations for p in a.placements):
        for call, first in enumerate(calls.begins.tolist()):
            is_on_gpu = placed.placement == "resident" or any(
                window.covers(first) for window in placed.windows
            )
            on_gpu[call] += placed.bytes if is_on_gpu else 0
    assert plan.summary.window_bytes > 0
    assert on_gpu.max() + 2 * MIB <= plan.gpu_memory_bytes  # with the workspace
