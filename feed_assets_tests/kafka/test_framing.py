"""Framings of keys and values: the schema that they name, and where their content begins."""

from contextlib import closing
from struct import pack
from uuid import UUID
from zlib import compress

import pytest

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, framing, protobuf_schemas
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.foreign_schemas import GlobalId
from feed_assets.kafka.glue_schemas import GlueSchemas
from feed_assets.kafka.messages import DeadLetter, Message
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import RegistryFails, Schemas
from feed_assets.kafka.schema_limits import InvalidSchema
from feed_assets_tests.support.each_case import each_case

CONTENT, GLOBAL = "apicurio_content_id", "apicurio_global_id"
HEADER, KIND = "apicurio.value.contentId", "apicurio.value.globalId"
REF = b"\x07\x0a\x05Click"
TYPE = ("apicurio.protobuf.type", b"Click")


class Copies:
    """Schemas that note which foreign ids are copied. A copy has a great id."""

    def __init__(self):
        self.copied_ids = []

    def copied(self, schema_id, form):
        self.copied_ids.append((schema_id, form))
        return 1_000


def found(declared, form, value, headers=()):
    """Return the foreign ids that are copied, the schema's id, the content and the message's name."""
    schemas, message = Copies(), Message(0, None, value, [*headers])
    framed = framing.framed(message, "value", form, framing=declared, schemas=schemas)  # type: ignore[arg-type]
    return schemas.copied_ids, framed.schema_id, framed.content, framed.message


NUMBER = UUID(int=7)
GLUE = b"\3\0" + NUMBER.bytes
ZLIB = b"\3\5" + NUMBER.bytes
GLUED = [(NUMBER, "AVRO")], 1_000, b"x", ()
COPY = [(GlobalId(7), "AVRO")], 1_000, b"x", ()
OWN = [], 7, b"x", ()
LONG, SHORT = pack(">Bq", 0, 7) + b"x", pack(">BI", 0, 7) + b"x"
SEVEN = pack(">q", 7)


@each_case(
    ("declared", "value", "headers", "expected"),
    [
        ("confluent", SHORT, [(KIND, SEVEN)], OWN),
        (CONTENT, LONG, [], OWN),
        (CONTENT, SHORT, [], OWN),
        (GLOBAL, LONG, [], COPY),
        (GLOBAL, SHORT, [], COPY),
        (CONTENT, b"x", [(KIND, SEVEN)], COPY),
        (GLOBAL, b"x", [(HEADER, SEVEN)], OWN),
        (GLOBAL, b"x", [(KIND, pack(">q", 9)), (HEADER, b"?"), (HEADER, SEVEN)], OWN),
        ("glue", GLUE + b"x", [(HEADER, SEVEN)], GLUED),
        ("glue", ZLIB + compress(b"x"), [], GLUED),
        ("glue", ZLIB + compress(bytes(framing.MOST_UNPACKED)), [], (*GLUED[:2], bytes(framing.MOST_UNPACKED), ())),
        (GLOBAL, LONG, [(HEADER, SEVEN)], ([], 7, LONG, ())),
        (GLOBAL, LONG, [("apicurio.key.contentId", SEVEN)], COPY),
        (
            CONTENT,
            pack(">BI", 0, 2**31 - 1) + b"x",
            [("apicurio.value.encoding", b"BINARY")],
            ([], 2**31 - 1, b"x", ()),
        ),
    ],
)
def test_a_framing_names_a_schema(declared, value, headers, expected):
    assert found(declared, "Avro", value, headers) == expected


@each_case(
    ("value", "headers", "expected"),
    [
        (LONG[:-1] + REF + b"x", [], ("Click", b"x")),
        (b"x", [(HEADER, SEVEN), TYPE], ("Click", b"x")),
        (REF + b"x", [(HEADER, SEVEN), TYPE], ("Click", b"x")),
        (REF + b"x", [(HEADER, SEVEN), (TYPE[0], b"Other")], ("Other", REF + b"x")),
        (REF + b"x", [(HEADER, SEVEN), (f"{TYPE[0]}.key", b"Other")], ("Click", b"x")),
        (b"\xae\x02\x0a\xab\x02" + b"n" * 299, [(HEADER, SEVEN)], ("n" * 299, b"")),
    ],
)
def test_apicurio_names_a_message_of_protobuf(value, headers, expected):
    _, _, content, name = found(CONTENT, "Protobuf", value, headers)
    assert (name, content) == expected


@each_case(
    ("form", "value", "headers", "reason"),
    [
        ("Avro", b"", [], "the value has 0 bytes, and no header apicurio.value.contentId or apicurio.value.globalId"),
        ("Avro", b"\0\0\0\0", [], "the value has 4 bytes, and no header"),
        ("Avro", b"\1" + LONG, [], "the value begins with byte 1: expected the magic byte 0"),
        ("Avro", pack(">BI", 0, 2**31), [], "the value has the schema id 2147483648: expected at most 2147483647"),
        ("Avro", LONG, [(KIND, b"\0\0\0\7")], f"the header {KIND} has 4 bytes: expected 8"),
        ("Avro", LONG, [(HEADER, pack(">q", -1))], "the value has the schema id -1: expected at most 2147483647"),
        ("Avro", LONG, [(HEADER, pack(">q", 2**40))], "the value has the schema id 1099511627776: expected at most"),
        ("Avro", LONG, [("apicurio.value.encoding", b"JSON")], "the value is Avro in its encoding as JSON"),
        ("Protobuf", SHORT, [], "the value has no name of its message, neither in a header nor after its schema id"),
        ("Protobuf", SHORT[:-1] + REF[:-1], [], "the value has no name of its message"),
        ("Protobuf", SHORT[:-1] + b"\x08" + REF[1:] + b"x", [], "the value has no name of its message"),
        ("Protobuf", SHORT[:-1] + b"\xff" * 9, [], "the value has no name of its message"),
        ("Protobuf", SHORT, [(TYPE[0], b"n" * 1_025)], "the name of the value's message has 1025 bytes, or is no name"),
        ("Protobuf", SHORT, [(TYPE[0], b"\xff")], "the name of the value's message has 1 bytes, or is no name"),
    ],
)
def test_hostile_bytes_and_headers_have_a_reason(form, value, headers, reason):
    with pytest.raises(Poison) as raised:
        found(CONTENT, form, value, headers)
    assert str(raised.value).startswith(reason)
    assert "2147483648" not in raised.value.public
    assert "n" * 10 not in raised.value.public


BOMB = ZLIB + compress(bytes(framing.MOST_UNPACKED + 1))


@each_case(
    ("value", "reason"),
    [
        (GLUE[:17], "the value has 17 bytes: expected the version 3, a compression, 16 bytes of a UUID, and Avro"),
        (b"\2" + GLUE[1:], "the value begins with the bytes 2 and 0: expected 3, and 0 or 5 for a compression"),
        (b"\3\4" + GLUE[2:], "the value begins with the bytes 3 and 4: expected 3"),
        (ZLIB + b"no zlib", "the value says that it is compressed by zlib, and is not"),
        (ZLIB + compress(b"x")[:-1], "the value has less or more bytes than its zlib says"),
        (ZLIB + compress(b"x") + b"x", "the value has less or more bytes than its zlib says"),
        (BOMB, "the value unpacks to more than 16,777,216 bytes: expected at most that"),
    ],
)
def test_hostile_bytes_of_glue_have_a_reason(value, reason):
    with pytest.raises(Poison) as raised:
        found("glue", "Avro", value)
    assert str(raised.value).startswith(reason)
    assert "bytes 3 and 4" not in raised.value.public


def test_glue_numbers_messages_by_their_names():
    text = """syntax = "proto3"; package shop;
        message B { message C {} message A { message D {} } map<string, C> tags = 1; } message A {}"""
    schema = protobuf_schemas.parsed(text, {})
    names = ["shop.A", "shop.B", "shop.B.A", "shop.B.A.D", "shop.B.C"]
    assert [schema.message(number).full_name for number in range(5)] == names
    for number in (5, 6, 2**34):
        with pytest.raises(InvalidSchema, match=f"it has no message with the number {number}"):
            schema.message(number)
    assert found("glue", "Protobuf", GLUE + b"\x81\2x")[2:] == (b"x", 257)


def test_a_placeholder_of_debezium_is_found_in_a_compressed_value():
    schemas, text = Copies(), b"__debezium_unavailable_value"
    schemas.get = lambda _: avro.parsed(
        '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}', {}
    )
    decoder = Decoder(Topic(key=("id",), framing="glue"), schemas)  # type: ignore[arg-type]
    letter = decoder(Message(0, None, ZLIB + compress(bytes([2 * len(text)]) + text)))
    assert isinstance(letter, DeadLetter)
    assert "id is a long value that was not sent" in letter.reason


@each_case(
    ("declared", "value"),
    [
        *(("glue", head + b'{"id": "a"}') for head in (b"", GLUE)),
        ("glue", ZLIB + compress(b'{"id": "a"}')),
        *((declared, b'{"id": "a"}') for declared in ("confluent", CONTENT, GLOBAL)),
        *((declared, SHORT[:-1] + b'{"id": "a"}') for declared in ("confluent", CONTENT, GLOBAL)),
        *((declared, LONG[:-1] + b'{"id": "a"}') for declared in (CONTENT, GLOBAL)),
    ],
)
def test_json_with_declared_columns_may_have_a_head(declared, value):
    message = Message(0, value, value)
    assert framing.without_head(message, "value", declared) == b'{"id": "a"}'
    assert framing.without_head(message, "key", declared) == b'{"id": "a"}'


def test_a_masked_topic_quotes_nothing_of_a_header():
    topic = Topic(key=("id",), mask={"id": "hash"}, framing=CONTENT)
    decoder = Decoder(topic, Copies(), b"key")  # type: ignore[arg-type]
    letter = decoder(Message(0, None, b"x", [(HEADER, b"\x7fsecret!")]))
    assert isinstance(letter, DeadLetter)
    assert letter.reason == "the value has the schema id of another number: expected at most 2147483647"


def test_versions_of_glue_are_read_again_until_they_are_copied(monkeypatch):
    def version(_self, SchemaVersionId=None, SchemaVersionNumber=None, **_):  # noqa: N803
        number = int(SchemaVersionId[-1]) if SchemaVersionId else SchemaVersionNumber["VersionNumber"]
        return {"DataFormat": "AVRO", "SchemaArn": "arn", "VersionNumber": number, "SchemaDefinition": f"v{number}"}

    monkeypatch.setattr(GlueSchemas, "_version", version)
    glue, second, third = GlueSchemas(), UUID(int=2), UUID(int=3)
    for _ in range(2):  # The first copy fails.
        assert [each.schema_str for each in glue.versions(second, "AVRO")] == ["v1", "v2"]
    glue.note_copied(second)
    assert [each.schema_str for each in glue.versions(third, "AVRO")] == ["v3"]


def test_a_foreign_schema_that_cannot_be_copied_holds_only_topics_with_such_ids(monkeypatch):
    def refuse(*_):
        raise KafkaUnavailable("no rights")

    monkeypatch.setattr(GlueSchemas, "versions", refuse)
    with closing(Schemas("http://127.0.0.1:1")) as schemas, pytest.raises(RegistryFails, match="no rights"):
        schemas.copied(UUID(int=1), "AVRO")
