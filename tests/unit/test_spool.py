from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import spool_factory as factory
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.errors import TraceError
from transit.recorder import spool
from transit.recorder.spool import Spool

HEADER_PATH = Path(__file__).parents[2] / "recorder" / "native" / "spool_format.h"
STRUCTS = {
    "SpoolHeader": spool.HEADER,
    "ProcessRecord": spool.PROCESS,
    "DeviceRecord": spool.DEVICE,
    "LaunchRecord": spool.LAUNCH,
    "AccessRecord": spool.ACCESS,
    "GraphNodeRecord": spool.GRAPH_NODE,
    "GraphLaunchRecord": spool.GRAPH_LAUNCH,
    "AllocationRecord": spool.ALLOCATION,
    "FreeRecord": spool.FREE,
    "ActivityRecord": spool.ACTIVITY,
    "UvmRecord": spool.UVM,
    "MemoryRecord": spool.MEMORY,
    "MarkRecord": spool.MARK,
    "BlockRecord": spool.BLOCK,
    "HistoryRecord": spool.HISTORY,
    "LabelRecord": spool.LABEL,
    "FrameworkRecord": spool.FRAMEWORK,
    "OverheadRecord": spool.OVERHEAD,
    "ErrorRecord": spool.ERROR,
    "SampleRecord": spool.SAMPLE,
    "NameRecord": spool.NAME,
}


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_dtypes_mirror_the_header(tmp_path: Path) -> None:
    lines = []
    for struct, dtype in STRUCTS.items():
        lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
        lines += [
            f'printf("{struct}.{name} %zu %zu\\n", offsetof({struct}, {name}),'
            f" sizeof({struct}::{name}));"
            for name in dtype.names or ()
        ]
    source = tmp_path / "layout.cpp"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\n"
        f'#include "{HEADER_PATH}"\n'
        "using namespace transit;\n"
        "int main() {\n"
        'printf("version %u %.8s\\n", kSpoolVersion, kSpoolMagic);\n'
        + "\n".join(lines)
        + "\n}\n"
    )
    program = tmp_path / "layout"
    subprocess.run(["g++", "-std=c++17", source, "-o", program], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True)

    expected = [f"version {spool.VERSION} {spool.MAGIC.decode()}"]
    for struct, dtype in STRUCTS.items():
        expected.append(f"{struct} {dtype.itemsize}")
        fields = dtype.fields or {}
        expected += [
            f"{struct}.{name} {fields[name][1]} {fields[name][0].itemsize}"
            for name in dtype.names or ()
        ]
    assert found.stdout.splitlines() == expected


def test_records_are_mapped_by_type(tmp_path: Path) -> None:
    opened = Spool.open(factory.small_spool(tmp_path / "spool-31"))

    assert opened.pid == 31
    assert opened.records["launch"]["launch_id"].tolist() == [0, 1]
    assert opened.records["launch"]["grid"].tolist() == [[132, 1, 1]] * 2
    assert len(opened.records["uvm"]) == 0, "a missing file has no records"
    assert opened.num_torn == opened.num_dropped == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(max_size=300).filter(lambda s: "\0" not in s), max_size=6))
def test_names_round_trip(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    # Ids need not start at 0, nor be dense.
    pieces = [
        piece
        for index, name in enumerate(names)
        for piece in factory.name_pieces(3 * index + 5, name)
    ]
    factory.write_file(folder, "name", pieces)
    opened = Spool.open(folder)

    ids = np.arange(len(names), dtype=np.uint32) * 3 + 5
    assert opened.names(ids).to_pylist() == names


def test_unknown_names_are_said_to_be(tmp_path: Path) -> None:
    opened = Spool.open(factory.small_spool(tmp_path / "spool-1"))
    ids = np.array([1, 0xFFFF_FFFF, 17], np.uint32)
    assert opened.names(ids).to_pylist() == ["kernel", "<unknown>", "<unknown>"]


def test_dropped_records_are_counted(tmp_path: Path) -> None:
    folder = factory.small_spool(tmp_path / "spool-1")
    factory.write_file(folder, "uvm", [], num_dropped=7)
    factory.write_file(folder, "block", [], num_dropped=2)
    assert Spool.open(folder).num_dropped == 9


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 5 * 64))
def test_a_truncated_tail_is_dropped_and_counted(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    launches = [factory.launch(index) for index in range(5)]
    path = factory.write_file(folder, "launch", launches, slack_bytes=0)
    path.write_bytes(path.read_bytes()[: 64 + 5 * 64 - cut])

    opened = Spool.open(folder)

    complete = 5 - -(-cut // 64)
    assert opened.records["launch"]["launch_id"].tolist() == list(range(complete))
    assert opened.num_torn == 5 - complete


def test_a_count_larger_than_the_file_is_not_believed(tmp_path: Path) -> None:
    factory.write_file(tmp_path, "free", [{}], slack_bytes=0, num_records=2**64 - 1)
    opened = Spool.open(tmp_path)
    assert len(opened.records["free"]) == 1
    assert opened.num_torn == 2**64 - 2


@pytest.mark.parametrize("content", [b"", bytes(64), bytes(4096)])
def test_a_file_killed_before_its_header_is_empty(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "launch.spool").write_bytes(content)
    assert len(Spool.open(tmp_path).records["launch"]) == 0


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"magic": b"PAR1"}, "is not a spool file of transit"),
        ({"version": 2}, "has version 2; this transit reads up to version 1"),
        ({"version": 0}, "is damaged: its header says"),
        ({"header_bytes": 32}, "is damaged: its header says"),
        ({"record_type": b"access"}, "is damaged: its header says"),
        ({"record_bytes": 40}, "is damaged: its header says"),
    ],
)
def test_bad_headers_are_refused(
    tmp_path: Path, header: dict[str, object], message: str
) -> None:
    path = factory.write_file(tmp_path, "launch", [factory.launch(0)], **header)
    with pytest.raises(TraceError, match=message) as raised:
        Spool.open(tmp_path)
    assert str(path) in str(raised.value)


def test_a_short_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mark.spool").write_bytes(b"TRNSPOOL")
    with pytest.raises(TraceError, match=r"mark\.spool is damaged: it is shorter"):
        Spool.open(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="There is no spool at"):
        Spool.open(tmp_path / "spool-1")


def test_something_else_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "launch.spool").mkdir()
    with pytest.raises(TraceError, match="Cannot read"):
        Spool.open(tmp_path)
