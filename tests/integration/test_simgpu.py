"""The simulated driver, used as programs use it: each test is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

PROGRAMS = Path(__file__).with_name("simgpu_programs")
TIMEOUT_S = 60
# Those that need nothing set, by topic.
ON_ANY_CARD = {
    "kernels": [
        "kernels_and_copies_move_data",
        "packed_arguments_are_read",
        "parameters_are_laid_out_as_in_the_ptx",
        "bad_modules_are_refused",
    ],
    "memory": [
        "one_handle_at_two_addresses_is_one_memory",
        "mapping_is_refused_where_a_gpu_refuses_it",
        "access_before_it_is_set_fails_for_good",
    ],
    "managed_memory": [
        "managed_pages_fault_in_and_stay",
        "advised_pages_are_used_in_place",
        "read_mostly_pages_are_duplicated",
    ],
    "streams": [
        "ordered_memory_is_freed_when_its_stream_gets_there",
        "work_outlives_its_module_and_stream",
        "streams_wait_for_events_and_values",
        "the_default_stream_orders_the_others",
    ],
    "graphs": [
        "a_captured_graph_repeats_its_work",
        "an_executable_graph_takes_new_parameters",
        "an_executable_graph_is_updated_from_another",
        "a_child_graph_runs_where_its_node_is",
        "capture_refuses_unsafe_calls",
    ],
    "processes": [
        "symbols_are_found_by_version_and_stream",
        "a_fork_child_cannot_use_the_driver",
        "threads_share_the_device",
    ],
}


class RunProgram(Protocol):
    def __call__(self, topic: str, name: str, **variables: str) -> str: ...


@pytest.fixture
def run_program(simgpu_env: Mapping[str, str]) -> RunProgram:
    """Run one of the programs to its good end; returns what it wrote to stderr."""

    def run(topic: str, name: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, PROGRAMS, topic, name],
            env={**simgpu_env, **variables},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return run


@pytest.mark.parametrize(
    ("topic", "name"),
    [(topic, name) for topic, names in ON_ANY_CARD.items() for name in names],
)
def test_program(run_program: RunProgram, topic: str, name: str) -> None:
    run_program(topic, name)


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("memory", "memory_is_counted_and_ends"),
        ("managed_memory", "the_least_recently_used_pages_leave_a_full_card"),
    ],
)
def test_program_on_a_small_card(
    run_program: RunProgram, topic: str, name: str
) -> None:
    run_program(topic, name, TRANSIT_SIM_GPU_MEMORY="64MiB")


def test_each_device_has_its_own_memory(run_program: RunProgram) -> None:
    run_program("memory", "each_device_has_its_own_memory", TRANSIT_SIM_GPU_COUNT="2")


def test_an_unknown_kernel_is_named(run_program: RunProgram) -> None:
    assert "'unheard_of'" in run_program(
        "kernels", "an_unknown_kernel_is_refused_at_its_launch"
    )


def test_chosen_calls_fail(run_program: RunProgram) -> None:
    faults = "cuMemAlloc:2=2,cuMemcpyHtoD:*=999,nonsense"
    assert "'nonsense'" in run_program(
        "processes", "chosen_calls_fail", TRANSIT_SIM_FAIL=faults
    )


def test_a_size_that_is_none_is_said(run_program: RunProgram) -> None:
    said = run_program(
        "processes", "threads_share_the_device", TRANSIT_SIM_GPU_MEMORY="lots"
    )
    assert "TRANSIT_SIM_GPU_MEMORY" in said
