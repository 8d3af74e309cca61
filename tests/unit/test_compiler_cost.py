"""Link costs: what a kernel streams, what it re-reads, and what it only seems to."""

from __future__ import annotations

import numpy as np
import pytest
from compiler_traces import Chunk, Launch, Touch, make_trace

from transit.compiler import iteration, machine
from transit.compiler.cost import AccessCosts, access_costs

MIB = 1 << 20
MACHINE = machine.load("h200")
SIZE = 256 * MIB
STREAM_NS = round(SIZE / MACHINE.hbm_bytes_per_s * 1e9)


def costs_of(*launches: Launch, sizes: tuple[int, ...] = (SIZE,) * 4) -> AccessCosts:
    trace = make_trace([Chunk(size) for size in sizes], list(launches))
    return access_costs(iteration.find(trace, 0), MACHINE)


def whole(allocation: int, direction: str = "unknown", size: int = SIZE) -> Touch:
    return Touch(allocation, 0, size, direction)


def test_a_kernel_as_slow_as_one_pass_streams() -> None:
    costs = costs_of(Launch("k", 2 * STREAM_NS, (whole(0, "read"),)))
    assert not costs.rereads.any()
    assert costs.link_bytes == pytest.approx([SIZE])
    assert costs.link_ns == pytest.approx(
        [SIZE / MACHINE.zero_copy_read_bytes_per_s * 1e9]
    )


def test_a_much_slower_kernel_re_reads_up_to_what_l2_delivers() -> None:
    duration_ns = 20 * STREAM_NS
    costs = costs_of(Launch("k", duration_ns, (whole(0, "read"),)))
    assert costs.rereads.all()
    assert costs.link_bytes == pytest.approx(
        [duration_ns * 1e-9 * MACHINE.l2_bytes_per_s]
    )


def test_what_a_slow_kernel_only_writes_goes_over_the_link_once() -> None:
    touches = (whole(0, "read"), whole(1, "write"))
    costs = costs_of(Launch("k", 50 * STREAM_NS, touches))
    assert costs.rereads.tolist() == [True, False]
    assert costs.link_bytes[1] == pytest.approx(SIZE)


def test_unknown_directions_go_both_ways() -> None:
    costs = costs_of(Launch("k", STREAM_NS, (whole(0),)))
    assert costs.link_bytes == pytest.approx([2 * SIZE])
    assert costs.link_ns == pytest.approx(
        [SIZE / MACHINE.zero_copy_both_bytes_per_s * 1e9]
    )


def test_launch_overhead_is_no_sign_of_re_reading() -> None:
    costs = costs_of(Launch("k", 3_000, (whole(0, size=64),)), sizes=(64,))
    assert not costs.rereads.any()


def test_copies_stream_however_slow_they_are() -> None:
    copy = Launch("copy", 10**9, (whole(0, "write"), whole(1, "read")), kind="copy")
    assert not costs_of(copy).rereads.any()


def test_launches_that_share_a_tensor_do_not_each_pay_for_all_of_it() -> None:
    """A multi-tensor optimizer names whole tensors in each of its launches."""
    part = Launch("optimizer", STREAM_NS, tuple(whole(i) for i in range(4)))
    costs = costs_of(part, part, part, part, Launch("other", 1000, ()))
    assert not costs.rereads.any()
    # Four launches of a quarter of the bytes each: every tensor goes once.
    moved = np.bincount(np.tile(range(4), 4), costs.link_bytes)
    assert moved == pytest.approx([2 * SIZE] * 4, rel=1e-3)


def test_a_tensor_that_one_of_several_launches_names_is_touched_whole() -> None:
    """Tensors on the seam of two launches are shared, the others are not."""
    first = Launch("optimizer", 2 * STREAM_NS, (whole(0), whole(1)))
    second = Launch("optimizer", 2 * STREAM_NS, (whole(1), whole(2)))
    costs = costs_of(first, second, Launch("other", 1000, ()))
    assert costs.link_bytes == pytest.approx([2 * SIZE, SIZE, SIZE, 2 * SIZE])


def test_launches_of_other_functions_or_at_other_times_share_nothing() -> None:
    launches = [
        Launch(name, STREAM_NS, (whole(0),)) for name in ("scale", "add", "scale")
    ]
    costs = costs_of(*launches)
    assert costs.link_bytes == pytest.approx([2 * SIZE] * 3, rel=1e-3)


def test_a_range_that_is_read_and_written_goes_both_ways() -> None:
    touches = (whole(0, "read"), whole(0, "write"))
    costs = costs_of(Launch("k", 2 * STREAM_NS, touches))
    assert costs.link_bytes == pytest.approx([SIZE, SIZE])


def test_a_part_of_a_large_buffer_does_not_hide_that_it_is_re_read() -> None:
    """Views of one buffer each name all that follows them."""
    views = tuple(Touch(0, i * 8 * MIB, SIZE, "read") for i in range(32))
    kernels = [Launch(f"k{i}", STREAM_NS // 2, (view,)) for i, view in enumerate(views)]
    assert costs_of(*kernels).rereads.all()


def test_exact_ranges_are_taken_at_their_word() -> None:
    touches = (
        Touch(0, 0, SIZE, "read", "exact"),
        Touch(0, 8 * MIB, SIZE, "read", "exact"),
    )
    costs = costs_of(
        *(Launch(t.direction * i, STREAM_NS, (t,)) for i, t in enumerate(touches, 1))
    )
    assert not costs.rereads.any()


def test_a_small_operand_of_a_streaming_kernel_may_be_read_once_per_row() -> None:
    scale = 64 * 1024
    touches = (whole(0, "read"), Touch(1, 0, scale, "read"), whole(2, "write"))
    costs = costs_of(Launch("norm", 2 * STREAM_NS, touches), sizes=(SIZE, scale, SIZE))
    assert costs.rereads.tolist() == [False, True, False]
