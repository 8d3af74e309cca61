"""The simulated CUPTI, as a client of the real one would use it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
HTOD, DTOH = 1, 2  # copies and migrations alike
MEMORY2 = 49
DEVICE = 3
MIB = 1 << 20

RunJob = Callable[..., Any]


@pytest.fixture
def run_job(simgpu_env: Mapping[str, str]) -> RunJob:
    """Run statements after the client's names in a process; return its last line."""

    def run(statements: str, **variables: str) -> Any:
        source = "from cupti_client import *\nimport json\n"
        path = f"{HERE}:{simgpu_env['PYTHONPATH']}"
        done = subprocess.run(
            [sys.executable, "-c", source + textwrap.dedent(statements)],
            env={**simgpu_env, "PYTHONPATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_version_and_names_are_those_of_the_headers(run_job: RunJob) -> None:
    version, result, call = run_job("""
        lib, version, text = Client().lib, c_uint32(), ctypes.c_char_p()
        assert not lib.cuptiGetVersion(byref(version))
        assert not lib.cuptiGetResultString(13, byref(text))
        result = text.value.decode()
        assert not lib.cuptiGetCallbackName(1, CBID_LAUNCH_KERNEL, byref(text))
        print(json.dumps([version.value, result, text.value.decode()]))
        assert lib.cuptiGetCallbackName(1, 100000, byref(text)) == INVALID_PARAMETER
        assert lib.cuptiGetVersion(None) == INVALID_PARAMETER
        """)
    assert version == 130001
    assert result == "CUPTI_ERROR_NOT_READY"
    assert call == "cuLaunchKernel"


def test_second_subscriber_is_told_who_was_first(run_job: RunJob) -> None:
    answers = run_job("""
        first, second, answers = Client(), Client(), []
        answers.append(first.subscribe(b"first"))
        answers.append(second.subscribe(b"second"))
        assert first.unsubscribe() == SUCCESS
        answers.append(second.subscribe(None))
        answers.append(first.subscribe(b"first"))
        print(json.dumps(answers))
        """)
    assert answers == [
        [0, ""],
        [39, "CUPTI for first"],
        [0, ""],
        [39, "CUPTI for <not provided>"],
    ]


def test_held_cupti_names_its_holder_and_records_nothing(run_job: RunJob) -> None:
    answers = run_job(
        """
        client = Client()
        print(json.dumps([client.subscribe(b"transit"), client.enable(KERNEL)]))
        """,
        TRANSIT_SIM_CUPTI_HELD="Nsight Systems",
    )
    assert answers == [[39, "Nsight Systems"], [39]]


def test_memory_counters_need_a_context_and_a_configuration(run_job: RunJob) -> None:
    answers = run_job("""
        client, answers = Client(), []
        call(cu.cuInit, 0)
        assert client.configure_counters() == SUCCESS
        answers += client.enable(UNIFIED_MEMORY_COUNTER)
        job = Job()
        answers += client.enable(UNIFIED_MEMORY_COUNTER)
        print(json.dumps(answers))
        """)
    assert answers == [13, 0]
    unconfigured = run_job("""
        call(cu.cuInit, 0)
        job = Job()
        print(json.dumps(Client().enable(UNIFIED_MEMORY_COUNTER, 0, 10000)))
        """)
    assert unconfigured == [13, 14, 14]


def test_without_the_simulated_driver_cupti_is_not_initialized(
    native_libs: Path, simgpu_env: Mapping[str, str], tmp_path: Path
) -> None:
    library = shutil.copy(native_libs / "simgpu" / "lib" / "libcupti.so.13", tmp_path)
    empty_driver = tmp_path / "libcuda.so.1"
    shutil.copy(library, empty_driver)  # any library that is no simulated driver
    source = f"""
import ctypes
cupti = ctypes.CDLL({str(library)!r})
function = ctypes.CFUNCTYPE(None)(lambda: None)
assert cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), function, None) == 15
assert cupti.cuptiActivityEnable(10) == 15
"""
    env = {**simgpu_env, "LD_LIBRARY_PATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", source], env=env, check=True, timeout=60)


def test_context_callback_comes_once_before_any_work(run_job: RunJob) -> None:
    callbacks = run_job("""
        client = Client()
        client.subscribe(b"test")
        assert client.enable_callback(RESOURCE, CBID_CONTEXT_CREATED) == SUCCESS
        call(cu.cuInit, 0)
        assert client.callbacks == []
        Job()
        client.callbacks.append(threading.get_ident())
        print(json.dumps(client.callbacks))
        """)
    created, thread = callbacks
    assert created == {"domain": 3, "cbid": 1, "thread": thread}


def test_launch_callbacks_carry_the_call_and_match_the_record(run_job: RunJob) -> None:
    result = run_job("""
        call(cu.cuInit, 0)
        client, job = Client(), Job()
        client.subscribe(b"test")
        assert client.enable_callback(DRIVER_API, CBID_LAUNCH_KERNEL) == SUCCESS
        client.register()
        assert client.enable(KERNEL) == [SUCCESS]
        memory = call(cu.cuMemAlloc, 4096)
        job.fill(int(memory), 1.0, 1000)
        job.synchronize()
        client.flush()
        assert client.unsubscribe() == SUCCESS
        job.fill(int(memory), 2.0, 1000)
        job.synchronize()
        print(json.dumps({
            "callbacks": client.callbacks,
            "kernels": client.of_kind(KERNEL),
            "thread": threading.get_ident(),
            "function": int(job.fill_function),
        }))
        """)
    enter, exit_ = result["callbacks"]
    (kernel,) = result["kernels"]
    for callback in (enter, exit_):
        assert callback["function"] == "cuLaunchKernel"
        assert callback["symbol"] == "fill"
        assert callback["thread"] == result["thread"]
        assert callback["first_param"] == result["function"]
        assert callback["correlation_id"] == kernel["correlation_id"]
    assert (enter["site"], exit_["site"]) == (0, 1)
    # What the enter callback stored is what the exit callback finds.
    assert exit_["correlation_data"] == enter["correlation_id"] != 0
    assert (kernel["name"], kernel["grid_x"], kernel["block_x"]) == ("fill", 16, 64)
    assert 0 < kernel["start"] < kernel["end"]


def test_driver_calls_made_in_a_callback_are_called_back_too(run_job: RunJob) -> None:
    functions = run_job("""
        call(cu.cuInit, 0)
        client, job = Client(), Job()
        client.subscribe(b"test")
        for cbid in (CBID_LAUNCH_KERNEL, CBID_MEM_GET_INFO):
            assert client.enable_callback(DRIVER_API, cbid) == SUCCESS
        memory = int(call(cu.cuMemAlloc, 4096))
        def ask(entry):
            if entry["cbid"] == CBID_LAUNCH_KERNEL and entry["site"] == 0:
                call(cu.cuMemGetInfo)
        client.on_callback = ask
        job.fill(memory, 1.0, 1)
        print(json.dumps([
            [entry["function"], entry["site"], entry["correlation_data"] != 0]
            for entry in client.callbacks
        ]))
        """)
    assert functions == [
        ["cuLaunchKernel", 0, False],
        ["cuMemGetInfo_v2", 0, False],
        ["cuMemGetInfo_v2", 1, True],
        ["cuLaunchKernel", 1, True],
    ]


def test_each_kind_of_work_has_its_record(run_job: RunJob) -> None:
    records, address = run_job("""
        call(cu.cuInit, 0)
        client, job = Client(), Job()
        client.register()
        client.enable(KERNEL, MEMCPY, MEMSET, MEMORY2)
        memory = int(call(cu.cuMemAlloc, 3 << 20))
        host = (ctypes.c_float * 256)()
        call(cu.cuMemcpyHtoDAsync, memory, ctypes.addressof(host), 1024, job.stream)
        call(cu.cuMemsetD32Async, memory, 7, 100, job.stream)
        job.fill(memory, 1.0, 5)
        call(cu.cuMemcpyDtoHAsync, ctypes.addressof(host), memory, 20, job.stream)
        job.synchronize()
        call(cu.cuMemFree, memory)
        assert client.flush() == SUCCESS
        assert list(host)[:6] == [1.0] * 5 + [0.0]
        print(json.dumps([client.records, memory]))
        """)
    alloc, free = (r for r in records if r["kind"] == MEMORY2)
    assert (alloc["operation"], free["operation"]) == (1, 2)
    assert alloc["address"] == free["address"] == address
    assert alloc["bytes"] == 3 * MIB
    assert alloc["memory_kind"] == free["memory_kind"] == DEVICE

    work = [record for record in records if record["kind"] != MEMORY2]
    upload, fill_set, kernel, download = work
    assert (upload["copy_kind"], upload["bytes"]) == (HTOD, 1024)
    assert (fill_set["value"], fill_set["bytes"]) == (7, 400)
    assert kernel["name"] == "fill"
    assert (download["copy_kind"], download["bytes"]) == (DTOH, 20)
    for before, after in pairwise(work):
        assert before["start"] < before["end"] <= after["start"]
        assert before["correlation_id"] < after["correlation_id"]


FILLS = """
call(cu.cuInit, 0)
job = Job()
memory = int(call(cu.cuMemAlloc, 4096))
client.register()
client.enable(KERNEL)
for _ in range({count}):
    job.fill(memory, 1.0, 64)
job.synchronize()
"""


def test_refused_buffers_are_counted_as_dropped_records(run_job: RunJob) -> None:
    dropped = run_job(
        "client = Client(lend=False)"
        + FILLS.format(count=20)
        + """
assert client.flush() == SUCCESS
print(json.dumps([client.num_dropped(), client.num_dropped()]))
"""
    )
    assert dropped == [20, 0]


def test_full_buffers_come_back_without_a_flush(run_job: RunJob) -> None:
    seen = run_job(
        "client = Client(max_records=3)"
        + FILLS.format(count=10)
        + """
import time
while client.num_completed < 3:  # three full ones; the fourth holds one record
    time.sleep(0.001)
before = client.num_completed
own_thread = threading.get_ident() not in client.delivery_threads
client.flush()
print(json.dumps({
    "completed": [before, client.num_completed],
    "requested": client.num_requested,
    "ids": [record["correlation_id"] for record in client.of_kind(KERNEL)],
    "own_thread": own_thread,
}))
"""
    )
    assert seen["completed"] == [3, 4]
    assert seen["requested"] == 4
    assert seen["own_thread"]
    assert len(seen["ids"]) == len(set(seen["ids"])) == 10


def test_a_buffer_too_small_for_a_record_loses_it_and_says_so(run_job: RunJob) -> None:
    seen = run_job(
        "client = Client(buffer_bytes=64)"
        + FILLS.format(count=4)
        + """
client.flush()
print(json.dumps([client.num_dropped(), client.records]))
"""
    )
    assert seen == [4, []]


def test_disabled_kinds_leave_no_records(run_job: RunJob) -> None:
    counts = run_job(
        "client = Client()"
        + FILLS.format(count=5)
        + """
assert client.lib.cuptiActivityDisable(KERNEL) == SUCCESS
job.fill(memory, 1.0, 64)
job.synchronize()
client.flush()
print(json.dumps([len(client.records), client.num_dropped()]))
"""
    )
    assert counts == [5, 0]


def test_migrations_come_in_pieces_of_one_block(run_job: RunJob) -> None:
    records, address = run_job("""
        call(cu.cuInit, 0)
        client, job = Client(), Job()
        client.register()
        client.configure_counters()
        assert client.enable(UNIFIED_MEMORY_COUNTER) == [SUCCESS]
        size = 7 << 20
        attach_global = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
        memory = int(call(cu.cuMemAllocManaged, size, attach_global))
        location = cu.CUmemLocation()
        for place in "HOST", "DEVICE":
            name = f"CU_MEM_LOCATION_TYPE_{place}"
            location.type = getattr(cu.CUmemLocationType, name)
            call(cu.cuMemPrefetchAsync, memory, size, location, 0, job.stream)
        job.synchronize()
        client.flush()
        print(json.dumps([client.of_kind(UNIFIED_MEMORY_COUNTER), memory]))
        """)
    pieces = sorted(
        (r for r in records if r["counter"] == HTOD), key=lambda r: r["address"]
    )
    assert pieces[0]["address"] == address
    assert sum(piece["value"] for piece in pieces) == 7 * MIB
    for piece in pieces:
        last = piece["address"] + piece["value"] - 1
        assert piece["address"] // (2 * MIB) == last // (2 * MIB)
    for before, after in pairwise(pieces):
        assert before["address"] + before["value"] == after["address"]


def test_nodes_of_a_graph_are_told_apart(run_job: RunJob) -> None:
    told = run_job("""
        call(cu.cuInit, 0)
        client, job = Client(), Job()
        assert client.subscribe(b"test")[0] == SUCCESS
        assert client.enable_callback(RESOURCE, CBID_GRAPH_NODE_CLONED) == SUCCESS
        client.register()
        assert client.enable(KERNEL, MEMCPY, MEMSET) == [SUCCESS] * 3
        clones = []

        def note_clone(entry):
            ids = [ctypes.c_uint64() for _ in range(2)]
            for name, id in zip(("original", "node"), ids):
                assert not client.lib.cuptiGetGraphNodeId(entry[name], byref(id))
            clones.append([id.value for id in ids])

        client.on_callback = note_clone
        x, y = (int(call(cu.cuMemAlloc, 1024)) for _ in range(2))
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        call(cu.cuStreamBeginCapture, job.stream, mode)
        call(cu.cuMemsetD32Async, y, 0, 256, job.stream)
        job.fill(x, 1.0, 256)
        call(cu.cuMemcpyDtoDAsync, y, x, 1024, job.stream)
        graph = call(cu.cuStreamEndCapture, job.stream)
        executable = call(cu.cuGraphInstantiate, graph, 0)
        exec_id = c_uint32()
        handle = c_void_p(int(executable))
        assert not client.lib.cuptiGetGraphExecId(handle, byref(exec_id))
        assert client.lib.cuptiGetGraphId(handle, byref(exec_id)) == INVALID_PARAMETER
        for _ in range(2):
            call(cu.cuGraphLaunch, executable, job.stream)
        job.fill(x, 2.0, 256)
        job.synchronize()
        client.flush()
        print(json.dumps([client.records, clones, exec_id.value]))
        """)
    records, clones, exec_id = told
    records.sort(key=lambda record: record["start"])
    first, second, alone = records[:3], records[3:6], records[6:]
    originals, cloned = zip(*clones, strict=True)
    assert len({*originals, *cloned}) == 6
    for launch in (first, second):
        assert [record["graph_node"] for record in launch] == list(cloned)
        assert {record["graph"] for record in launch} == {exec_id}
        assert len({record["correlation_id"] for record in launch}) == 1
    assert first[0]["correlation_id"] != second[0]["correlation_id"]
    assert [(r["graph"], r["graph_node"]) for r in alone] == [(0, 0)]
