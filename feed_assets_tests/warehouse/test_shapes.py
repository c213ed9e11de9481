"""Conversion of Avro schemas to shapes of tables."""

import json

import pytest

from feed_assets.core.errors import InvalidShape
from feed_assets.kafka import avro
from feed_assets.warehouse.shapes import Kind, kind_of, shape_of, widens
from feed_assets_tests.support.each_case import each_case

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


def schema(*fields):
    return avro.parsed(json.dumps({"type": "record", "name": "R", "namespace": "n", "fields": fields}), {})


def column(type_, **more):
    (found,) = shape_of(schema({"name": "f", "type": type_, **more}), []).columns
    return found


@each_case(
    ("type_", "kind"),
    [
        ("boolean", "boolean"),
        ("int", "integer"),
        ("long", "bigint"),
        ("float", "real"),
        ("double", "double"),
        ("string", "text"),
        ("bytes", "bytes"),
        ("null", "text"),
        (DECIMAL, "decimal(9, 2)"),
        ({"type": "fixed", "name": "X", "size": 4, **{k: DECIMAL[k] for k in DECIMAL if k != "type"}}, "decimal(9, 2)"),
        ({"type": "fixed", "name": "X", "size": 4}, "bytes"),
        ({"type": "enum", "name": "X", "symbols": ["A"]}, "text"),
        ({"type": "string", "logicalType": "uuid"}, "uuid"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "time"),
        ({"type": "long", "logicalType": "time-micros"}, "time"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "local_timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "local_timestamp"),
        ({"type": "long", "logicalType": "nobody-knows"}, "bigint"),
        ({"type": "array", "items": "int"}, "json"),
        ({"type": "map", "values": "int"}, "json"),
        ({"type": "record", "name": "X", "fields": []}, "json"),
        (["null", "int"], "integer"),
        (["int", "null"], "integer"),
        (["int", "long"], "bigint"),
        (["long", "double"], "text"),
        (["null", "string", "int"], "text"),
        (["string", {"type": "array", "items": "int"}], "text"),
        ({"type": "bytes", "logicalType": "decimal"}, "bytes"),
        ({"type": "bytes", "logicalType": "decimal", "scale": 2}, "bytes"),
        ({**DECIMAL, "precision": 0, "scale": 0}, "bytes"),
        ({**DECIMAL, "scale": None}, "bytes"),
    ],
)
def test_every_avro_type_has_a_kind(type_, kind):
    found = column(type_)
    assert str(found.kind) == kind
    assert found.is_nullable == ("null" in type_)


def test_a_type_may_be_a_name():
    enum = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "color", "type": enum}]}
    found = shape_of(
        schema({"name": "a", "type": inner}, {"name": "b", "type": "Color"}, {"name": "c", "type": "Inner"}), []
    )
    assert [each.kind.name for each in found.columns] == ["json", "text", "json"]


@each_case(
    ("type_", "default", "text"),
    [
        (["null", "int"], None, None),
        ("int", 5, "5"),
        (["string", "null"], "a,b", "a,b"),
        ("boolean", True, "true"),
        ("double", 1, "1.0"),
        ("bytes", "\x00ÿ", "00ff"),
        (DECIMAL, "\xff", "-0.01"),
        ({**DECIMAL, "precision": 38}, (10**37 + 1).to_bytes(16).decode("latin-1"), f"1{'0' * 35}.01"),
        ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
        ({"type": "int", "logicalType": "time-millis"}, 1, "00:00:00.001000"),
        ({"type": "long", "logicalType": "time-micros"}, 1, "00:00:00.000001"),
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, "1969-12-31 23:59:59.999000+00:00"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 1, "1970-01-01 00:00:00.000001+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 0, "1970-01-01 00:00:00.000000"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 0, "1970-01-01 00:00:00.000000"),
        ({"type": "array", "items": {"type": "int", "logicalType": "date"}}, [0], '["1970-01-01"]'),
        ({"type": "map", "values": "bytes"}, {"a": "\x01"}, '{"a":"01"}'),
        ({"type": "record", "name": "X", "fields": [{"name": "x", "type": "int", "default": 1}]}, {}, '{"x":1}'),
        ({"type": "bytes", "logicalType": "decimal"}, "\x05", "05"),
        ({"type": "bytes", "logicalType": "decimal", "scale": 900}, "\x05", "05"),
    ],
)
def test_a_default_is_written_as_a_value_is(type_, default, text):
    assert column(type_, default=default).default == text


@each_case(
    ("doc", "aliases", "comment", "names"),
    [
        ("so many", ["g"], "so many", ("g",)),
        ("\ud800 of\0 \U0001f600", ["g", "\ud800", "h\0"], "? of? \U0001f600", ("g",)),
        (None, [], "", ()),
        (["no text"], ["g", 5, None], "", ("g",)),
    ],
)
def test_names_and_docs_come_along(doc, aliases, comment, names):
    found = column("int", doc=doc, aliases=aliases)
    assert (found.comment, found.aliases) == (comment, names)
    assert found.model_dump_json().encode()


def test_a_key_is_never_null_and_may_be_the_message_s():
    found = shape_of(schema({"name": "id", "type": ["null", "long"], "default": None}), ["id", "shop"])
    assert str(found) == "(shop text not null, id bigint not null)"
    assert [each.name for each in found.key_columns] == ["id", "shop"]


@each_case("name", ["_operation", "_partition", "_offset"])
def test_our_own_columns_are_no_fields(name):
    with pytest.raises(InvalidShape, match=f"a field {name}"):
        shape_of(schema({"name": name, "type": "int"}), [])


def test_a_key_can_be_compared():
    with pytest.raises(InvalidShape, match="key field f is an array"):
        shape_of(schema({"name": "f", "type": {"type": "map", "values": "int"}}), ["f"])


@each_case(
    ("old", "new", "expected"),
    [
        (("decimal", 5, 2), ("decimal", 7, 4), True),
        (("decimal", 5, 2), ("decimal", 6, 4), False),
        (("decimal", 5, 2), ("decimal", 9, 1), False),
        (("integer",), ("decimal", 10, 0), True),
        (("bigint",), ("decimal", 18, 0), False),
        (("bigint",), ("double",), False),
        (("double",), ("text",), False),
        (("integer",), ("double",), True),
        (("real",), ("double",), True),
        (("date",), ("text",), True),
        (("timestamp",), ("text",), False),
        (("local_timestamp",), ("text",), False),
        (("time",), ("text",), False),
        (("real",), ("text",), False),
    ],
)
def test_only_lossless_type_changes_count_as_wider(old, new, expected):
    kinds = [Kind(**dict(zip(("name", "precision", "scale"), each, strict=False))) for each in (old, new)]
    assert widens(*kinds) is expected


def test_a_union_of_names_is_looked_up():
    assert kind_of(["null", "n.X"], {"n.X": {"type": "fixed", "name": "n.X", "size": 1}}).name == "bytes"


def laughs(levels):
    """Return a record of 2^levels values by its default alone: each record has the next one twice."""
    fields = [{"name": "a", "type": "int", "default": 1}]
    for n in range(levels):
        record = {"type": "record", "name": f"L{n}", "fields": fields}
        fields = [{"name": "a", "type": record, "default": {}}, {"name": "b", "type": f"L{n}", "default": {}}]
    return {"type": "record", "name": "L", "fields": fields}


OF_ITSELF = {"name": "a", "type": "X", "default": {}}


@each_case(
    ("type_", "default", "message"),
    [
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, r"2147483647 "),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2147483647000000000, r"2147483647000000000 "),
        ([{"type": "record", "name": "X", "fields": [{"name": "a", "type": ["null", "X"]}]}, "null"], {"a": 5}, ""),
        ([{"type": "record", "name": "X", "fields": [OF_ITSELF]}, "null"], {}, ""),
        (["string", "null"], "\ud800", ".*not valid Unicode"),
        (["string", "null"], "a\0b", ".*NUL"),
        (laughs(20), {}, ".*more than 262,144 values and characters"),
        ({"type": "array", "items": laughs(10)}, [{}] * 100, ".*more than 262,144 values and characters"),
        ("string", "x" * 300_000, ".*more than 262,144 values and characters"),
    ],
)
def test_a_default_that_no_table_holds_is_refused(type_, default, message):
    with pytest.raises(InvalidShape, match=f"the default of f is {message}"):
        column(type_, default=default)


def test_a_key_has_no_name_of_ours():
    with pytest.raises(InvalidShape, match="the key has a field _deleted_at"):
        shape_of(schema({"name": "_deleted_at", "type": "long"}), ["_deleted_at"])


@each_case(
    ("said", "owners"),
    [({"owners": ["team:ads", "me@example.com"]}, ("team:ads", "me@example.com")), ({}, ()),
     ({"owners": "team:ads"}, ()), ({"owners": ["team:ads", 5]}, ()), ({"owners": None}, ())],
)  # fmt: skip
@each_case("is_union", [False, True])
def test_the_owners_of_a_schema_are_those_of_the_table(said, owners, is_union):
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "int"}], **said}
    parsed = avro.parsed(json.dumps(["null", record] if is_union else record), {})
    assert shape_of(parsed, []).owners == owners
