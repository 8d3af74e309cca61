"""Jobs of which an iteration is hashed for directions, on the simulated GPU."""

from __future__ import annotations

from recorder_jobs import Jobs

# An iteration to learn what there is, and the one that is hashed.
PRELUDE = """
recorder.transit_recorder_expect_iterations()
gpu = open_gpu()

def fill(address, value, size):
    gpu.launch("fill", (size, 1), (1, 1), (address, ctypes.c_void_p),
               (value, ctypes.c_float), (size, ctypes.c_size_t))

def adam(p, g, m, v, size):
    gpu.launch("adam", (size, 1), (1, 1), *((a, ctypes.c_void_p) for a in (p, g, m, v)),
               (size, ctypes.c_size_t),
               *((x, ctypes.c_float) for x in (0.1, 0.9, 0.99, 1e-8, 0.1, 0.01)))

def push_blocks(*blocks):
    block = [("host_ns", "u8"), ("address", "u8"), ("bytes", "u8"), ("action", "u4"),
             ("device", "i4")]
    records = np.array([(1, *at, 1, 0) for at in blocks], block)
    recorder.transit_recorder_blocks(ctypes.c_void_p(records.ctypes.data),
                                     ctypes.c_uint64(len(records)))

def iterations(*steps):
    for number, step in enumerate(steps, 1):
        step()
        recorder.transit_recorder_iteration_end(number)
    gpu.synchronize()
"""
ON = {"TRANSIT_DIRECTIONS": "1", "TRANSIT_ITERATIONS": "1"}


def checksums_by_launch(jobs: Jobs) -> list[dict[tuple[int, int], bool]]:
    """Return (address, bytes) -> changed of each launch of the hashed iteration."""
    spool = jobs.spool()
    marks = spool.records["mark"]
    (begin,) = marks["launch_id"][marks["kind"] == 5]
    (end,) = marks["launch_id"][(marks["kind"] == 2) & (marks["value"] == 2)]
    found: list[dict[tuple[int, int], bool]] = [{} for _ in range(begin, end)]
    for launch, address, size, changed, _ in spool.records["checksum"].tolist():
        pieces = found[launch - begin]
        assert (address, size) not in pieces
        pieces[address, size] = bool(changed)
    return found
