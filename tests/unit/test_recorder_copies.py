"""What the recorder reads from copies and sets that the simulated GPU does not have."""

from __future__ import annotations

import subprocess
from collections import defaultdict

import pytest
from native_programs import build

X, Y, STREAM = 1 << 30, 2 << 30, 5
READ, WRITE = 1, 2
COPY, SET = 2, 3
ROWS = {(X + 2 * 64 + 3, 3 * 64 + 10, READ), (Y, 3 * 32 + 10, WRITE)}
SLICES = {
    (X + (8 + 2) * 64 + 3, (2 * 8 + 3) * 64 + 10, READ),
    (Y, (2 * 5 + 3) * 32 + 10, WRITE),
}
ONE_ROW_OF_EACH_SLICE = {
    (X + (8 + 2) * 64 + 3, 2 * 8 * 64 + 10, READ),
    (Y, 2 * 5 * 32 + 10, WRITE),
}
BATCH = {(X, 10, READ), (Y, 10, WRITE), (Y + 100, 20, WRITE), (X + 7, 30, READ)}
BOX_BATCH = {(X, (2 * 8 + 3) * 64 + 10, READ), (Y, 10 * 4 * 3, WRITE)}
PEER = {(X, 50, READ), (Y, 50, WRITE)}
EXPECTED = {
    "cuMemcpy2D_v2": ROWS,
    "cuMemcpy2DAsync_v2": ROWS,
    "cuMemcpy2DUnaligned_v2": {(X + 2 * 64 + 3, 3 * 64 + 10, READ)},  # to an array
    "cuMemcpy2DAsync_v2_ptsz": {
        (X + 2 * 64 + 3, 3 * 64 + 10, READ),
        (Y + 1, 3 * 32 + 10, WRITE),
    },
    "cuMemcpy3D_v2": SLICES,
    "cuMemcpy3DAsync_v2": SLICES,
    "cuMemcpy3DPeer": ONE_ROW_OF_EACH_SLICE,
    "cuMemcpy3DPeerAsync": ONE_ROW_OF_EACH_SLICE,
    "cuMemcpyBatchAsync": BATCH,
    "cuMemcpyBatchAsync_v2": BATCH,
    "cuMemcpy3DBatchAsync": BOX_BATCH,
    "cuMemcpy3DBatchAsync_v2": BOX_BATCH,
    "cuMemcpyPeer": PEER,
    "cuMemcpyPeerAsync": PEER,
    "cuMemsetD2D8_v2": {(X, 3 * 64 + 10, WRITE)},
    "cuMemsetD2D16Async": {(X, 3 * 64 + 20, WRITE)},
}

Accesses = dict[str, set[tuple[int, int, int]]]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    names = ("api_calls", "parameter_scan", "allocations", "tensor_maps", "cupti_api")
    sources = [f"recorder/native/{name}" for name in names]
    program = build("read_copies", sources, tmp_path_factory.mktemp("native"))
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_exactly_what_is_copied_or_set_is_read(lines: list[list[str]]) -> None:
    found: Accesses = defaultdict(set)
    for name, _, address, size, direction, _ in lines:
        found[name].add((int(address), int(size), int(direction)))
    assert found == EXPECTED


def test_the_stream_and_the_source_are_read(lines: list[list[str]]) -> None:
    for name, stream, *_, source in lines:
        assert int(stream) == (STREAM if "Async" in name else 0), name
        assert int(source) == (SET if "Memset" in name else COPY), name
