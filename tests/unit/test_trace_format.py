from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trace_factory as factory
from hypothesis import given, settings
from hypothesis import strategies as st

from transit.errors import TraceError
from transit.traces import schema
from transit.traces.reader import Trace
from transit.traces.writer import TraceWriter


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    return factory.write_trace(tmp_path / "trace", ranks=2)


def _column(field: pa.Field) -> st.SearchStrategy[Any]:
    kind = field.type
    if pa.types.is_dictionary(kind):
        values: st.SearchStrategy[Any] = st.text(max_size=8)
    elif pa.types.is_boolean(kind):
        values = st.booleans()
    else:
        low = 0 if pa.types.is_unsigned_integer(kind) else -(2 ** (kind.bit_width - 1))
        values = st.integers(low, low + 2**kind.bit_width - 1)
    return st.none() | values if field.nullable else values


def _rows(table: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    fields = {field.name: _column(field) for field in schema.TABLES[table]}
    return st.lists(st.fixed_dictionaries(fields), max_size=5)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_tables_round_trip(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    table = data.draw(st.sampled_from(sorted(schema.TABLES)))
    rows = data.draw(_rows(table))
    tables = {name: kind.empty_table() for name, kind in schema.TABLES.items()}
    tables[table] = pa.Table.from_pylist(rows, schema=schema.TABLES[table])
    path = tmp_path_factory.mktemp("traces") / "trace"

    found = Trace.open(factory.write_tables(path, {3: tables})).table(3, table)

    assert found.schema.equals(schema.TABLES[table])
    assert found.to_pylist() == rows


def test_columns_come_in_the_order_asked_for(trace_path: Path) -> None:
    table = Trace.open(trace_path).table(1, "launches", ["end_ns", "name"])
    assert table.column_names == ["end_ns", "name"]
    assert table.num_rows == 48


def test_files_are_readable_by_others_and_say_what_they_are(trace_path: Path) -> None:
    file = pq.ParquetFile(trace_path / "rank=1" / "launches.parquet")
    metadata = file.schema_arrow.metadata
    assert metadata[b"transit.format"] == b"transit-trace"
    assert metadata[b"transit.version"] == b"5"
    assert json.loads(metadata[b"transit.meta"]) == {"rank": 1, "table": "launches"}
    columns = {
        column["path_in_schema"]: column
        for column in file.metadata.to_dict()["row_groups"][0]["columns"]
    }
    assert columns["name"]["compression"] == "ZSTD"
    assert "RLE_DICTIONARY" in columns["name"]["encodings"]
    assert "DELTA_BINARY_PACKED" in columns["start_ns"]["encodings"]


def test_large_tables_are_cut_into_row_groups(tmp_path: Path) -> None:
    tables = factory.LayeredLoop(iterations=1).tables()
    count = 131_072 + 1
    row = tables["overhead"].schema.empty_table()
    row = pa.table(
        {
            "kind": pa.array(["transit"] * count).dictionary_encode(),
            "start_ns": range(count),
            "end_ns": range(count),
            "dropped": [0] * count,
        }
    )
    tables["overhead"] = row.select(schema.OVERHEAD.names).cast(schema.OVERHEAD)
    path = factory.write_tables(tmp_path / "trace", {0: tables})
    metadata = pq.read_metadata(path / "rank=0" / "overhead.parquet")
    assert [metadata.row_group(i).num_rows for i in range(2)] == [131_072, 1]


# Bad traces: each has its own message.


def _edit_manifest(trace: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = trace / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=6), "has version 6; this transit reads up to"),
        (lambda m: m.update(version="1"), "is damaged at version"),
        (lambda m: m.update(format="transit-plan"), 'of format "transit-plan", not'),
        (lambda m: m.pop("format"), "is damaged at format: Field required"),
        (lambda m: m.pop("command"), "is damaged at command: Field required"),
        (lambda m: m.update(command="python"), "is damaged at command"),
        (lambda m: m.update(extra=1), "is damaged at extra: Extra inputs"),
        (lambda m: m.update(ranks=[]), "lists no rank"),
        (lambda m: m.update(ranks=m["ranks"][:1] * 2), "lists a rank twice"),
        (lambda m: m["ranks"][1].update(pid=-1), r"is damaged at ranks\.1\.pid"),
        (lambda m: m["ranks"][0].update(pid=2**64), r"is damaged at ranks\.0\.pid"),
    ],
)
def test_bad_manifests_are_refused(
    trace_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    _edit_manifest(trace_path, change)
    with pytest.raises(TraceError, match=message) as raised:
        Trace.open(trace_path)
    assert str(trace_path / "manifest.json") in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null"])
def test_manifests_that_are_not_json_objects_are_refused(
    trace_path: Path, content: bytes
) -> None:
    (trace_path / "manifest.json").write_bytes(content)
    with pytest.raises(TraceError, match="is damaged"):
        Trace.open(trace_path)


def test_a_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="There is no trace at"):
        Trace.open(tmp_path / "trace")


def test_a_folder_or_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"is not a trace: it has no manifest\.json"):
        Trace.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match="is not a trace"):
        Trace.open(tmp_path / "file")


def test_a_rank_that_is_not_there_is_refused(trace_path: Path) -> None:
    with pytest.raises(TraceError, match="has no rank 7; it has 0, 1"):
        Trace.open(trace_path).table(7, "launches")


def _launches(trace: Path) -> Path:
    return trace / "rank=0" / "launches.parquet"


def _refused(trace: Path, message: str) -> None:
    with pytest.raises(TraceError, match=message) as raised:
        Trace.open(trace).table(0, "launches")
    assert str(_launches(trace)) in str(raised.value)


def test_a_missing_table_is_refused(trace_path: Path) -> None:
    _launches(trace_path).unlink()
    _refused(trace_path, "is missing")


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_truncated_table_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    trace = factory.write_trace(tmp_path_factory.mktemp("traces") / "trace")
    content = _launches(trace).read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    _launches(trace).write_bytes(content[:cut])
    _refused(trace, "is damaged")


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    trace = factory.write_trace(tmp_path_factory.mktemp("traces") / "trace")
    intact = Trace.open(trace).table(0, "launches")
    content = bytearray(_launches(trace).read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    _launches(trace).write_bytes(content)
    try:
        table = Trace.open(trace).table(0, "launches")
    except TraceError:
        return
    assert table.equals(intact)


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_a_flipped_bit_of_a_footer_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    trace = factory.write_trace(tmp_path_factory.mktemp("traces") / "trace")
    content = bytearray(_launches(trace).read_bytes())
    footer_bytes = int.from_bytes(content[-8:-4], "little")
    position = data.draw(st.integers(1, footer_bytes + 8))
    content[-position] ^= 1 << data.draw(st.integers(0, 7))
    _launches(trace).write_bytes(content)
    with pytest.raises(TraceError):
        Trace.open(trace).table(0, "launches")


def _rewrite(trace: Path, table: pa.Table, **metadata: str) -> None:
    known = schema.file_metadata("launches", 0)
    changed = known | {f"transit.{key}": value for key, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata(changed), _launches(trace))


def test_foreign_parquet_is_refused(trace_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), _launches(trace_path))
    _refused(trace_path, "is a Parquet file that transit did not write")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"version": "6"}, "has version 6; this transit reads up to version 5"),
        ({"version": "one"}, "is damaged: its metadata is unreadable"),
        ({"meta": "{"}, "is damaged: its metadata is unreadable"),
        ({"meta": '{"rank": 1, "table": "launches"}'}, "holds other data"),
        ({"meta": '{"rank": 0, "table": "accesses"}'}, "holds other data"),
    ],
)
def test_bad_file_metadata_is_refused(
    trace_path: Path, metadata: dict[str, str], message: str
) -> None:
    _rewrite(trace_path, Trace.open(trace_path).table(0, "launches"), **metadata)
    _refused(trace_path, message)


def test_a_trace_of_version_1_lacks_only_what_came_later() -> None:
    samples = Path(__file__).parents[2] / "traces" / "samples"
    trace = Trace.open(samples / "gpt-medium-h200")
    assert trace.manifest.version == 1
    assert trace.table(0, "graph_nodes").num_rows == 0
    accesses = trace.table(0, "accesses")
    assert accesses["graph_node"].null_count == accesses.num_rows > 0


def test_wrong_columns_are_refused(trace_path: Path) -> None:
    table = Trace.open(trace_path).table(0, "launches")
    _rewrite(trace_path, table.drop_columns(["signature"]))
    _refused(trace_path, 'has no column "signature"')
    # Also one that may be null, and in an older trace that had it.
    for version in ("2", "1"):
        _rewrite(trace_path, table.drop_columns(["graph_id"]), version=version)
        _refused(trace_path, 'has no column "graph_id"')
    index = table.column_names.index("host_ns")
    texts = table["host_ns"].cast(pa.string())
    _rewrite(trace_path, table.set_column(index, "host_ns", texts))
    _refused(trace_path, 'column "host_ns" is string, not int64')
    holes = pa.array([None] * table.num_rows, pa.int64())
    _rewrite(trace_path, table.set_column(index, "host_ns", holes))
    _refused(trace_path, 'column "host_ns" has missing values')


def test_a_table_of_another_recording_is_refused(trace_path: Path) -> None:
    table = Trace.open(trace_path).table(0, "launches")
    _rewrite(trace_path, table.slice(1))
    _refused(trace_path, "has 47 rows, but the manifest counts 48")


# Writing.


def test_an_existing_trace_is_kept_unless_overwritten(trace_path: Path) -> None:
    before = Trace.open(trace_path).manifest
    with pytest.raises(TraceError, match="exists"):
        TraceWriter(trace_path)
    with TraceWriter(trace_path, overwrite=True) as writer:
        writer.write(0, "overhead", schema.OVERHEAD.empty_table())
        # Not finished: as if interrupted.
    assert Trace.open(trace_path).manifest == before
    assert [path.name for path in trace_path.parent.iterdir()] == ["trace"]

    with TraceWriter(trace_path, overwrite=True) as writer:
        writer.finish(before.model_copy(update={"ended": "killed"}))
    assert Trace.open(trace_path).manifest.ended == "killed"
    assert [path.name for path in trace_path.parent.iterdir()] == ["trace"]


def test_something_else_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1").write_text("x")
    with pytest.raises(TraceError, match="is not a trace"):
        TraceWriter(folder, overwrite=True)
    with pytest.raises(TraceError, match="is not a trace"):
        TraceWriter(folder / "chapter1", overwrite=True)
    assert (folder / "chapter1").read_text() == "x"


def test_a_trace_that_appeared_meanwhile_is_kept(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer:
        factory.write_trace(tmp_path / "trace")
        manifest = Trace.open(tmp_path / "trace").manifest
        with pytest.raises(TraceError, match="exists"):
            writer.finish(manifest.model_copy(update={"ended": "late"}))
    assert Trace.open(tmp_path / "trace").manifest == manifest


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraceError, match="Cannot write"):
        TraceWriter(tmp_path / "file" / "trace")
