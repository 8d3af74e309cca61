"""Writes large traces of a made-up training loop, for measuring what reads traces.

The loop trains a transformer and sums gradients up over micro-batches. Each tensor is a
range of its own: in every layer 4 weights, their gradients and two moments of each, and
8 activations, of which each micro-batch has its own block in the same place. Kernels
name exact ranges; between those of the layers a few scratch tensors are handed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transit.traces import schema
from transit.traces.manifest import (
    Clocks,
    DeviceInfo,
    Fingerprints,
    Losses,
    Manifest,
    RankInfo,
)
from transit.traces.writer import TraceWriter

Ints = npt.NDArray[np.int64]
Tables = dict[str, pa.Table]

MIB = 1 << 20
START_NS = 1_700_000_000_000_000_000
GAP_NS = 2_000  # between kernels
HBM_BYTES_PER_S = 4e12
MATMUL_NS = 400_000
WEIGHTS, ACTIVATIONS, SCRATCH = 4, 8, 8
# Tensors of a layer: weights, gradients, moments (two kinds), activations.
GRADIENT, MOMENT1, MOMENT2, ACTIVATION = (n * WEIGHTS for n in (1, 2, 3, 4))
TENSORS = ACTIVATION + ACTIVATIONS
SIZES = (12, 4, 16, 16) * 4 + (8, 24, 8, 8, 8, 32, 32, 8)  # in MiB
SCRATCH_MIB = 32


class _Access(NamedTuple):
    kernel: int  # within its part of a layer
    tensor: int  # of the layer; of the one before if negative; scratch from TENSORS on
    reads: bool
    writes: bool


@dataclass(frozen=True)
class _Part:
    """What a layer launches forward, backward, or to update its weights."""

    accesses: Ints  # one row per access, as in _Access
    is_matmul: npt.NDArray[np.bool_]

    @property
    def num_kernels(self) -> int:
        return len(self.is_matmul)


@dataclass(frozen=True)
class Loop:
    """How large the loop is."""

    layers: int
    micro_batches: int
    iterations: int = 4

    @property
    def launches(self) -> int:
        """Launches of an iteration."""
        passes = FORWARD.num_kernels + BACKWARD.num_kernels
        per_layer = self.micro_batches * passes + UPDATE.num_kernels
        return self.layers * per_layer

    @property
    def num_tensors(self) -> int:
        """Tensors, each an allocation of its own."""
        return self.layers * TENSORS + SCRATCH


def _forward() -> _Part:
    """Run each activation from the one before, and two kernels on scratch."""
    rows: list[_Access] = []
    matmul: list[bool] = []
    for nth in range(ACTIVATIONS):
        kernel = len(matmul)
        source = ACTIVATION + nth - 1 if nth else -1
        rows.append(_Access(kernel, source, True, False))
        if nth % 2 == 0:
            rows.append(_Access(kernel, nth // 2, True, False))
        rows.append(_Access(kernel, TENSORS + nth, False, True))
        rows.append(_Access(kernel + 1, TENSORS + nth, True, False))
        rows.append(_Access(kernel + 1, ACTIVATION + nth, False, True))
        matmul += [nth % 2 == 0, False]
    return _Part(np.array(rows), np.array(matmul))


def _backward() -> _Part:
    """Run what each activation needs, weights' gradients summed up."""
    rows: list[_Access] = []
    matmul: list[bool] = []
    for nth in reversed(range(ACTIVATIONS)):
        kernel = len(matmul)
        above, below = TENSORS + (nth + 1) % SCRATCH, TENSORS + nth
        rows.append(_Access(kernel, ACTIVATION + nth, True, False))
        rows.append(_Access(kernel, above, True, False))
        rows.append(_Access(kernel, below, False, True))
        rows.append(_Access(kernel + 1, below, True, True))
        rows.append(_Access(kernel + 1, ACTIVATION + nth, True, False))
        matmul += [False, False]
        if nth % 2 == 0:
            rows.append(_Access(kernel + 2, below, True, False))
            rows.append(_Access(kernel + 2, ACTIVATION + nth, True, False))
            rows.append(_Access(kernel + 2, GRADIENT + nth // 2, True, True))
            rows.append(_Access(kernel + 3, nth // 2, True, False))
            rows.append(_Access(kernel + 3, below, True, True))
            matmul += [True, True]
    return _Part(np.array(rows), np.array(matmul))


def _update() -> _Part:
    rows = [
        _Access(nth, kind + nth, True, kind != GRADIENT)
        for nth in range(WEIGHTS)
        for kind in (0, GRADIENT, MOMENT1, MOMENT2)
    ]
    return _Part(np.array(rows), np.zeros(WEIGHTS, np.bool_))


FORWARD, BACKWARD, UPDATE = _forward(), _backward(), _update()


@dataclass(frozen=True)
class _Iteration:
    """The launches of one iteration and what they touch."""

    duration_ns: Ints
    signature: npt.NDArray[np.uint64]
    position: Ints  # of each access
    tensor: Ints
    reads: npt.NDArray[np.bool_]
    writes: npt.NDArray[np.bool_]


def _iteration(loop: Loop) -> _Iteration:
    layers = np.arange(loop.layers)
    order = [(FORWARD, layers), (BACKWARD, layers[::-1])] * loop.micro_batches
    order.append((UPDATE, layers))
    accesses, matmul, kind, first = [], [], [], 0
    for part, of_layer in order:
        base = first + np.arange(loop.layers)[:, None] * part.num_kernels
        tensor = part.accesses[:, 1] + of_layer[:, None] * TENSORS
        shared = np.broadcast_to(part.accesses[:, 1] >= TENSORS, tensor.shape)
        scratch = part.accesses[:, 1] - TENSORS + loop.layers * TENSORS
        tensor = np.where(shared, scratch, np.maximum(tensor, 0))
        flags = np.broadcast_to(part.accesses[:, 2:], (*tensor.shape, 2))
        position = base + part.accesses[:, 0]
        accesses.append(np.dstack([position, tensor, flags]).reshape(-1, 4))
        matmul.append(np.tile(part.is_matmul, loop.layers))
        kinds = np.arange(part.num_kernels) + 1000 * (part is BACKWARD)
        kind.append(np.tile(kinds + 2000 * (part is UPDATE), loop.layers))
        first += part.num_kernels * loop.layers
    position, tensor, reads, writes = np.concatenate(accesses).T
    order_of = np.lexsort((tensor, position))
    position, tensor = position[order_of], tensor[order_of]
    moved = np.bincount(position, tensor_bytes(loop)[tensor], first)
    streaming_ns = 3_000 + moved / HBM_BYTES_PER_S * 1e9
    duration = np.where(np.concatenate(matmul), MATMUL_NS, streaming_ns)
    return _Iteration(
        duration_ns=duration.astype(np.int64),
        signature=np.concatenate(kind).astype(np.uint64),
        position=position,
        tensor=tensor,
        reads=reads[order_of] > 0,
        writes=writes[order_of] > 0,
    )


def tensor_bytes(loop: Loop) -> Ints:
    """Return the size of each tensor."""
    sizes = np.r_[np.tile(SIZES, loop.layers), np.full(SCRATCH, SCRATCH_MIB)]
    return np.asarray(sizes * MIB, np.int64)


def build_tables(loop: Loop) -> Tables:
    """Return all tables of one rank."""
    one = _iteration(loop)
    tables = {name: schema.empty(name) for name in schema.TABLES}
    return tables | {
        "launches": _launches(loop, one),
        "accesses": _accesses(loop, one),
        "allocations": _allocations(loop),
        "blocks": _blocks(loop, one),
        "iterations": _marks(loop),
    }


def _table(of: str, rows: int, **columns: Any) -> pa.Table:
    """Make a table of arrays, or of values that all rows have; the rest is null."""
    arrays = []
    for field in schema.TABLES[of]:
        value = columns.get(field.name)
        if isinstance(value, pa.Array):
            arrays.append(value.cast(field.type))
        elif isinstance(value, np.ndarray):
            whole: Any = value
            arrays.append(pa.array(whole).cast(field.type))
        else:
            kind = field.type.value_type if field.name in _names(of) else field.type
            scalar = pa.scalar(value, kind)
            arrays.append(pa.repeat(scalar, rows).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema.TABLES[of])


def _names(name: str) -> list[str]:
    """Return the columns that hold names."""
    fields = schema.TABLES[name]
    return [field.name for field in fields if pa.types.is_dictionary(field.type)]


def _launches(loop: Loop, one: _Iteration) -> pa.Table:
    duration = np.tile(one.duration_ns, loop.iterations)
    signature = np.tile(one.signature, loop.iterations)
    ids = np.arange(len(duration))
    start_ns = START_NS + np.cumsum(duration + GAP_NS) - duration
    kinds, kind = np.unique(signature, return_inverse=True)
    names = pa.array([f"kernel{value}" for value in kinds])
    return _table(
        "launches",
        len(ids),
        launch_id=ids,
        correlation_id=ids,
        kind="kernel",
        name=pa.DictionaryArray.from_arrays(pa.array(kind, pa.int32()), names),
        signature=signature,
        device=0,
        stream=7,
        **dict.fromkeys(("grid_x", "block_x"), 128),
        **dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1),
        host_ns=start_ns - GAP_NS,
        start_ns=start_ns,
        end_ns=start_ns + duration,
    )


def _accesses(loop: Loop, one: _Iteration) -> pa.Table:
    first = np.repeat(np.arange(loop.iterations) * loop.launches, len(one.position))
    tensor = np.tile(one.tensor, loop.iterations)
    code = np.tile(one.writes * 2 - (one.writes & ~one.reads), loop.iterations)
    return _table(
        "accesses",
        len(tensor),
        launch_id=first + np.tile(one.position, loop.iterations),
        allocation_id=tensor,
        offset=np.zeros(len(tensor), np.int64),
        bytes=tensor_bytes(loop)[tensor],
        direction=pa.DictionaryArray.from_arrays(
            pa.array(code, pa.int32()), pa.array(["read", "write", "both"])
        ),
        source="parameter",
        extent="exact",
        direction_source="argument",
    )


def _allocations(loop: Loop) -> pa.Table:
    sizes = tensor_bytes(loop)
    ids = np.arange(len(sizes))
    return _table(
        "allocations",
        len(ids),
        allocation_id=ids,
        device=0,
        address=(0x7F00_0000_0000 + np.cumsum(sizes) - sizes),
        bytes=sizes,
        api="mem_alloc",
        caller="libcudart.so.13",
        alloc_launch_id=0,
        ordinal=ids,
    )


def _blocks(loop: Loop, one: _Iteration) -> pa.Table:
    """Return the blocks: those of activations live from forward to backward."""
    sizes = tensor_bytes(loop)
    within = np.arange(len(sizes)) % TENSORS
    scratch = np.arange(len(sizes)) >= loop.layers * TENSORS
    is_activation = (within >= ACTIVATION) & ~scratch
    kept = np.flatnonzero(~is_activation)
    chosen = is_activation[one.tensor]
    tensor, position = one.tensor[chosen], one.position[chosen]
    passes = loop.layers * (FORWARD.num_kernels + BACKWARD.num_kernels)
    keys = tensor * loop.micro_batches + position // passes
    order = np.lexsort((position, keys))
    keys, position = keys[order], position[order]
    _, first = np.unique(keys, return_index=True)
    begin, stop = position[first], position[np.r_[first[1:], len(keys)] - 1] + 1
    turn = np.repeat(np.arange(loop.iterations) * loop.launches, len(first))
    owner = np.r_[kept, np.tile(keys[first] // loop.micro_batches, loop.iterations)]
    none = np.full(len(kept), -1)
    born = np.r_[none, turn + np.tile(begin, loop.iterations)]
    freed = np.r_[none, turn + np.tile(stop, loop.iterations)]
    order = np.argsort(owner, kind="stable")
    owner, born, freed = owner[order], born[order], freed[order]
    return _table(
        "blocks",
        len(owner),
        allocation_id=owner,
        offset=np.zeros(len(owner), np.int64),
        bytes=sizes[owner],
        alloc_launch_id=pa.array(born, mask=born < 0),
        free_launch_id=pa.array(freed, mask=freed < 0),
    )


def _marks(loop: Loop) -> pa.Table:
    first = np.arange(loop.iterations) * loop.launches
    return _table(
        "iterations",
        loop.iterations,
        iteration=np.arange(loop.iterations) + 1,
        first_launch_id=first,
        last_launch_id=first + loop.launches - 1,
        found_by="optimizer step",
        purpose="timing",
    )


def write_trace(path: Path, loop: Loop, *, ranks: int = 1) -> None:
    """Write a trace whose ranks all do the same."""
    tables = build_tables(loop)
    with TraceWriter(path) as writer:
        for rank in range(ranks):
            for name, rows in tables.items():
                writer.write(rank, name, rows)
        writer.finish(
            Manifest(
                transit_version="0.0.0",
                created="2026-01-01T00:00:00+00:00",
                command=["synthetic"],
                ended="completed",
                ranks=[_rank_info(rank, ranks, tables) for rank in range(ranks)],
            )
        )


def _rank_info(rank: int, ranks: int, tables: Tables) -> RankInfo:
    launches = tables["launches"].num_rows
    return RankInfo(
        rank=rank,
        local_rank=0,
        world_size=ranks,
        pid=1000 + rank,
        devices=[
            DeviceInfo(
                device=0,
                name="NVIDIA H200",
                memory_bytes=143_771 * MIB,
                compute_capability="9.0",
                num_multiprocessors=132,
            )
        ],
        driver_version=13000,
        cupti_version=130000,
        clocks=Clocks(realtime_ns=START_NS, monotonic_ns=10**12, cupti_ns=START_NS),
        counts={name: table.num_rows for name, table in tables.items()},
        launches_seen_by_cupti=launches,
        kernel_launches=launches,
        kernel_activities=launches,
        kernel_launches_with_access=launches,
        losses=Losses(),
        fingerprints=Fingerprints(launches="synthetic", memory="synthetic"),
    )
