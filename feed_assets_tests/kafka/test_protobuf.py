"""Values and keys in Protobuf become the rows that Avro would make; the registry is a mapping here.

The oracle are messages that google's library wrote.
"""

import json
import re
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from struct import pack
from typing import Any

from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, protobuf_messages
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message, Tombstone
from feed_assets.kafka.protobuf_text import file_of
from feed_assets_tests.kafka import protobuf_texts
from feed_assets_tests.kafka.protobuf_orders import (
    EMPTY_CELLS,
    FLAT,
    ORDERS,
    REGISTRY,
    Order,
    Registry,
    cells,
    decoded,
    head,
)
from feed_assets_tests.support.each_case import each_case


def shown(content: bytes, **topic: Any) -> dict[str, str | None]:
    """Return the cells of an order, without those of the message and without empty ones."""
    row = cells(decoded(head() + content, **topic))
    assert [row.pop("_operation"), row.pop("_offset")] == ["update", "5"]
    assert row.keys() == EMPTY_CELLS.keys()
    return {name: cell for name, cell in row.items() if cell != EMPTY_CELLS[name]}


def test_a_message_has_a_cell_for_each_field_and_an_absent_one_is_its_default_or_null():
    assert shown(Order(id="a").SerializeToString()) == {"id": "a"}
    order = Order(
        id="a", n=0, unsigned=2**64 - 1, single=0.1, ratio=0.1, ok=True, raw=b"\0\1", status=1, count=2**32 - 1
    )
    order.at.FromJsonString("1969-07-20T20:17:40.123456789Z")
    order.took.FromNanoseconds(-1_500_000_001)
    order.note.SetInParent()
    order.big.value = 2**64 - 1
    order.is_new.value = False
    order.day.year, order.day.month, order.day.day = 2026, 1, 31
    order.price.value = "1.50"
    order.numbers.extend([3, -1])
    order.lines["b"].sku = "x"
    order.lines["a"].sku = "y"
    order.lines["a"].kind = -2
    order.flags[True] = 1
    order.flags[False] = 0
    order.voucher.sku = "v"
    order.voucher.old.price = -7
    order.old.price = 3
    order.nothings.add()
    nulls = {"pieces": None, "old": None, "kind": None}
    assert shown(order.SerializeToString()) == {
        "id": "a",
        "n": "0",
        "unsigned": "18446744073709551615",
        "single": "0.10000000149011612",
        "ratio": "0.1",
        "ok": "true",
        "raw": "0001",
        "status": "DONE",
        "count": "4294967295",
        "big": "18446744073709551615",
        "at": "1969-07-20 20:17:40.123456+00:00",
        "took": "-1.500000001",
        "note": "",
        "day": "2026-01-31",
        "price": "1.50",
        "numbers": "[3,-1]",
        "flags": '{"false":"NEW","true":"DONE"}',
        "nothings": "[{}]",
        "lines": compact({"a": {"sku": "y", **nulls, "kind": "SPECIAL"}, "b": {"sku": "x", **nulls}}),
        "voucher": compact({"sku": "v", "pieces": None, "old": {"price": -7}, "kind": None}),
        "old": '{"price":3}',
        "is_new": "false",
    }
    parent = Order(id="p", card="")
    parent.children.add(id="c", n=-1).children.add()
    (child,) = json.loads(shown(parent.SerializeToString())["children"] or "")
    assert (child["id"], child["n"], child["children"][0]["id"], child["children"][0]["n"]) == ("c", -1, "", None)
    assert shown(parent.SerializeToString())["card"] == "", "a oneof has presence"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def test_the_registered_record_has_the_values_of_the_rows():
    """Avro reads what a message says from its own bytes, by the record that stands for the Protobuf schema."""
    order = Order(id="a", unsigned=2**64 - 1, raw=b"\1", took={"nanos": 5}, voucher={"sku": "x", "old": {"price": 2}})
    order.at.seconds = 7
    row = decoded(head() + order.SerializeToString())
    schema = REGISTRY.get(row.schema_id)
    empty = dict.fromkeys(EMPTY_CELLS) | {"numbers": [], "lines": {}, "flags": {}, "nothings": []}
    zero = {"id": "", "unsigned": Decimal(0), "single": 0.0, "ratio": 0.0, "ok": False, "raw": b"", "status": "NEW"}
    line = {"sku": "x", "pieces": None, "old": {"price": 2}, "kind": None}
    plain = {**empty, **zero, "count": 0, "children": [], "took": Decimal("0.000000005"), "voucher": line}
    datum = {**plain, "id": "a", "unsigned": Decimal(2**64 - 1), "raw": b"\1"}
    same = avro.encoded({**datum, "at": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)}, schema, row.schema_id)
    assert decoded(same, values="avro") == row


@each_case(
    ("content", "reason"),
    [
        (b"\xff", "the value is not Protobuf of schema 1 (DecodeError: "),
        (b"\x0a\x01\xff", "the value is not Protobuf of schema 1 (DecodeError: "),
        (b"\xa2\x01\x03\x0a\x01\xff", "a text is not UTF-8"),
        (b"\x92\x01\x00" * 99 + b"\x92\x01\x05a", "the value is not Protobuf of schema 1 (DecodeError: "),
        (b"\xc2\x01\x00", None),
        (b"\xa2\x01\x00", "the value lacks a required field of schema 1"),
        (b"\x40\x07", "shop.v1.Order.Status has no value 7"),
        (b"\x08\x07", "the field id of shop.v1.Order has a value of another type than the schema has"),
        (b"\xa0\x1f\x07", None),
        (b"\x98\x06\x07", None),
        (b"\x80\x06\x07", "shop.v1.Order has a field with the number 96, which the schema neither has nor reserves"),
        (b"\x92\x01\x03\x80\x06\x07", "shop.v1.Order has a field with the number 96"),
        (b"\x82\x01\x07\x12\x05\x0a\x01x\x28\x01", "shop.v1.lines.Line has a field with the number 5"),
        (b"\xa2\x01\x05\x0a\x01x\x20\x05", "the field kind of shop.v1.lines.Line has a value that its enum lacks"),
        (b"\xa2\x01\x07\x0a\x01x\xa2\x06\x01x", "shop.v1.lines.Line has a field with the number 100"),
        (b"\x4a\x02\x18\x01", "google.protobuf.Timestamp has a field that would be lost"),
        (b"\x4a\x02\x10\x7f", None),
        (b"\x4a\x0b\x10" + b"\xff" * 9 + b"\x01", "the value is not Protobuf of schema 1 (ValueError: -1 nanosec"),
        (b"\x4a\x07\x08\xff\xff\xff\xff\xff\x7f", "the value is not Protobuf of schema 1 (OverflowError: "),
        (b"\x52\x02\x10\x01", None),
        (b"\x52\x0d\x08\x01\x10" + b"\xff" * 9 + b"\x01", "(ValueError: a duration of 1 seconds and -1 nanoseconds)"),
        (b"\x52\x07\x08\xff\xff\xff\xff\xff\x7f", "(ValueError: a duration of "),
        (b"\x6a\x03\x08\xea\x0f", "the value is not Protobuf of schema 1 (ValueError: "),
        (b"\x5a\x03\x0a\x01\x00", "a text with a NUL, which no database accepts"),
    ],
)
def test_bytes_that_would_lose_something_are_dead_letters(content, reason):
    """None as a reason means that the bytes are a row: reserved numbers, for example."""
    found = decoded(head() + Order(id="a").SerializeToString() + content)
    if reason is None:
        assert cells(found)["id"] == "a"
        return
    assert isinstance(found, DeadLetter), found
    assert reason in found.reason


@each_case(
    ("data", "reason"),
    [
        (b"", "the value has 0 bytes: expected a magic byte, 4 bytes of schema id, and Protobuf"),
        (b"\1\0\0\0\1\0", "the value begins with byte 1: expected the magic byte 0"),
        (b"\0\x80\0\0\1\0", "the value has the schema id 2147483649: expected at most 2147483647"),
        (b"\0\0\0\0\1", "the value has no message index after its schema id"),
        (b"\0\0\0\0\1" + b"\x80" * 9, "the value has no message index after its schema id"),
        (b"\0\0\0\0\1\2", "the value has no message index after its schema id"),
        (b"\0\0\0\0\1\1", "the value has an index of -1 messages: expected at most 100"),
        (b"\0\0\0\0\1\xca\1", "the value has an index of 101 messages: expected at most 100"),
        (b"\0\0\0\0\1\2\1", "the value has the message index -1: expected no number below 0"),
        (head((4,)), "schema 1 cannot be read: it has no message with the index 4"),
        (head((1, 4)), "schema 1 cannot be read: it has no message with the index 1/4"),
        (head((3, 0, 0)), "schema 1 cannot be read: it has no message with the index 3/0/0"),
        # Java counts the messages that the text has, Go and Python also the entries of maps before them.
        (head((2, 1)), "schema 1 cannot be read: it has several messages with the index 2/1"),
    ],
)
def test_a_head_without_a_message_type_is_a_dead_letter(data, reason):
    assert decoded(data).reason == reason


def test_the_message_type_is_the_one_of_the_index():
    first, inner = REGISTRY.message((0,)), REGISTRY.message((3, 0))
    assert cells(decoded(head((0,)) + first(n=3).SerializeToString(), b"k", keys="string"))["n"] == "3"
    assert cells(decoded(pack(">BI", 0, 1) + b"\2\0" + first(n=3).SerializeToString(), b"k", keys="string"))["n"] == "3"
    assert cells(decoded(head((3, 0)) + inner(id="i").SerializeToString()))["id"] == "i"
    for number in (1, 3):  # Only one of both ways to count has a message there.
        assert REGISTRY.message((1, number)).DESCRIPTOR.full_name == "shop.v1.Order.Second"
    schema = b64encode(
        file_of(ORDERS, "any.proto").SerializeToString()
    ).decode()  # As Python's serializer registers it.
    registry = Registry(schema)
    second, own = registry.message((1, 3)), registry.message((2, 1))
    assert (second.DESCRIPTOR.full_name, own.DESCRIPTOR.name) == ("shop.v1.Order.Second", "One")
    row = decoded(head((1, 3)) + second(n=-3).SerializeToString(), b"k", registry, keys="string")
    assert cells(row)["n"] == "-3"


def test_keys_fill_what_values_lack_and_delete_rows():
    key = REGISTRY.message((3, 0))(id="i").SerializeToString()
    first = REGISTRY.message((0,))(n=3).SerializeToString()
    row = decoded(head((0,)) + first, head((3, 0)) + key, keys="protobuf")
    assert cells(row) == {"_operation": "update", "_offset": "5", "id": "i", "n": "3"}
    decoder = Decoder(Topic(key=("id",), values="protobuf", keys="protobuf"), REGISTRY)  # type: ignore[arg-type]
    assert decoder(Message(6, head((3, 0)) + key, None)) == Tombstone(6, {"id": "i"}, 0, 4)
    other = decoder(Message(6, head((0,)) + first, None))
    assert isinstance(other, DeadLetter)
    assert other.reason == "the key has no field id"
    number = Decoder(Topic(key=("n",), values="protobuf", keys="protobuf"), REGISTRY)(  # type: ignore[arg-type]
        Message(6, head((0,)) + REGISTRY.message((0,))().SerializeToString(), None)
    )
    assert number == Tombstone(6, {"n": 0}, 0, 2), "a field without presence is never null"


def test_columns_are_masked_and_reasons_quote_nothing():
    order = Order(id="a", card="4929123456781234", status=1).SerializeToString()
    row = cells(decoded(head() + order, mask={"id": "hash", "card": "last4", "lines": "null", "unsigned": "hash"}))
    plain = {"card": "****1234", "lines": None, "status": "DONE"}
    assert {name: row[name] for name in plain} == plain
    assert re.fullmatch("[0-9a-f]{64}", row["id"] or "")
    for content in (b"\x40\x07", b"\x52\x07\x08\xff\xff\xff\xff\xff\x7f"):
        dead = decoded(head() + order + content, mask={"id": "hash"})
        assert dead.message.value is None
        assert dead.reason in (
            "a field has a number that the enum shop.v1.Order.Status lacks",
            "the value is not Protobuf of schema 1",
        )
    assert decoded(head() + order, mask={"nowhere": "hash"}).reason.endswith("if schemas may lack it")


def test_an_operation_is_the_name_of_an_enums_value():
    registry = Registry(
        'syntax = "proto3"; enum Op { update = 0; delete = 1; } message M { string id = 1; Op op = 2; }', references={}
    )
    content = registry.message((0,))(id="a", op=1).SerializeToString()
    assert cells(decoded(head((0,)) + content, None, registry, operation="field:op"))["_operation"] == "delete"


def test_schemas_with_the_same_columns_are_one_record_and_others_are_not():
    one = 'syntax = "proto3"; message M { string id = 1; int32 n = 2; }'
    registry = Registry(
        one,
        'syntax = "proto2"; message N { optional string id = 7; required sint32 n = 2; }',
        one.replace("int32", "int64"),
        references={},
    )
    rows = [
        decoded(head((0,), number) + registry.message((0,), number)(id="a", n=1).SerializeToString(), None, registry)
        for number in (1, 2, 3)
    ]
    assert [each.schema_id for each in rows] == [100, 100, 101]
    assert len({each.line for each in rows}) == 1


def test_a_field_may_have_the_name_of_a_method_of_the_library():
    names = ["ListFields", "ByteSize", "IsInitialized", "DiscardUnknownFields", "FromString", "DESCRIPTOR", "class"]
    registry = Registry(FLAT % "".join(f"int32 {name} = {n};" for n, name in enumerate(names, 1)), references={})
    data = bytes(each for number in range(1, 8) for each in (number << 3, number))
    found = cells(decoded(head((0,)) + data, b"k", registry, key=("ListFields",)))
    assert {name: found[name] for name in names} == {name: str(number) for number, name in enumerate(names, 1)}


def test_a_schemas_own_message_may_have_the_name_of_one_that_stands_for_a_value():
    texts = "message M {optional StringValue id = 1;}", "message StringValue {repeated string v = 1;}"
    registry = Registry(f"package google.protobuf; {' '.join(texts)}", references={})
    assert cells(decoded(head((0,)) + b"\x0a\3\x0a\1x", registry=registry))["id"] == '{"v":["x"]}'


@each_case(("number", "is_lost"), [(4, True), (5, False), (6, True), (9, True), (10, False), (12, False), (13, True)])
def test_numbers_of_removed_fields_are_those_in_the_reserved_ranges(number, is_lost):
    registry = Registry(FLAT % "reserved 10 to 12, 5; int32 a = 1;", references={})
    found = decoded(head((0,)) + b"\x08\1" + bytes([number << 3, 1]) * 3, b"k", registry, key=("a",))
    assert isinstance(found, DeadLetter) == is_lost


def test_names_of_an_enum_are_read_once_for_all_its_fields(monkeypatch):
    read, of_enum = [], protobuf_messages.enum_kind
    monkeypatch.setattr(protobuf_messages, "enum_kind", lambda enum: read.append(enum.full_name) or of_enum(enum))
    registry = Registry(FLAT % "enum E {X = 0;} E a = 1; repeated E b = 2; map<int32, E> c = 3;", references={})
    assert cells(decoded(head((0,)) + b"\x10\0", b"k", registry, key=("a",)))["a"] == "X"
    assert read == ["M.E"]


@each_case(
    ("fields", "content", "reason"),
    [
        ("repeated bool a = 1;", b"\x0a\x80\x7d" + b"\1" * 16_000, None),
        ("repeated bool a = 1;", b"\x0a\xe8\x84\x01" + b"\1" * 17_000, "its nested messages, lists and maps"),
        ("map<int32, int32> a = 1;", b"\x0a\2\x08\1" * 9 + b"\x0a\0" * 4_000, None),
        ("repeated N a = 1;", b"\x0a\0" * 1_500, None),
        ("repeated N a = 1;", b"\x0a\0" * 4_000, "its nested messages, lists and maps take more than 1,048,576 bytes"),
        ("repeated M a = 1;", b"\x0a\0" * 4_000, "its nested messages, lists and maps take more than 1,048,576 bytes"),
        ("repeated N a = 1;", b"\x0a\0" * 20_000, "whose nested messages may then take too much memory: expected"),
        ("repeated L a = 1;", b"\x0a\0" * 130, "whose nested messages may then take too much memory: expected at "),
    ],
)
def test_a_message_that_would_take_too_much_memory_is_a_dead_letter(fields, content, reason, monkeypatch):
    monkeypatch.setattr(protobuf_messages, "MESSAGE_BYTES", 1 << 20)
    large = "message L {" + "".join(f"string a{n} = {n};" for n in range(1, 500)) + "}"
    registry = Registry(f"{FLAT % fields} message N {{}} {large}", references={})
    found = decoded(head((0,)) + content, b"k", registry, keys="string")
    assert reason in found.reason if reason else isinstance(found, ChunkRow), found
    again = decoded(head((0,)) + content, b"k", registry, keys="string")
    assert type(again) is type(found), "each message has the whole memory"


@each_case("seed", range(40))
def test_random_messages_have_the_cells_that_plain_python_finds(seed):
    random = Random(seed)  # noqa: S311
    text, make = protobuf_texts.random_rows(random)
    registry = Registry(text, references={})
    for _ in range(20):
        message, expected = make(registry.message((0,)))
        row = decoded(head((0,)) + message.SerializeToString(), b"k", registry, key=("key",), keys="string")
        assert isinstance(row, ChunkRow), (row, text)
        found = cells(row)
        assert {name: found[name] for name in expected} == expected, text
