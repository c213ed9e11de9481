"""A table has the same rows from chunks in CSV and in Parquet; and files that no connector has written are refused."""

from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from io import BytesIO
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from feed_assets.core.errors import ChunkBroken, LoadFailed
from feed_assets.core.topics import Topic
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro, chunk_files, parquet_chunks
from feed_assets.kafka.messages import Message
from feed_assets.kafka.offset_range import Chunking, ChunkWriter, PartitionOfTopic
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.warehouse.avro_types import comparable
from feed_assets_tests.warehouse.debezium_stream import DebeziumStream, envelope
from feed_assets_tests.warehouse.stream import ID, Registry, Stream

DIGITS = {"type": "bytes", "logicalType": "decimal", "scale": 2}
WIDE = {**DIGITS, "precision": 60}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "d", "type": {**DIGITS, "precision": 4}}]}
UNIONS = {
    "whole": ["null", "int", "long"],
    "number": ["null", "int", "double"],
    "any": ["null", "boolean", "double", "bytes", "string"],
    "twice": ["null", {"type": "long", "logicalType": "timestamp-micros"}, {"type": "int", "logicalType": "date"}],
    "nested": ["null", INNER],
    "inner": ["null", "Inner", "string"],
}
ROWS = [
    {"whole": 1, "number": 0.1, "any": True, "twice": None, "nested": {"d": Decimal("1.50")}, "inner": "a"},
    {"whole": 2**40, "number": 7, "any": "\\N", "inner": {"d": Decimal("0.05")}},
    {"any": b"\x00\xff", "inner": None},
    {"any": ""},
]


def streams(loader, kind: type[Stream] = Stream) -> list[Stream]:
    formats = ("csv", "parquet", "both")
    return [kind(loader.place.board, f"{each}.{uuid4().hex[:12]}", format=each) for each in formats]


def rows(loader, stream: Stream) -> list[list[str]]:
    return [[comparable(value) for value in row] for row in stream.table(loader.engine)]


def same(loader, *loaded: Stream) -> list[list[str]]:
    """Load topics, and return the rows of all of their tables, which are the same."""
    for each in loaded:
        loader.load(each)
    first, *others = [rows(loader, each) for each in loaded]
    assert first
    assert all(each == first for each in others)
    return first


def test_unions_and_nested_values_are_the_same_from_either_format(loader):
    loaded = streams(loader)
    for stream in loaded:
        schema = stream.schemas.add(ID, *({"name": name, "type": each} for name, each in UNIONS.items()))
        for number, each in enumerate(ROWS):
            stream.send(schema, {"id": number, **dict.fromkeys(UNIONS), **each})
    same(loader, *loaded)


def test_values_of_a_column_that_gets_wider_are_the_same_from_either_format(loader):
    """A float has fewer digits than the double that CSV has of it, and a boolean is cast to a text."""
    loaded = streams(loader)
    for stream in loaded:
        first = [{"name": "f", "type": "float"}, {"name": "b", "type": "boolean"}, {"name": "n", "type": "int"}]
        narrow, last = stream.schemas.add(ID, *first), {"name": "gone", "type": "bytes"}
        wide = stream.schemas.add(
            ID, *({"name": n, "type": t} for n, t in (("f", "double"), ("b", "string"), ("n", "string")))
        )
        late = stream.schemas.add(ID, *first, last)
        stream.schemas.known[narrow], stream.schemas.known[late] = (
            stream.schemas.known[late],
            stream.schemas.known[narrow],
        )
        stream.send(wide, {"id": 1, "f": 0.1, "b": "true", "n": "1"})
        stream.send(narrow, *({"id": 2 + at, "f": 0.1, "b": bool(at), "n": at, "gone": b"\x01"} for at in (0, 1)))
        stream.send(wide, {"id": 4, "f": 0.1, "b": "", "n": ""})
    found = same(loader, *loaded)
    assert len(found) == 4


@each_case("name", ["long", "bytes"])
def test_a_tombstone_may_have_a_key_of_another_type_than_rows(loader, name):
    """Its text is what counts: `5` deletes the row 5, whose key is a number."""
    loaded = streams(loader)
    value, text = {"long": (5, "+5"), "bytes": (b"\x05", "05")}[name]
    for stream in loaded:
        schema = stream.schemas.add({"name": "id", "type": name}, {"name": "n", "type": "int"})
        stream.key_id = stream.schemas.add({"name": "id", "type": [name, "string"]})
        stream.send(schema, {"id": value, "n": 1}, {"id": value + value, "n": 2}, (None, {"id": text}))
    assert len(same(loader, *loaded)) == 1


@pytest.mark.parametrize("url", ["postgresql", "duckdb"], indirect=True)
def test_a_key_that_is_no_value_of_its_column_stops_the_table_in_either_format(loader):
    for stream in streams(loader):
        schema = stream.schemas.add(ID, {"name": "n", "type": "int"})
        stream.key_id = stream.schemas.add({"name": "id", "type": ["long", "string"]})
        stream.send(schema, {"id": 5, "n": 1}, (None, {"id": "five"}))
        with pytest.raises(LoadFailed, match="five"):
            loader.load(stream)


@pytest.mark.parametrize("url", ["postgresql", "duckdb"], indirect=True)
def test_a_deleted_row_of_other_types_than_new_ones_stops_the_table_or_is_refused_in_either_format(loader):
    """Avro does not make the types of Debezium's `before` and `after` equal."""
    price = {"name": "price", "type": "long"}
    row = {"type": "record", "name": "Before", "fields": [ID, {**price, "type": "string"}]}
    old, new, *others = envelope(ID, price)
    fields = {**old, "type": ["null", row]}, {**new, "type": old["type"]}, *others
    for stream in streams(loader, DebeziumStream):
        schema = stream.schemas.add(*fields, name="Envelope")
        stream.send(schema, {"id": 1, "price": 5}, ("delete", {"id": 1, "price": "abc"}))
        with pytest.raises(LoadFailed, match="abc"):
            loader.load(stream)
        plain, loader.place = loader.place, replace(loader.place, conflicts="refuse")
        loader.load(stream)
        assert [each[:2] for each in stream.table(loader.engine)] == [(1, 5)]
        loader.place = plain


def test_a_type_with_the_name_of_a_primitive_one_does_not_replace_it():
    schemas = Registry()
    fixed = {"name": "f", "type": {"type": "fixed", "name": "long", "size": 3}}
    schema = schemas.add(ID, fixed, {"name": "n", "type": "long"})
    [chunk] = _kept(schemas, schema, {"id": 1, "f": b"abc", "n": 5})
    assert parquet.read_table(BytesIO(chunk)).column("n").to_pylist() == [5]


def test_a_schema_that_the_registry_loses_while_a_chunk_is_open_is_not_needed_any_more():
    schemas = Registry()
    schema = schemas.add(ID)
    [chunk] = _kept(schemas, schema, {"id": 1}, lost=True)
    assert parquet.read_table(BytesIO(chunk)).column("id").to_pylist() == [1]


def _kept(schemas: Registry, schema: int, value: dict, *, lost: bool = False) -> list[bytes]:
    """Return the content of the chunk that a connector writes of one message."""
    with TemporaryDirectory() as folder:
        board = Blackboard.open(Path(folder).as_uri())
        chunking = Chunking(None, schemas, board)
        writer = ChunkWriter(chunking, PartitionOfTopic("t", 0), Topic(key=("id",), format="parquet"), 0)
        assert [*writer.take(Message(0, None, avro.encoded(value, schemas.get(schema), schema), []))] == []
        if lost:
            schemas.known.clear()
        [kept] = writer.look(inf)
        return [board.get(kept.signal.path.removeprefix(f"{board.url}/"))]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_decimals_of_any_precision_and_names_that_differ_in_case_are_exact(loader):
    loaded = streams(loader)
    value = Decimal("-123456789012345678901234567890123456789012345678901234567.89")
    for stream in loaded:
        schema = stream.schemas.add(
            ID, {"name": "d", "type": WIDE}, {"name": "a", "type": "int"}, {"name": "A", "type": "int"}
        )
        stream.send(schema, {"id": 1, "d": value, "a": 1, "A": 2})
    assert same(loader, *loaded)[0][1:4] == [repr(value), "1", "2"]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
@each_case("content", ["garbage", "another column", "a row more", "another type"])
def test_a_file_that_is_no_chunk_is_refused(loader, content):
    """Anybody who may write to the topic of signals and to the store can give such a file."""
    stream = Stream(loader.place.board, f"files.{uuid4().hex[:12]}", format="parquet")
    sent = stream.send(stream.schemas.add(ID), {"id": 1})
    columns = {"_operation": ["update"], "_offset": [0], "id": [1]}
    told = {
        "another column": {"_operation": ["update"], "offset": [0], "id": [1]},
        "a row more": {name: each * 2 for name, each in columns.items()},
        "another type": {**columns, "id": [[1]]},
    }.get(content)
    file = BytesIO(b"garbage")
    if told:
        parquet.write_table(pa.table(told), file := BytesIO())
    data = file.getvalue()
    stream.board.put(sent.signal.path.removeprefix(f"{stream.board.url}/"), data)
    signal = replace(sent.signal, size=len(data), sha256=sha256(data).hexdigest())
    with pytest.raises(ChunkBroken):
        loader.load(stream, sent._replace(signal=signal))


def test_each_column_without_a_fitting_type_is_parsed_once_more(monkeypatch):
    parsed = []
    columns = parquet_chunks._columns
    monkeypatch.setattr(
        parquet_chunks, "_columns", lambda *each, **names: parsed.append(each) or columns(*each, **names)
    )
    fields = [{"name": name, "type": "long"} for name in "abc"]
    content = parquet_chunks.written(b'"_offset","a","b","c"\n1,5,x,\\N\n2,6,"",7\n', {"fields": fields})
    table = parquet.read_table(BytesIO(content))
    assert table.to_pydict() == {"_offset": [1, 2], "a": [5, 6], "b": ["x", ""], "c": [None, 7]}
    assert [str(each) for each in table.schema.types] == ["int64", "int64", "string", "int64"]
    assert [len(types) for _, types in parsed] == [4, 4, 1, 1, 1, 1]


def test_a_file_ends_where_its_last_row_does():
    lines = b'"_operation","_offset","id"\n"update",7,"a"\n'
    content = parquet_chunks.written(lines, {"fields": []})
    assert content == parquet_chunks.written(lines, {"fields": []})
    assert chunk_files.end_of(content, ".parquet") == 8
    assert [chunk_files.end_of(each, ".parquet") for each in (None, b"", b"garbage", content[:-9])] == [0] * 4
