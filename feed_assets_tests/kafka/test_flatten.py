"""Records whose fields are columns, in each format of values, with exact cells, types and reasons."""

import json
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from feed_assets.core.errors import InvalidDefinition, InvalidShape
from feed_assets.core.record_columns import records_of
from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, dialect
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.json_schemas import columns_of
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message, Tombstone
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.schema_limits import InvalidSchema
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.orchestration.declare.warehouse_tables import warehouse_table
from feed_assets.warehouse.migrations import RenameColumn, migrate
from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.kafka.protobuf_orders import REGISTRY as PROTOBUF
from feed_assets_tests.kafka.protobuf_orders import Order, head
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.mask_key import KEY, keyed

GEO = {"type": "record", "name": "geo", "fields": [{"name": "lat", "type": "double"}, {"name": "up", "type": "int"}]}
HOME = [
    {"name": "city", "type": "string", "doc": "where", "default": "x"},
    {"name": "geo", "type": ["null", GEO]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]
USER = [
    {"name": "id", "type": "long"},
    {"name": "home", "type": {"type": "record", "name": "home", "fields": HOME}, "aliases": ["address"]},
    {"name": "work", "type": [{"type": "null"}, "home"], "default": None},
    {"name": "n", "type": "int", "default": 3},
]
PLACE = {"city": "Köln", "geo": {"lat": 1.5, "up": 2}, "tags": ["a"]}


def record(fields: Any, name: str = "user") -> Any:
    return {"type": "record", "name": name, "fields": fields}


def row_of(fields: Any) -> Any:
    """Return an envelope of Debezium, whose row after a delete has other fields in its record."""
    old = record([{"name": "home", "type": ["null", record([{"name": "old", "type": "string"}], "then")]}], "before")
    return record(
        [
            {"name": "op", "type": "string"},
            {"name": "before", "type": ["null", old]},
            {"name": "after", "type": ["null", record(fields, "row")]},
        ],
        "envelope",
    )


class Registry:
    """Schemas by id, and a number for each that is registered."""

    def __init__(self, *schemas: Any) -> None:
        self.known = {number: avro.parsed(json.dumps(each), {}) for number, each in enumerate(schemas, 1)}

    def get(self, schema_id: int) -> avro.Schema:
        return self.known[schema_id]

    def register(self, _subject: str, schema: Any) -> int:
        self.known[99] = avro.parsed(json.dumps(schema), {})
        return 99

    def wire(self, schema_id: int, datum: Any) -> bytes:
        return avro.encoded(datum, self.known[schema_id], schema_id)


def decoded(registry: Any, value: bytes | None, key: bytes | None = None, /, **topic: Any) -> Any:
    declared = Topic(**{"key": ("id",), "flatten": 1, **topic})
    return Decoder(declared, registry, KEY)(Message(3, key, value))


def cells(row: Any) -> dict[str, str | None]:
    assert isinstance(row, ChunkRow), row
    (line,) = dialect.read(row.line)
    return dict(zip(row.columns[2:], line[2:], strict=True))


def fields(row: ChunkRow) -> dict[str, Any]:
    assert row.record is not None
    return {each["name"]: each for each in row.record["fields"]}


FULL = {"id": 1, "home": PLACE, "work": None, "n": 5}
FLAT = {"id": "1", "home__city": "Köln", "home__geo": '{"lat":1.5,"up":2}', "home__tags": '["a"]'}
NO_WORK = {"work__city": None, "work__geo": None, "work__tags": None, "n": "5"}


def test_fields_of_records_are_columns_down_to_the_declared_depth():
    registry = Registry(record(USER), ["null", record(USER)])
    for schema_id in (1, 2):
        assert cells(decoded(registry, registry.wire(schema_id, FULL))) == {**FLAT, **NO_WORK}
    assert [*cells(decoded(registry, registry.wire(1, FULL), flatten=0))] == ["id", "home", "work", "n"]
    row = decoded(registry, registry.wire(1, {**FULL, "work": {**PLACE, "geo": None}}), flatten=2)
    geo = {"home__geo__lat": "1.5", "home__geo__up": "2", "work__geo__lat": None, "work__geo__up": None}
    deep = {"id": "1", "home__city": "Köln", "home__tags": '["a"]', "work__city": "Köln", "work__tags": '["a"]'}
    assert cells(row) == {**deep, **geo, "n": "5"}
    assert [*cells(row)][1:4] == ["home__city", "home__geo__lat", "home__geo__up"], "in the place of the record"
    flat = fields(row)
    assert flat["home__city"] == {
        "name": "home__city",
        "type": ["null", "string"],
        "doc": "where",
        "aliases": ["address__city"],
    }, "it may be null, and has no default, because a row without the record has none"
    assert (flat["home__geo__up"]["type"], flat["n"]) == (["null", "int"], USER[3])


def test_what_is_no_record_alone_stays_one_column():
    node = {"type": "record", "name": "node", "fields": [{"name": "v", "type": "int"}]}
    odd = [
        {"name": "id", "type": "long"},
        {"name": "union", "type": ["null", node, "string"]},
        {"name": "map", "type": {"type": "map", "values": "node"}},
        {"name": "list", "type": {"type": "array", "items": "node"}},
        {"name": "none", "type": {"type": "record", "name": "none", "fields": []}},
    ]
    registry = Registry(record(odd))
    value = {"id": 1, "union": {"v": 1}, "map": {"a": {"v": 1}}, "list": [{"v": 1}], "none": {}}
    assert [*cells(decoded(registry, registry.wire(1, value), flatten=10))] == ["id", "union", "map", "list", "none"]


def test_a_record_in_itself_ends_at_the_depth():
    node: Any = {"type": "record", "name": "node", "fields": [{"name": "v", "type": "int"}]}
    node["fields"].append({"name": "next", "type": ["null", "node"]})
    registry = Registry(record([{"name": "id", "type": "long"}, {"name": "node", "type": node}]))
    value = {"id": 1, "node": {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}}
    row = cells(decoded(registry, registry.wire(1, value), flatten=2))
    assert row == {"id": "1", "node__v": "1", "node__next__v": "2", "node__next__next": '{"v":3,"next":null}'}


WIDE: Any = {"type": "record", "name": "w", "fields": [{"name": f"f{n}", "type": ["null", "w"]} for n in range(9)]}
TWICE = [*USER, {"name": "home__city", "type": "string"}]
MANY = [{"name": "h", "type": record([{"name": "a", "type": "int"}], "h"), "aliases": [f"a{n}" for n in range(9999)]}]
REFUSED = {
    "two fields for one column": (
        record(TWICE),
        "the fields home.city and home__city would both be the column home__city: rename one of them",
    ),
    "too many columns": (record([*USER, {"name": "w", "type": WIDE}]), "1,601 columns, with the fields of records"),
    "too many aliases": (record([*USER, *MANY]), "aliases of columns that are fields of records"),
    "a name that is too long": (
        record([*USER, {"name": "h" * 600, "type": record([{"name": "a" * 600, "type": "int"}], "h")}]),
        "1,202 characters of a column's name",
    ),
}


@each_case("name", [*REFUSED])
def test_schemas_that_have_no_columns_make_dead_letters(name):
    schema, reason = REFUSED[name]
    decoder = Decoder(Topic(key=("id",), flatten=10), Registry(schema))  # type: ignore[arg-type]
    with pytest.raises(Poison, match=reason):
        decoder._layout(1)
    with pytest.raises(InvalidShape, match=reason):
        shape_of(Registry(schema).get(1), ["id"], flatten=10)


def test_keys_in_records_are_found_in_rows_and_tombstones():
    key_type = record([{"name": "home", "type": record([{"name": "city", "type": "string"}], "home")}], "key")
    registry = Registry(record(USER), key_type, record([USER[0]], "only_id"))
    key = registry.wire(2, {"home": {"city": "Köln"}})
    assert cells(decoded(registry, registry.wire(1, FULL), key=("home__city",)))["home__city"] == "Köln"
    deleted = decoded(registry, None, key, key=("home__city",), mask={"home__city": "hash"})
    assert isinstance(deleted, Tombstone)
    assert deleted.key == {"home__city": keyed("Köln")}
    of_key = decoded(registry, registry.wire(3, {"id": 4}), key, key=("home__city",))
    assert cells(of_key) == {"home__city": "Köln", "id": "4"}
    as_json = decoded(registry, None, b'{"home":{"city":"Bonn"}}', key=("home__city",), keys="json")
    assert as_json.key == {"home__city": "Bonn"}
    letter = decoded(registry, registry.wire(1, FULL), key=("home",))
    assert "the key field home as a record whose fields are columns" in letter.reason


MASKS = {
    # The mask, the depth, and the reason of the dead letter, or the masked column with its value.
    "a column": ({"home__city": "hash"}, 1, ("home__city", keyed("Köln"))),
    "a record below the depth": ({"home__geo": "hash"}, 1, ("home__geo", keyed('{"lat":1.5,"up":2}'))),
    "an alias of the record": ({"address__city": "null"}, 1, ("home__city", None)),
    "a record that is columns": ({"home": "hash"}, 1, "schema 1 has no field home, which is masked"),
    "one that may lack": ({"home?": "hash"}, 1, "schema 1 has columns for the fields of home, which is masked: mask"),
    "one by its alias": ({"address?": "hash"}, 1, "schema 1 has columns for the fields of address, which is masked"),
    "a field below the depth": ({"home__geo__lat?": "hash"}, 1, "has home__geo as one column, and home__geo__lat is"),
    "a field without depth": (
        {"home__city?": "hash"},
        0,
        "has home as one column, and home__city is masked: mask home",
    ),
    "a field that may lack": ({"home__zip?": "hash"}, 1, ("home__city", "Köln")),
}


@each_case("name", [*MASKS])
def test_a_mask_holds_or_makes_dead_letters(name):
    mask, flatten, expected = MASKS[name]
    registry = Registry(record(USER))
    row = decoded(registry, registry.wire(1, FULL), mask=mask, flatten=flatten)
    if isinstance(expected, str):
        assert isinstance(row, DeadLetter)
        assert expected in row.reason
    else:
        assert cells(row)[expected[0]] == expected[1]


def test_envelopes_of_debezium_have_the_columns_of_their_rows():
    home = {"name": "home", "type": ["null", record([{"name": "city", "type": "string"}], "now")]}
    registry = Registry(row_of([home]))
    options = {"operation": "debezium", "key": ("home__city",)}
    value = {"op": "c", "before": None, "after": {"home": {"city": "Köln"}}}
    assert cells(decoded(registry, registry.wire(1, value), **options)) == {"home__city": "Köln"}
    gone = {"op": "d", "before": {"home": {"old": "x"}}, "after": None}
    letter = decoded(registry, registry.wire(1, gone), **options)
    assert letter.reason == "a record of the row has other fields than city"


JSON_COLUMNS = "id bigint, home__city string, home__geo__lat double, flat__name string"
OBJECTS = {
    # The object, and its cells, or the reason of the dead letter.
    "objects": ('{"home":{"city":"K","geo":{"lat":1.5}},"flat__name":"x"}', ["K", "1.5", "x"]),
    "a null": ('{"home":null}', [None, None, None]),
    "an object in it that is null": ('{"home":{"city":"K","geo":null}}', ["K", None, None]),
    "no fields": ('{"home":{}}', [None, None, None]),
    "a flat field": ('{"home__city":"K"}', ["K", None, None]),
    "a field twice": ('{"home__city":"K","home":{"city":"L"}}', "for the column home__city twice"),
    "another field": ('{"home":{"zip":"1"}}', "the value has a field 'home__zip', which is not declared"),
    "another object": ('{"away":{}}', "the value has a field 'away', which is not declared"),
    "a text": ('{"home":"x"}', "the value has a field 'home', which is not declared"),
    "an object below the depth": ('{"home":{"geo":{"lat":{"a":1}}}}', "the field home__geo__lat is not a double"),
}


@each_case("name", [*OBJECTS])
def test_objects_in_json_have_the_declared_columns(name):
    text, expected = OBJECTS[name]
    options = {"values": "json", "columns": JSON_COLUMNS, "flatten": 2}
    row = decoded(Registry(), b'{"id":1,' + text[1:].encode(), **options)
    if isinstance(expected, str):
        assert expected in row.reason
    else:
        assert [*cells(row).values()][1:] == expected
    if name == "objects":
        flat = decoded(Registry(), b'{"id":1,' + text[1:].encode(), **{**options, "flatten": 1})
        assert flat.reason == "the value has a field 'home__geo', which is not declared"


def properties(**declared: Any) -> dict[str, Any]:
    return {"type": "object", "properties": declared}


def test_properties_of_objects_in_a_json_schema_are_columns():
    text, number = {"type": "string"}, {"type": "number"}
    home = {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/home"}]}
    of_home = {"home": properties(city=text, geo=properties(lat=number))}
    schema = json.dumps({**properties(id={"type": "integer"}, home=home), "definitions": of_home})
    assert columns_of(schema, 2) == [("id", "bigint"), ("home__city", "string"), ("home__geo__lat", "double")]
    with pytest.raises(InvalidSchema, match=r"the property home.geo is object"):
        columns_of(schema, 1)
    twice = json.dumps(properties(home__city=text, home=properties(city=text)))
    with pytest.raises(InvalidSchema, match=r"home__city and home.city would both be the column home__city"):
        columns_of(twice, 1)


def test_the_depth_of_a_topic_decides_whether_a_json_schema_has_columns(monkeypatch):
    """Two topics may have one schema. The topic that refuses it must not keep the other one from its rows."""
    schemas = Schemas("http://127.0.0.1:9")
    schema = Schema(json.dumps(properties(home=properties(city={"type": "string"}))), "JSON")
    monkeypatch.setattr(schemas._client, "get_schema", lambda _: schema)
    with closing(schemas):
        with pytest.raises(Poison, match="the property home is object"):
            schemas.json_columns(1, 0)
        assert schemas.json_columns(1, 1) == [("home__city", "string")]


def test_messages_of_protobuf_are_columns():
    order = Order(id="a")
    order.voucher.sku = "x"
    row = cells(decoded(PROTOBUF, head() + order.SerializeToString(), values="protobuf"))
    vouchers = {name.removeprefix("voucher__"): cell for name, cell in row.items() if name.startswith("voucher")}
    assert vouchers == {"sku": "x", "pieces": None, "old": None, "kind": None}
    none = cells(decoded(PROTOBUF, head() + Order(id="a").SerializeToString(), values="protobuf"))
    assert (none["voucher__sku"], none["old__price"], none.keys()) == (None, None, row.keys())


def test_columns_of_a_record_that_was_renamed_are_renamed():
    town = [{"name": "town", "type": "string", "aliases": ["city"]}, {"name": "n", "type": "int"}]
    city = [{"name": "city", "type": "string"}, {"name": "n", "type": "int"}]
    house = {"name": "house", "type": record(town, "house"), "aliases": ["home"]}
    before = Registry(record([USER[0], {"name": "home", "type": record(city, "home")}]))
    for fields, renames in (
        ([house], {"home__n": "house__n"}),
        ([{**house, "name": "home"}], {"home__city": "home__town"}),
    ):
        shapes = [shape_of(each.get(1), ["id"], flatten=1) for each in (before, Registry(record([USER[0], *fields])))]
        steps = [step for step in migrate(*shapes).steps if isinstance(step, RenameColumn)]
        assert {step.name: step.new for step in steps} == renames


def test_a_prefix_of_a_column_is_a_record_that_it_may_be_in():
    assert records_of("a__b__c") == ["a", "a__b"]
    assert [records_of(name) for name in ("__op", "a__", "a_b", "a___b")] == [[], [], [], ["a", "a_"]]


def test_flatten_is_declared_and_topics_of_a_union_agree():
    with pytest.raises(InvalidDefinition, match="flatten"):
        kafka_topic("a/b", topic="a", key=["id"], flatten=11)
    with pytest.raises(InvalidDefinition, match="mask 'home', or with flatten 'home__city'"):
        kafka_topic("a/b", topic="a", key=["id"], flatten=1, mask={"home.city": "hash"})
    topics = [kafka_topic(f"a/t{depth}", topic=f"t{depth}", key=["id"], flatten=depth) for depth in (1, 2)]
    with pytest.raises(InvalidDefinition, match="flatten of t1 is 1, and of t2 2"):
        warehouse_table("main/a/u", topics=topics, union="u", warehouse="main")
