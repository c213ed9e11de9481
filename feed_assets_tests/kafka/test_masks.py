"""Masks of declared columns: exact values, and dead letters that say nothing of their messages."""

import json
import signal
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from feed_assets.cli import main
from feed_assets.core.errors import InvalidDefinition, InvalidSetting, LetterLeft
from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, dialect, spark_job
from feed_assets.kafka.dead_letters import settle
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.masks import check_key
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message, Tombstone
from feed_assets.kafka.offset_range import Kept
from feed_assets.kafka.signal_message import Signal
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.support.connector_command import LOCATION
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kafka_topics import POISON, World, header
from feed_assets_tests.support.mask_key import KEY, keyed

SECRET = "Pl4nted@example.org"
USER = """{"type": "record", "name": "user", "fields": [
    {"name": "id", "type": "string"}, {"name": "email", "type": "string", "doc": "where to write"},
    {"name": "iban", "type": ["null", "string"], "default": null}, {"name": "card", "type": "long", "default": 7},
    {"name": "birth", "type": {"type": "int", "logicalType": "date"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "home", "type": {"type": "record", "name": "place", "fields": [{"name": "city", "type": "string"}]}},
    {"name": "work", "type": ["place", "null"]}, {"name": "n", "type": "long"}
]}"""
ROW = {
    "id": "a",
    "email": SECRET,
    "iban": "DE89370400440532013000",
    "card": 1234567,
    "birth": date(1980, 1, 31),
    "price": Decimal("12.50"),
    "home": {"city": "Köln"},
    "work": {"city": "Bonn"},
    "n": 5,
}
USER_KEY = '{"type": "record", "name": "key", "fields": [{"name": "id", "type": "string"}]}'
NO_ID = """{"type": "record", "name": "mail", "fields": [{"name": "mail", "type": "string", "aliases": ["email"]}]}"""
ENVELOPE = """{"type": "record", "name": "envelope", "fields": [{"name": "op", "type": "string"},
    {"name": "before", "type": ["null", {"type": "record", "name": "row", "fields": [
        {"name": "id", "type": "string"}, {"name": "email", "type": ["null", "string"]}]}]},
    {"name": "after", "type": ["null", "row"]}]}"""
ODD_KEY = """{"type": "record", "name": "odd", "fields": [
    {"name": "id", "type": {"type": "string", "logicalType": ["x"]}}, {"name": "email", "type": "string"}]}"""
PLAIN = '{"type": "record", "name": "plain", "fields": [{"name": "id", "type": "string"}]}'
UNSIGNED_KEY = """{"type": "record", "name": "whole", "fields": [{"name": "id", "type":
    {"type": "bytes", "logicalType": "decimal", "precision": 20}}, {"name": "email", "type": "string"}]}"""
SCHEMAS = {
    number: avro.parsed(text, {})
    for number, text in enumerate((USER, USER_KEY, NO_ID, ENVELOPE, PLAIN, ODD_KEY, UNSIGNED_KEY), 1)
}


class Registry:
    """Schemas by id, and the id of the schema that values in JSON have."""

    def get(self, schema_id: int) -> avro.Schema:
        return SCHEMAS[schema_id]

    def register(self, subject: str, schema: Any) -> int:
        SCHEMAS[99] = avro.parsed(json.dumps(schema), {})
        return 99


def wire(schema_id: int, datum: Any) -> bytes:
    return avro.encoded(datum, SCHEMAS[schema_id], schema_id)


def decoded(value: bytes | None, key: bytes | None = None, /, **topic: Any) -> Any:
    declared = Topic(**{"key": ("id",), **topic})
    return Decoder(declared, Registry(), KEY)(Message(3, key, value, [("mail", SECRET.encode())], 8))  # type: ignore[arg-type]


def cells(row: Any) -> dict[str, str | None]:
    assert isinstance(row, ChunkRow), row
    (line,) = dialect.read(row.line)
    return dict(zip(row.columns, line, strict=True))


def types(row: ChunkRow) -> dict[str, Any]:
    assert row.record is not None
    return {each["name"]: each["type"] for each in row.record["fields"]}


def test_masked_columns_have_exact_values_and_types():
    masks = {"email": "hash", "iban": "last4", "card": "last4", "birth": "null", "price": "hash", "home": "hash"}
    row = decoded(wire(1, ROW), mask=masks)
    assert cells(row) == {
        "_operation": "update",
        "_offset": "3",
        "id": "a",
        "email": keyed(SECRET),
        "iban": "****3000",
        "card": "****",
        "birth": None,
        "price": keyed("12.50"),
        "home": keyed('{"city":"Köln"}'),
        "work": '{"city":"Bonn"}',
        "n": "5",
    }, "a number of seven digits would be half of it"
    text = ["null", "string"]
    masked = {name: kind for name, kind in types(row).items() if name in masks}
    assert masked == {**dict.fromkeys(masks, text), "birth": ["null", {"type": "int", "logicalType": "date"}]}
    assert (types(row)["n"], row.schema_id) == ("long", 1)
    fields = {each["name"]: each for each in row.record["fields"]}
    assert (fields["email"]["doc"], "default" in fields["card"]) == ("where to write", False)
    again = decoded(wire(1, {**ROW, "iban": None, "card": 12345678, "n": 6}), mask={**masks, "n": "hash"})
    assert [cells(again)[name] for name in ("iban", "card", "n")] == [None, "****5678", keyed("6")]
    hidden = decoded(wire(1, ROW), mask={"home": "last4", "birth": "last4"})
    assert [cells(hidden)[name] for name in ("home", "birth")] == ["****", "****"]


def test_a_masked_key_has_the_same_hash_in_rows_and_tombstones_wherever_it_is_read():
    mask = {"id": "hash"}
    assert cells(decoded(wire(1, ROW), mask=mask))["id"] == keyed("a")
    by_key = decoded(wire(3, {"mail": "x"}), wire(2, {"id": "a"}), mask=mask)
    assert (cells(by_key)["id"], cells(by_key)["mail"]) == (keyed("a"), "x")
    assert decoded(None, wire(2, {"id": "a"}), mask=mask) == Tombstone(3, {"id": keyed("a")}, 8)
    assert cells(decoded(wire(6, {"id": "a", "email": "b"}), mask=mask))["id"] == keyed("a"), "any logical type"
    whole = decoded(wire(7, {"id": Decimal("1E+3"), "email": "b"}), mask=mask)
    assert cells(whole)["id"] == keyed("1000"), "a whole number that is a decimal, such as uint64 of Protobuf"
    assert decoded(None, b"a", mask=mask, keys="string") == Tombstone(3, {"id": keyed("a")}, 8)
    value = json.dumps({"id": 7, "n": 1}).encode()
    row = decoded(value, mask=mask, values="json", columns="id bigint, n int")
    assert (cells(row)["id"], types(row)["id"]) == (keyed("7"), ["null", "string"])
    for kind, cell in (("string", '"a"'), ("bigint", "7"), ("boolean", "true")):
        topic = {"mask": mask, "values": "json", "keys": "json", "columns": f"id {kind}, n int"}
        row = decoded(f'{{"id": {cell}, "n": 1}}'.encode(), **topic)
        for key in (f'{{"id": {cell}}}', cell):
            assert decoded(None, key.encode(), **topic).key["id"] == cells(row)["id"], kind
    for op, part in (("c", "after"), ("d", "before")):
        datum = {"op": op, "before": None, "after": None, part: {"id": "a", "email": SECRET}}
        changed = decoded(wire(4, datum), mask={**mask, "email": "hash"}, operation="debezium")
        assert (cells(changed)["id"], cells(changed)["email"]) == (keyed("a"), keyed(SECRET)), part
    shape = shape_of(SCHEMAS[4], ["id"], is_debezium=True, masks={"email": "last4"})
    assert [str(each) for each in shape.columns] == ["id text not null", "email text"]
    shape = shape_of(SCHEMAS[1], ["n"], masks={"n": "hash", "card": "hash", "birth": "null"})
    kinds = {each.name: (each.kind.name, each.is_nullable, each.default) for each in shape.columns}
    assert kinds["n"] == ("text", False, None)
    assert [kinds["card"], kinds["birth"]] == [("text", True, None), ("date", True, None)]
    renamed = decoded(wire(3, {"mail": SECRET}), wire(2, {"id": "a"}), mask={"email": "hash"})
    assert cells(renamed)["mail"] == keyed(SECRET), "an alias is the same column"
    assert decoded(wire(3, {"mail": SECRET}), mask={"email": "hash"}, key=("mail",)).reason.startswith("schema 3 has")


@each_case(
    ("value", "topic", "reason"),
    [
        (wire(5, {"id": SECRET}), {}, "schema 5 has no field email, which is masked: correct the mask, or declare"),
        (
            wire(1, ROW),
            {"key": ("price",), "mask": {"price": "hash"}},
            "schema 1 has the masked key field price, of a type whose equal values may have different texts",
        ),
        (SECRET.encode(), {}, "the value does not begin with the magic byte 0"),
        (
            json.dumps({"op": "u", "before": None, "after": {SECRET: "__debezium_unavailable_value"}}).encode(),
            {"values": "json", "columns": "id int, email string", "operation": "debezium"},
            "a field is a long value that was not sent",
        ),
        (wire(1, ROW)[:8], {}, "the value is not Avro of schema 1"),
        (None, {"keys": "uuid"}, "the key is not the text of a UUID"),
        (None, {"keys": "json"}, "the key is not JSON"),
        (
            json.dumps({SECRET: 1}).encode(),
            {"values": "json", "columns": "email string"},
            "the value has an undeclared",
        ),
        (b'{"email": 1e99999}', {"values": "json", "columns": "email string"}, "the value is not JSON"),
        (wire(1, ROW), {"operation": "field:email"}, "the field email is another word: expected one of create,"),
        (wire(1, ROW), {"operation": "header:mail"}, "the header mail is another word: expected one of create,"),
        (
            wire(4, {"op": SECRET, "before": None, "after": None}),
            {"operation": "debezium"},
            "the field op is another word: expected one of c, r, u, d",
        ),
    ],
)
def test_a_dead_letter_has_place_reason_size_and_digest_and_nothing_of_its_message(value, topic, reason):
    message = Message(3, SECRET.encode(), value, [("mail", SECRET.encode())], 8)
    options = {"key": ("id",), "mask": {"email": "hash"}, **topic}
    letters = [Decoder(Topic(**options), Registry(), each)(message) for each in (KEY, KEY, KEY[1:])]  # type: ignore[arg-type]
    letter = letters[0]
    assert isinstance(letter, DeadLetter)
    assert letter.reason.startswith(reason), letter.reason
    assert letter.message == Message(3, None, None, (), 8)
    seal = dict(letter.seal)
    assert seal["feed_assets.size"] == str(message.size).encode()
    assert letters[1] == letter != letters[2], "equal messages have equal digests, by the key"
    assert len(seal["feed_assets.digest"] or b"") == 64
    assert SECRET not in repr(letter)
    signal = Signal("t", 0, 3, 3, 0, 1, "feed_assets/1", None, 0, None, None)
    assert spark_job._kept(spark_job._row(0, Kept(signal, (letter,)))).dead[0].seal == letter.seal, "from an executor"


def test_an_optional_mask_holds_where_a_schema_has_the_column():
    mask = {"email?": "hash"}
    assert cells(decoded(wire(5, {"id": "a"}), mask=mask))["id"] == "a"
    assert cells(decoded(wire(1, ROW), mask=mask))["email"] == keyed(SECRET)


@each_case(
    ("options", "error"),
    [
        ({"mask": {"id": "null"}}, "mask of the key field id is 'null', expected 'hash'"),
        ({"mask": {"id?": "last4"}}, "mask of the key field id is 'last4', expected 'hash'"),
        ({"mask": {"home.city": "hash"}}, "home.city is a field in a column, expected a whole column: mask 'home'"),
        ({"mask": {"a": "hash", "a?": "null"}}, r"'a' is masked with and without \?: remove one of both"),
        ({"mask": {"email??": "hash"}}, r"'email\?' is no name of a column: expected it without blanks"),
        ({"mask": {"email ": "hash"}}, "'email ' is no name of a column"),
        ({"mask": {"_offset": "hash"}}, "expected names of columns, without"),
        ({"mask": {"a": "sha1"}}, "mask"),
        (
            {"mask": {"emial": "hash"}, "values": "json", "schema": "id int, email string"},
            "mask of 'emial': expected one of the columns email, id",
        ),
        (
            {"mask": {"id": "hash"}, "values": "json", "schema": "id decimal(9,2)"},
            "mask of the key field id: expected the type of a text, a whole number or a boolean",
        ),
    ],
)
def test_masks_that_could_not_hold_are_refused_where_they_are_declared(options, error):
    with pytest.raises(InvalidDefinition, match=error):
        kafka_topic("t/users", topic="users", key=["id"], **options)


def test_without_a_key_a_topic_with_masks_is_not_read(home, tmp_path, monkeypatch, capsys):
    topic = Topic(key=("id",), mask={"email": "hash"})
    check_key([Topic(key=("id",))], b"")
    for act in (lambda: check_key([topic], b""), lambda: Decoder(topic, Registry())):  # type: ignore[arg-type]
        with pytest.raises(InvalidSetting, match="FEED_ASSETS_MASK_KEY is not set, and a topic has masked columns"):
            act()
    limits = {"mask": {"email": "hash"}}
    (tmp_path / "location_of_masks.py").write_text(LOCATION.format(topic="users", limits=limits))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FEED_ASSETS_KAFKA", '{"bootstrap.servers": "127.0.0.1:1"}')
    monkeypatch.setenv("FEED_ASSETS_KAFKA_REGISTRY", "http://127.0.0.1:1")
    monkeypatch.setattr("sys.argv", ["feed-assets", "connector", "run", "-m", "location_of_masks"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        main()
    assert "FEED_ASSETS_MASK_KEY is not set, and a topic has masked columns" in capsys.readouterr().err


def test_a_dead_letter_without_content_is_replayed_from_its_topic(world: World):
    world.change(mask={"n": "hash"})
    world.create()
    world.produce()
    world.send(SECRET.encode())
    world.send(POISON)
    world.run_until_done(mask_key=KEY)
    before = [(each.key(), each.value(), each.headers()) for each in world.messages()]
    letters = world.dead_letters()
    assert [(each.key(), each.value()) for each in letters] == [(None, None)] * 2
    assert header(letters[0], "size") == str(len(SECRET) + len(world.key(0)) + len("op" + "update") + 10)
    clients = world.place.chunking().clients
    with pytest.raises(LetterLeft, match=r"2 dead letters stay open.* offset 1 has a letter without content"):
        settle(clients, world.name, produces=True, mask_key=KEY[1:])
    assert settle(clients, world.name, produces=True, mask_key=KEY) == 2
    after = [(each.key(), each.value(), each.headers()) for each in world.messages()]
    assert after == [*before, *before[1:]], "as they were, each once"
    world.run_until_done(mask_key=KEY)
    assert settle(clients, world.name, produces=False) == 2
    assert SECRET not in repr([(each.key(), each.value(), each.headers()) for each in world.dead_letters()])
