"""Every Avro type, from a message through a chunk into a column of each warehouse; and types that one cannot hold."""

import os
from decimal import Decimal
from uuid import uuid4

import pytest

from feed_assets.core.errors import InvalidShape, LoadFailed
from feed_assets.warehouse.postgresql import _LONGEST_KEY
from feed_assets.warehouse.redshift import LENGTHS
from feed_assets_tests.warehouse.avro_types import TYPES, comparable
from feed_assets_tests.warehouse.stream import ID, Stream

FORMATS = ("csv", "parquet")


def test_every_type_survives_a_load(loader, stream):
    fields = [
        {"name": name, "type": ["null", *(type_ if isinstance(type_, list) else [type_])]}
        for name, (type_, _) in TYPES.items()
    ]
    schema = stream.schemas.add(ID, *fields)
    longest = max(len(values) for _, values in TYPES.values())
    rows = [
        {"id": number, **{name: [*values, *[None] * longest][number] for name, (_, values) in TYPES.items()}}
        for number in range(longest + 1)
    ]
    stream.send(schema, *rows)
    loader.load(stream)
    names = ", ".join(f'"{name}"' for name in TYPES)
    found = loader.ask(f'SELECT {names} FROM "{stream.name}" ORDER BY id')
    held = [row for row in rows if not (loader.engine.reads_chunks and len(row["string"] or "") > LENGTHS[-1])]
    as_text = {"several", *(["uuid"] if loader.engine.reads_chunks else [])}
    for number, name in enumerate(TYPES):
        column = [comparable(row[number], as_json=name in ("array", "map", "record")) for row in found]
        values = [row[name] for row in held]
        assert column == [comparable(str(each) if name in as_text and each is not None else each) for each in values], (
            name
        )


@pytest.mark.parametrize("name", [name for name in TYPES if name not in ("array", "map", "record", "several")])
def test_a_key_may_be_of_any_type_that_compares(loader, name, chunk_format):
    stream = Stream(loader.place.board, f"keyed.{name}.{id(loader)}", "k", format=chunk_format)
    type_, values = TYPES[name]
    stream.key_id = stream.schemas.add({"name": "k", "type": type_})
    schema = stream.schemas.add({"name": "k", "type": type_}, {"name": "n", "type": "int"})
    keys = [each for each in values if len(str(each)) < _LONGEST_KEY]
    stream.send(schema, *({"k": each, "n": 1} for each in keys))
    stream.send(schema, *({"k": each, "n": 2} for each in keys))
    stream.send(schema, (None, {"k": keys[0]}))
    loader.load(stream)
    refused = loader.ask(f"SELECT reason FROM feed_assets.refused WHERE topic = '{stream.name}'")
    if name == "string" and loader.engine.reads_chunks:  # To Redshift a text is the one with blanks behind it.
        assert refused == [("the key k ends with a blank",)] * 2
        keys.remove(" ")
    assert loader.ask(f'SELECT count(*), min(n), max(n) FROM "{stream.name}"')[0] in [
        (len(keys) - 1, 2, 2), (0, None, None)
    ]  # fmt: skip


def test_a_decimal_with_more_digits_than_declared_is_refused(loader, stream):
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}
    schema = stream.schemas.add(ID, {"name": "d", "type": wide})
    stream.send(schema, {"id": 1, "d": Decimal("12345678.9")}, {"id": 2, "d": Decimal("1.5")})
    narrow = {**wide, "precision": 4}
    stream.schemas.known[schema] = stream.schemas.known[stream.schemas.add(ID, {"name": "d", "type": narrow})]
    loader.load(stream)
    assert [row[:2] for row in stream.table(loader.engine)] == [(2, Decimal("1.5"))]
    refused = f"SELECT reason FROM feed_assets.refused WHERE topic = '{stream.name}'"
    assert loader.ask(refused) == [("d is not a valid numeric(4, 1)",)]


def test_a_row_that_is_staged_twice_and_refused_both_times_is_kept_once(loader, stream):
    """Delete the position after the first load, so that the row is staged again. The table must go on."""
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}
    schema = stream.schemas.add(ID, {"name": "d", "type": wide})
    stream.send(schema, {"id": 1, "d": Decimal("12345678.9")}, {"id": 2, "d": Decimal("1.5")})
    narrow = stream.schemas.add(ID, {"name": "d", "type": {**wide, "precision": 4}})
    stream.schemas.known[schema] = stream.schemas.known[narrow]
    loader.load(stream)
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    loader.load(stream, *stream.signals)
    stream.send(schema, {"id": 3, "d": Decimal("2.5")})
    loader.load(stream)
    assert loader.ask(f"SELECT topic_offset FROM feed_assets.refused WHERE topic = '{stream.name}'") == [(0,)]
    assert [row[0] for row in stream.table(loader.engine)] == [2, 3]


def test_a_key_that_is_too_long_for_an_index_is_refused(loader, chunk_format):
    stream = Stream(loader.place.board, f"long.{id(loader)}", "k", format=chunk_format)
    stream.key_id = stream.schemas.add({"name": "k", "type": "string"})
    schema = stream.schemas.add({"name": "k", "type": "string"})
    long = "".join(chr(0x4E00 + number) for number in range(1, _LONGEST_KEY))
    stream.send(schema, {"k": "a"}, {"k": long})
    loader.load(stream)
    refused = loader.ask(f"SELECT reason FROM feed_assets.refused WHERE topic = '{stream.name}'")
    if loader.engine.has_keys:
        assert refused == [("the key has more than 2600 bytes",)]
    else:
        assert (refused, len(stream.table(loader.engine))) == ([], 2)


def test_a_schema_that_a_warehouse_has_no_table_for_is_refused(loader, stream):
    """Exclude PostgreSQL, which holds as many digits as a schema may have."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 0}
    stream.send(stream.schemas.add(ID, {"name": "d", "type": ["null", decimal]}), {"id": 1, "d": None})
    if loader.engine.most_digits >= 1000:
        loader.load(stream)
        return
    with pytest.raises(InvalidShape, match=r"d is decimal\(1000, 0\), which this warehouse cannot store"):
        loader.load(stream)


def test_names_that_a_warehouse_would_mix_up_are_refused(loader, stream):
    """Refuse names that are equal up to the maximum length, or except for case."""
    two = "x" * 64 if loader.engine.has_keys else "ID"
    stream.send(stream.schemas.add(ID, {"name": two, "type": "int"}), {"id": 1, two: 1})
    with pytest.raises(InvalidShape, match=r"not a name in PostgreSQL|the same name in (DuckDB|Redshift)"):
        loader.load(stream)


@pytest.mark.parametrize("name", ["ctid", "xmin"])
@pytest.mark.parametrize("url", ["postgresql", "redshift"], indirect=True)
def test_columns_that_each_table_has_of_itself_are_refused(loader, stream, name):
    stream.send(stream.schemas.add(ID, {"name": name, "type": "int"}), {"id": 1, name: 1})
    with pytest.raises(InvalidShape, match=f"{name} is a built-in column of every table here"):
        loader.load(stream)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_row_that_is_too_wide_for_a_page_is_of_its_table_alone(loader, stream):
    """Treat it as permanent, though the driver calls it operational."""
    names = [f"d{number}" for number in range(1200)]
    schema = stream.schemas.add(ID, *({"name": name, "type": "double"} for name in names))
    stream.send(schema, {"id": 1, **dict.fromkeys(names, 1.5)})
    with pytest.raises(LoadFailed, match="cannot store it: row is too big"):
        loader.load(stream)


@pytest.mark.parametrize(("fields", "is_held"), [(("bytes",), True), (("string", *["long"] * 12), False)])
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_composite_keys_compare_all_fields_and_bytes_by_value(loader, fields, is_held):
    names = [f"k{number}" for number in range(len(fields))]
    stream = Stream(loader.place.board, f"clicks.{uuid4().hex[:12]}", *names)
    schema = stream.schemas.add(*({"name": name, "type": kind} for name, kind in zip(names, fields, strict=True)))
    stream.key_id = schema
    long = {"bytes": os.urandom(2500), "string": os.urandom(1275).hex(), "long": 2**60}
    stream.send(schema, {name: long[kind] for name, kind in zip(names, fields, strict=True)})
    loader.load(stream)
    assert len(stream.table(loader.engine)) == is_held
