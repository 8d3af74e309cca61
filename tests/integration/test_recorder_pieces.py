"""Into which pieces named memory is cut to be hashed, at the edges of what is there."""

from __future__ import annotations

import pytest
from hashed_jobs import ON, PRELUDE, checksums_by_launch
from recorder_jobs import Jobs

# A launch that names two places and touches neither.
NAME = """
def name(y, x):
    gpu.launch("scale", (1, 1), (1, 1), (y, ctypes.c_void_p), (x, ctypes.c_void_p),
               (2.0, ctypes.c_float), (0, ctypes.c_size_t))
"""


def hashed(jobs: Jobs, setting: str, step: str) -> tuple[int, list[object]]:
    """Return the address `x` of the first of two allocations, and what was hashed."""
    address = jobs.run(
        PRELUDE
        + NAME
        + f"""
x, end = gpu.alloc(1024).address, gpu.alloc(1024).address + 4096
{setting}
def step():
    {step}
iterations(step, step)
print(json.dumps(x))
""",
        **ON,
    )
    return address, [list(pieces) for pieces in checksums_by_launch(jobs)]


def test_the_last_byte_of_an_allocation_is_hashed(jobs: Jobs) -> None:
    x, pieces = hashed(jobs, "", "name(x + 4095, x + 4095)")
    assert pieces == [[(x + 4095, 1)]]


def test_a_block_beyond_its_allocation_is_hashed_as_far_as_that_goes(
    jobs: Jobs,
) -> None:
    x, pieces = hashed(jobs, "push_blocks((x, 8192))", "name(x, x)")
    assert pieces == [[(x, 4096)]]


def test_a_block_that_begins_before_its_allocation_is_hashed_from_there(
    jobs: Jobs,
) -> None:
    setting = "push_blocks((x - 512, 1024))"
    x, pieces = hashed(jobs, setting, "name(x + 8, x + 8)")
    assert pieces == [[(x + 8, 504)]]


def test_memory_between_two_places_is_not_hashed(jobs: Jobs) -> None:
    setting = "push_blocks((x, 256), (x + 256, 256), (x + 512, 256))"
    x, pieces = hashed(jobs, setting, "name(x + 512, x)")
    assert pieces == [[(x, 256), (x + 512, 256)]]


def test_places_that_touch_are_hashed_apart(jobs: Jobs) -> None:
    """One may be written and the other only read."""
    setting = "push_blocks((x, 256), (x + 256, 256))"
    x, pieces = hashed(jobs, setting, "name(x, x + 256)")
    assert pieces == [[(x, 256), (x + 256, 256)]]


@pytest.mark.parametrize(("start", "size"), [(1, 1), (3, 13), (15, 18), (8, 4000)])
def test_places_that_are_not_aligned_are_hashed_to_the_byte(
    start: int, size: int, jobs: Jobs
) -> None:
    setting = f"push_blocks((x, 4096), (x + {start}, {size}))"
    step = f"name(x + {start}, x + {start})"
    x, pieces = hashed(jobs, setting, step)
    rest = (x + start + size, 4096 - start - size)
    assert pieces == [[(x + start, size), rest]]


def test_what_lies_outside_of_all_allocations_is_not_hashed(jobs: Jobs) -> None:
    _, pieces = hashed(jobs, "", "name(max(x + 4096, end), 0)")
    assert pieces == [[]]
