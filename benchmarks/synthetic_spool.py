"""Make a spool as large as wanted, without a GPU, of a job that might have left it.

A training loop on PyTorch: kernels of some hundred functions, a caching allocator
that hands out the same addresses in every iteration, a queue on the GPU, jitter in
all times.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from transit.recorder import spool
from transit.recorder.spool import Records

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NOW_NS = 1_700_000_000_000_000_000
BASE = 0x7F00_0000_0000
MIB = 1 << 20
SEGMENT_BYTES = 512 * MIB
LASTING_BLOCKS = 3000  # weights, gradients, optimizer state
LAUNCHES_PER_BLOCK = 4
MULTI_TENSOR_ACCESSES = 120
STREAM = 0x5555_0000_1000
PID = 4242
KERNEL, COPY, SET, GRAPH = 1, 2, 3, 4
STARTED, ITERATION_END, PURPOSE_CHANGED = 1, 2, 5
DIRECTION = 1  # what the last iteration is recorded for
API_NAMES = ["cuMemcpyAsync", "cuMemsetD8Async", "cuGraphLaunch", "Made-up GPU"]
NUM_NAMES = 400


@dataclass(frozen=True)
class Shape:
    """How much the job does, and whether in graphs of so many nodes (0: none)."""

    work: int = 1_000_000
    iterations: int = 12
    graph_nodes: int = 0

    @property
    def period(self) -> int:
        """Kernels, copies and sets in an iteration."""
        return self.work // self.iterations


@dataclass(frozen=True)
class _Blocks:
    """What the framework's allocator hands out in an iteration, by birth."""

    address: Ints
    bytes: Ints
    born: Ints  # the piece of work before which; -1: before the recording
    died: Ints


class _Job:
    """One iteration, and how it is launched: the pieces of work of a graph at once."""

    def __init__(self, shape: Shape) -> None:
        self.rng = np.random.default_rng(7)
        self.shape = shape
        self.work = self._make_work()
        self.graph, self.node = self._group()
        starts_launch = (self.graph < 0) | (self.node == 0)
        self.launch = np.cumsum(starts_launch) - 1
        self.launches = self.work[starts_launch]
        is_graph = self.graph[starts_launch] >= 0
        for field in ("grid", "block"):
            self.launches[field][is_graph] = 0
        self.launches["kind"][is_graph] = GRAPH
        self.launches["name_id"][is_graph] = GRAPH - COPY
        self.blocks = self._allocate()
        self.touched, self.touched_end = self._touch()

    def _make_work(self) -> Records:
        """Return an iteration's pieces of work, as if each were launched by itself."""
        rng, count = self.rng, self.shape.period
        work = np.zeros(count, spool.LAUNCH)
        work["kind"] = rng.choice([KERNEL, COPY, SET], count, p=[0.94, 0.04, 0.02])
        is_kernel = work["kind"] == KERNEL
        # A few functions are most of the launches.
        function = np.minimum(rng.zipf(1.3, count), NUM_NAMES) - 1
        name = np.where(is_kernel, function + len(API_NAMES), work["kind"] - COPY)
        work["name_id"] = name
        work["grid"][:, 0] = np.where(is_kernel, rng.integers(1, 300, count) * 7, 0)
        work["block"][:, 0] = np.where(is_kernel, 64 << (name % 4), 0)
        for field in ("grid", "block"):
            work[field][:, 1:] = is_kernel[:, None]
        work["stream"] = STREAM + 256 * (rng.random(count) < 0.03)
        return work

    def _group(self) -> tuple[Ints, Ints]:
        """Return each piece's graph, -1 for a quarter of them, and its node there."""
        place = np.arange(self.shape.period)
        size, ahead = self.shape.graph_nodes, self.shape.period // 4
        if not size:
            return np.full(len(place), -1), place
        graph = np.where(place < ahead, -1, (place - ahead) // size)
        return graph, np.where(graph < 0, 0, (place - ahead) % size)

    def _allocate(self) -> _Blocks:
        """Give each block the lowest free address of its size, as PyTorch does."""
        rng, period = self.rng, self.shape.period
        count = period // LAUNCHES_PER_BLOCK
        sizes = 512 * np.unique(np.geomspace(1, 32 * 2048, 40).astype(np.int64))
        size = rng.choice(sizes, LASTING_BLOCKS + count)
        born = np.sort(rng.integers(0, period, count))
        # Activations live until their backward pass, the rest dies soon.
        lives_long = rng.random(count) < 0.2
        died = np.where(lives_long, period - born, born + rng.geometric(0.1, count))
        died = np.clip(died, born + 1, period)
        born = np.append(np.full(LASTING_BLOCKS, -1), born)
        died = np.append(np.full(LASTING_BLOCKS, period + 1), died)
        return _Blocks(_addresses(size, born, died), size, born, died)

    def _touch(self) -> tuple[Records, Ints]:
        """Return an iteration's accesses, by the piece of work, and their ends."""
        rng, blocks, kind = self.rng, self.blocks, self.work["kind"]
        count = 1 + rng.binomial(8, 0.56, len(kind))
        # An optimizer's launch names very many tensors.
        count[rng.random(len(kind)) < 0.005] = MULTI_TENSOR_ACCESSES
        count = np.where(kind == KERNEL, count, 1)
        place = np.repeat(np.arange(len(kind)), count)
        recent = np.searchsorted(blocks.born, place, "right") - 1
        recent -= rng.geometric(0.2, len(place))
        layer = place * LASTING_BLOCKS // len(kind)
        lasting = (layer + rng.integers(0, 12, len(place))) % LASTING_BLOCKS
        is_recent = (rng.random(len(place)) < 0.6) & (blocks.died[recent] > place)
        block = np.where(is_recent, recent, lasting)
        is_view = rng.random(len(place)) < 0.05
        inside = np.where(is_view, blocks.bytes[block] // 1024 * 512, 0)
        is_kernel = kind[place] == KERNEL
        touched = np.zeros(len(place), spool.ACCESS)
        touched["launch_id"] = place
        touched["address"] = blocks.address[block] + inside
        touched["allocation_id"] = (blocks.address[block] - BASE) // SEGMENT_BYTES
        touched["bytes"] = np.where(is_kernel, 0, blocks.bytes[block] - inside)
        touched["direction"] = np.where(is_kernel, 0, 2)
        touched["source"] = kind[place]
        first = np.cumsum(count) - count
        touched["param_offset"] = 8 * (np.arange(len(place)) - first[place])
        return touched, blocks.address[block] + blocks.bytes[block]

    def spool(self) -> dict[str, Records]:
        """Return the records of all iterations."""
        host_ns, start_ns, end_ns = self._run()
        launches = np.tile(self.launches, self.shape.iterations)
        launches["launch_id"] = np.arange(len(launches))
        launches["host_ns"] = host_ns
        # Other calls are numbered, too.
        launches["correlation_id"] = np.cumsum(self.rng.integers(1, 6, len(launches)))
        of_work = self._every(self.launch, len(self.launches))
        return {
            "launch": launches,
            "activity": self._activities(launches[of_work], start_ns, end_ns),
            "block": self._block_events(host_ns[of_work]),
            "history": _whole_history(),
            "mark": self._marks(host_ns),
            "allocation": self._segments(),
            "checksum": self._checksums(),
            **self._accesses(),
            **self._graphs(launches),
        }

    def _every(self, values: Ints, step: int) -> Ints:
        """Repeat values for each iteration, each time a step further."""
        return np.concatenate([values + step * i for i in range(self.shape.iterations)])

    def _run(self) -> tuple[Ints, Ints, Ints]:
        """Return when each launch was made, and when each piece of work ran."""
        rng = self.rng
        gaps = rng.lognormal(8.6, 0.5, len(self.launches) * self.shape.iterations)
        host_ns = NOW_NS + np.cumsum(gaps.astype(np.int64))
        of_work = self._every(self.launch, len(self.launches))
        usual = np.tile(rng.lognormal(8.3, 0.8, len(self.work)), self.shape.iterations)
        jitter = rng.normal(1, 0.03, len(usual))
        duration = np.maximum(usual * jitter // 32 * 32, 800).astype(np.int64)
        # The GPU takes one after the other, once the launch has reached it.
        before = np.cumsum(duration) - duration
        start = np.maximum.accumulate(host_ns[of_work] + 5_000 - before) + before
        return host_ns, start, start + duration

    def _activities(self, launched: Records, start_ns: Ints, end_ns: Ints) -> Records:
        graph = np.tile(self.graph, self.shape.iterations)
        activities = np.zeros(len(launched), spool.ACTIVITY)
        activities["start_ns"], activities["end_ns"] = start_ns, end_ns
        activities["correlation_id"] = launched["correlation_id"]
        activities["graph_id"] = graph + 1
        node_ids = np.where(self.graph < 0, 0, np.arange(len(self.work)) + 1)
        activities["graph_node_id"] = np.tile(node_ids, self.shape.iterations)
        for name in ("kind", "name_id"):
            activities[name] = np.tile(self.work[name], self.shape.iterations)
        activities["stream_id"] = 7
        return activities

    def _accesses(self) -> dict[str, Records]:
        place = self.touched["launch_id"].astype(np.int64)
        in_graph = self.graph[place] >= 0
        of_nodes = self.touched[in_graph]
        of_nodes["launch_id"] = (self.graph + 1 << 32 | self.node)[place[in_graph]]
        plain = np.tile(self.touched[~in_graph], self.shape.iterations)
        of_launch = self.launch[place[~in_graph]]
        plain["launch_id"] = self._every(of_launch, len(self.launches))
        return {"access": plain, "graph_access": of_nodes}

    def _checksums(self) -> Records:
        """Return what the last iteration's kernels changed: each its first argument."""
        hashed = self.touched["bytes"] == 0
        touched = self.touched[hashed]
        checksums = np.zeros(len(touched), spool.CHECKSUM)
        launch = self.launch[touched["launch_id"].astype(np.int64)]
        last = (self.shape.iterations - 1) * len(self.launches)
        checksums["launch_id"], checksums["address"] = last + launch, touched["address"]
        checksums["bytes"] = self.touched_end[hashed] - touched["address"]
        checksums["is_changed"] = touched["param_offset"] == 0
        return checksums

    def _graphs(self, launches: Records) -> dict[str, Records]:
        place = np.flatnonzero(self.graph >= 0)
        nodes = np.zeros(len(place), spool.GRAPH_NODE)
        nodes["node_id"], nodes["graph"] = place + 1, self.graph[place] + 1
        nodes["node"] = self.node[place]
        for name in ("kind", "name_id", "grid", "block"):
            nodes[name] = self.work[name][place]
        graph_launches = launches[launches["kind"] == GRAPH]
        launched = np.zeros(len(graph_launches), spool.GRAPH_LAUNCH)
        launched["launch_id"] = graph_launches["launch_id"]
        graphs = np.unique(self.graph[place]) + 1
        launched["graph"] = np.tile(graphs, self.shape.iterations)
        return {"graph_node": nodes, "graph_launch": launched}

    def _block_events(self, host_ns: Ints) -> Records:
        """Return what the allocator's history tells, in the order of time."""
        blocks, period = self.blocks, self.shape.period
        alive = np.zeros(LASTING_BLOCKS, spool.BLOCK)
        alive["host_ns"], alive["action"] = NOW_NS - 1, 3
        # The allocator knows nothing of what a graph does when it runs.
        passing = np.flatnonzero((blocks.born >= 0) & (self.graph[blocks.born] < 0))
        born = self._every(blocks.born[passing], period)
        died = self._every(blocks.died[passing], period)
        end_ns = np.append(host_ns, host_ns[-1] + 1000)
        events = np.zeros(2 * len(born), spool.BLOCK)
        # A block is freed before the next one is handed out.
        events["host_ns"] = np.append(end_ns[born] - 300, end_ns[died] - 600)
        events["action"] = np.repeat([1, 2], len(born))
        for name, values in (("address", blocks.address), ("bytes", blocks.bytes)):
            alive[name] = values[:LASTING_BLOCKS]
            events[name] = np.tile(values[passing], 2 * self.shape.iterations)
        return np.append(alive, events[np.argsort(events["host_ns"], kind="stable")])

    def _marks(self, host_ns: Ints) -> Records:
        marks = np.zeros(self.shape.iterations + 1, spool.MARK)
        marks["launch_id"] = np.arange(len(marks)) * len(self.launches)
        marks["host_ns"] = np.append(host_ns, host_ns[-1])[marks["launch_id"]]
        marks["kind"], marks["kind"][0] = ITERATION_END, STARTED
        marks["value"] = np.arange(len(marks)) + 2
        inspect = marks[-2:-1].copy()
        inspect["kind"], inspect["value"] = PURPOSE_CHANGED, DIRECTION
        return np.concatenate([marks[:-1], inspect, marks[-1:]])

    def _segments(self) -> Records:
        last = int(self.blocks.address.max() - BASE) // SEGMENT_BYTES
        segments = np.zeros(last + 1, spool.ALLOCATION)
        ids = np.arange(len(segments))
        segments["allocation_id"] = segments["ordinal"] = ids
        segments["address"] = BASE + ids * SEGMENT_BYTES
        segments["bytes"], segments["host_ns"] = SEGMENT_BYTES, NOW_NS - 1000
        segments["api"], segments["caller_name_id"] = 1, len(API_NAMES) - 1
        return segments


def _whole_history() -> Records:
    history = np.zeros(1, spool.RECORDS["history"])
    history["end_ns"] = 1 << 61
    return history


def _addresses(size: Ints, born: Ints, died: Ints) -> Ints:
    address = np.zeros(len(size), np.int64)
    free: dict[int, list[int]] = {wanted: [] for wanted in size.tolist()}
    dying: list[tuple[int, int, int]] = []
    end = BASE
    for row, (wanted, at) in enumerate(zip(size.tolist(), born.tolist(), strict=True)):
        while dying and dying[0][0] <= at:
            _, dead, its_size = heapq.heappop(dying)
            heapq.heappush(free[its_size], dead)
        if free[wanted]:
            address[row] = heapq.heappop(free[wanted])
        else:
            if end % SEGMENT_BYTES + wanted > SEGMENT_BYTES:
                end += -end % SEGMENT_BYTES
            address[row], end = end, end + wanted
        heapq.heappush(dying, (int(died[row]), int(address[row]), wanted))
    return address


def _names() -> Records:
    """Return names as long as those of templates are."""
    texts = API_NAMES + [
        f"_ZN2at6native{number:04}vectorized_elementwise_kernelILi4E"
        + "NS0_15Functor" * 5
        for number in range(NUM_NAMES)
    ]
    pieces = [
        (name_id, piece, len(text[at : at + 56]), text[at : at + 56])
        for name_id, text in enumerate(texts)
        for piece, at in enumerate(range(0, len(text), 56))
    ]
    return np.array(pieces, spool.NAME)


def _process() -> dict[str, Records]:
    process = np.zeros(1, spool.PROCESS)
    process["world_size"] = process["device_count"] = 1
    process["cupti_version"], process["driver_version"] = 130000, 13000
    for clock in ("realtime", "monotonic", "cupti"):
        process[f"clock_{clock}_ns"] = NOW_NS
    device = np.zeros(1, spool.DEVICE)
    device["compute_capability"], device["num_multiprocessors"] = 90, 132
    device["memory_bytes"], device["name_id"] = 141 << 30, len(API_NAMES) - 1
    return {"process": process, "device": device}


def write_spool(folder: Path, shape: Shape) -> Path:
    """Write the spool of one process; the same for the same shape."""
    folder.mkdir(parents=True)
    files: dict[str, Records] = {
        **_Job(shape).spool(),
        **_process(),
        "name": _names(),
    }
    for record_type, records in files.items():
        header: Any = np.zeros(1, spool.HEADER)
        header["magic"], header["version"] = spool.MAGIC, spool.VERSION
        header["header_bytes"] = spool.HEADER.itemsize
        header["record_type"] = record_type.encode()
        header["record_bytes"], header["pid"] = records.dtype.itemsize, PID
        header["num_records"] = len(records)
        with (folder / f"{record_type}.spool").open("wb") as file:
            header.tofile(file)
            records.tofile(file)
    return folder
