"""Schemas registered to stop a topic, in a registry over HTTP: they make dead letters, and the partition continues."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from feed_assets.core.limits import REASON_BYTES
from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, registry_schemas
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.dialect import JSON_CHARACTERS
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.schema_limits import (
    BRANCHES,
    DIGITS,
    LEVELS,
    NAME_CHARACTERS,
    NAMES,
    NULLS,
    REPEATED_NULLS,
    REQUESTS,
    SCHEMA_BYTES,
)
from feed_assets_tests.support.each_case import each_case

F = {"name": "f", "type": "int"}
GOOD, HOSTILE = 1, 2


def record(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": [F, *fields], **more}


def field(type_, name="g"):
    return {"name": name, "type": type_}


def diamond(levels, leaf):
    """Return records each of which names the next one twice."""
    inner = {"type": "record", "name": f"R{levels}", "fields": [{"name": "x", "type": leaf}]}
    for level in reversed(range(levels)):
        fields = [field(inner, "a"), field(f"R{level + 1}", "b")]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    return inner


def nested(levels, type_: object = "int"):
    for _ in range(levels):
        type_ = {"type": "array", "items": type_}
    return type_


def chain(records):
    """Return flat text in which each record lies in the previous one, by name."""
    made = [{"type": "record", "name": f"C{n}", "fields": [field(f"C{n - 1}")]} for n in range(1, records)]
    return [{"type": "record", "name": "C0", "fields": [F]}, *made]


def decimal(digits, **more):
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": digits, **more}


def nulls(count):
    """Return a record with `count` values that take no bytes."""
    return record(*(field("null", f"n{n}") for n in range(count)), name="N")


class Served:
    """A registry of these schemas (by id) and versions (by subject): texts, with the subjects that they refer to."""

    def __init__(self, ids, subjects):
        self._ids, self._subjects = ids, subjects
        self.requests = list[str]()

    def answer(self, path):
        """Return the status and the body of a request."""
        self.requests.append(path)
        kind, name = path.strip("/").split("?")[0].split("/")[0], path.split("?")[0].split("/")[-1]
        if kind == "schemas" and int(name) in self._ids:
            return 200, _body(*self._ids[int(name)])
        subject = path.split("/")[2]
        if kind == "subjects" and self._subjects.get(subject):
            return 200, {"subject": subject, "version": 1, "id": 9, **_body(*self._subjects[subject])}
        code = 40403 if kind == "schemas" else 40402 if subject in self._subjects else 40401
        return 404, {"error_code": code, "message": "not found"}


def _body(schema, references=()):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return {"schema": text, "references": [{"name": each, "subject": each, "version": 1} for each in references]}


@contextmanager
def served(ids, subjects=()) -> Iterator[tuple[Served, Schemas]]:
    registry = Served({GOOD: (record(),), **ids}, dict(subjects))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = registry.answer(self.path)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            """Write no log line."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        with closing(Schemas(f"http://127.0.0.1:{server.server_port}")) as made:
            yield registry, made
        server.shutdown()


def decode(made, schema_id, data=b"\x02"):
    return Decoder(Topic(key=("f",)), made)(Message(0, None, avro.HEAD.pack(0, schema_id) + data))


HOSTILE_SCHEMAS = {
    "nested arrays": (record(field(nested(400))), "101 nested types: expected at most 100"),
    "nested arrays by a name": (
        record(field(record(field(nested(60)), name="A")), field(nested(60, "A"), "h")),
        "nested types: expected at most 100",
    ),
    "brackets": ("[" * 5_000 + "]" * 5_000, "nested brackets: expected at most 600"),
    "brackets of an attribute": (record(more=json.loads("[" * 700 + "]" * 700)), "601 nested brackets"),
    "as many brackets as there may be": ("[" * 601 + "5" + "]" * 601, "^(?!.*brackets)"),
    "records by their names": (record(field([*reversed(chain(3_000))])), "nknownType|nested types"),
    "a long text": (record(doc="x" * 2_000_000), "expected at most 1,048,576"),
    "many names": (record(field([{"type": "fixed", "name": f"F{n}", "size": 1} for n in range(10_001)])), "10,000"),
    "a wide union": (record(field([decimal(7)] * 2_000)), "2,000 branches of a union: expected at most 1,000"),
    "values of no bytes": (record(field(diamond(16, "null"))), "values without bytes in one message"),
    "values of no bytes in a union": (record(field(["int", nulls(1_500)])), "1,499 values without bytes in one"),
    "items of few bytes": (record(field({"type": "array", "items": nulls(17)})), "17 values without bytes in an "),
    "values of few bytes": (record(field({"type": "map", "values": nulls(17)})), "17 values without bytes in an "),
    "a recursive one of them": (record(field(["null", "R"]), *(field("null", f"n{n}") for n in range(17))), "bytes in"),
    "a fixed below 0": (record(field({"type": "fixed", "name": "X", "size": -1})), "a fixed of -1 bytes"),
    "digits": (record(field(decimal(50_000_000))), "50,000,000 digits"),
    "digits of a fixed": (record(field(decimal(2_000, type="fixed", name="X", size=1_000))), "2,000 digits"),
    "more digits behind the point than there are": (record(field(decimal(7, scale=50_000_000))), "the precision of 7"),
    "digits behind the point alone": (record(field(decimal(None, scale=50_000_000))), "50,000,000 digits"),
    "checked already": (record(field("nowhere"), __fastavro_parsed=True), "fastavro reserves"),
    "NUL in a name": (record(field("int", "a\0b")), "a field named 'a.x00b'"),
    "half a character": ('{"type":"record","name":"R","fields":[{"name":"\\ud800","type":"int"}]}', "a field named"),
    "two of one name": (record(field("int", "f")), "two fields named 'f'"),
    "a long name": (record(field("int", "n" * 1_025)), "1,025 characters of a name: expected at most 1,024"),
    "a long symbol": (record(field({"type": "enum", "name": "E", "symbols": ["A" * 2_000]})), "2,000 characters of"),
    "a number for a name": (record(field("int", 5)), "a field named 5"),
    "no name": (record(field("int", None)), "a field named None"),
    "a type that nobody knows": (record(field("N" * 100_000)), "UnknownType"),
    "no JSON": ("{", "JSONDecodeError"),
    "a number": ("5", "cannot be read"),
    "self by name alone": ({"type": "record", "name": "R", "fields": [field("R", "f")]}, "not Avro of schema"),
}  # fmt: skip


@pytest.fixture
def hostile():
    with served({HOSTILE + n: (schema,) for n, (schema, _) in enumerate(HOSTILE_SCHEMAS.values())}) as (_, made):
        yield made


@each_case(("number", "name"), enumerate(HOSTILE_SCHEMAS))
def test_a_hostile_schema_is_a_dead_letter_with_its_reason_and_the_partition_goes_on(hostile, number, name):
    letter = decode(hostile, HOSTILE + number)
    assert isinstance(letter, DeadLetter)
    assert len(letter.reason.encode()) <= REASON_BYTES
    with pytest.raises(ValueError, match=HOSTILE_SCHEMAS[name][1]):
        raise ValueError(letter.reason)
    assert isinstance(decode(hostile, GOOD), ChunkRow)


REFERENCES = {
    "itself": ({"A": (record(name="A"), ["A"])}, ["A"], "", 2),
    "each other": ({"A": (record(name="A"), ["B"]), "B": (record(name="B"), ["A"])}, ["A"], "", 3),
    "without end": (
        {f"S{n}": (record(name=f"S{n}"), [f"S{n + 1}"]) for n in range(1_000)},
        ["S0"],
        f"{REQUESTS + 1} schemas including referenced ones: expected at most {REQUESTS}",
        REQUESTS,
    ),
    "twice at each level": (
        {f"S{n}": (record(name=f"S{n}"), [f"S{n + 1}"] * 2 if n < 40 else []) for n in range(41)}, ["S0"], "", 42,
    ),
    "long texts": (
        {f"S{n}": (record(name=f"S{n}", doc="x" * 400_000), []) for n in range(50)}, [f"S{n}" for n in range(50)],
        "characters of referenced schemas", 4,
    ),
    "what is not there": ({}, ["A"], "version 1 of A, which the registry lacks", 2),
    "a version that is not there": ({"A": None}, ["A"], "version 1 of A, which the registry lacks", 2),
}  # fmt: skip


EMPTY = {"type": "record", "name": "E", "fields": []}
ONE = field({"type": "record", "name": "I", "fields": [field("boolean")]})
MEMORY = {
    "no arrays": (record(*(field(["null", "string"], f"n{n}") for n in range(300))), 0),
    "numbers": (record(field(nested(1))), 40),
    "records of a byte": (record(field({"type": "array", "items": ONE["type"]})), 192),
    "with empty records": (
        record(field(nested(1, record(field(EMPTY, "e0"), *(field("E", f"e{n}") for n in range(1, 16)), name="I")))),
        2_000,
    ),
    "optional ones": (record(field(nested(1, ["null", record(field(EMPTY), name="I")]))), 200),
    "a list by names": (record(field(["null", "R"], "next"), field(EMPTY)), 100),
    "a tree": (record(field(nested(1, "R"))), 100),
    "timestamps": (record(field(nested(1, {"type": "long", "logicalType": "timestamp-micros"}))), 112),
    "a map": (record(field({"type": "map", "values": ["null", nested(1)]})), 50),
}


def test_a_message_whose_arrays_may_take_too_much_memory_is_a_dead_letter_before_it_is_decoded():
    items = record(field(EMPTY, "e0"), *(field("E", f"e{n}") for n in range(1, 16)), name="I")
    with served({HOSTILE: (record(field(nested(1, items))),)}) as (_, made):
        count, end = 300_000, b"\0"
        few, many = (b"\x02" + _long(each) + b"\0" * each + end for each in (100, count))
        assert isinstance(decode(made, HOSTILE, few), ChunkRow)
        dead = decode(made, HOSTILE, many)
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith("the value has 300,010 bytes of schema 2, whose arrays may then take too much memory")


def _long(number):
    """Return a positive number in Avro: zigzag, seven bits at a time."""
    number, encoded = number << 1, bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


@each_case(("schema", "least"), MEMORY.values())
def test_the_memory_of_a_byte_is_that_of_the_largest_repeated_value(schema, least):
    memory = avro.parsed(json.dumps(schema), {}).memory_per_byte
    assert least <= memory <= least * 3 // 2, (least, memory)


@each_case("name", REFERENCES)
def test_references_are_fetched_once_each_and_up_to_a_limit(name):
    subjects, references, reason, requests = REFERENCES[name]
    with served({HOSTILE: (record(), references)}, subjects) as (registry, made):
        found = decode(made, HOSTILE)
        assert isinstance(found, DeadLetter if reason else ChunkRow), found
        assert reason in getattr(found, "reason", "")
        assert len(registry.requests) == requests
        assert isinstance(decode(made, GOOD), ChunkRow)


def test_names_that_are_named_twice_at_each_level_take_steps_in_proportion():
    steps = [_steps(json.dumps(diamond(levels, "int"))) for levels in (20, 40, 80)]
    assert steps[1] < 2.2 * steps[0]
    assert steps[2] < 2.2 * steps[1]


def _steps(text):
    """Return how many functions are called to parse a schema."""
    count = 0

    def profile(_, event, __):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        avro.parsed(text, {})
    finally:
        sys.setprofile(None)
    return count


def test_large_schemas_of_honest_producers_are_read():
    inner: object = record(*(field("int", f"c{n}") for n in range(100)), name="R0")
    for level in range(1, LEVELS // 2 - 2):
        inner = record(
            field(["null", inner]), *(field(["null", "string"], f"c{n}") for n in range(20)), name=f"R{level}"
        )
    wide = record(
        *(field(["null", "string"], f"c{n}") for n in range(5_000)), *(field("null", f"void{n}") for n in range(500))
    )
    many = [f"S{n}" for n in range(50)]
    subjects = {name: (record(name=name), []) for name in many}
    with served({2: (inner,), 3: (wide,), 4: (record(*(field(name, name) for name in many)), many)}, subjects) as (
        _,
        made,
    ):
        assert "bytes after the Avro" in decode(made, 2, b"\x02" + bytes(10_000)).reason  # Read whole.
        assert isinstance(decode(made, 3, b"\x02" + bytes(5_000)), ChunkRow)
        assert isinstance(decode(made, 4, b"\x02" + b"\x02" * 50), ChunkRow)


def test_schemas_that_cannot_be_used_are_forgotten_one_by_one(monkeypatch):
    monkeypatch.setattr(registry_schemas, "_REFUSED_KEPT", 3)
    with served({}) as (registry, made):
        for schema_id in [11, 12, 13, 14, 14, 13, 11]:
            assert isinstance(decode(made, schema_id), DeadLetter)
        assert len(registry.requests) == 5
        assert len(made._refused) == 3


def test_the_limits_of_schemas_are_those_that_the_docs_say():
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")
    limits = (
        f"{SCHEMA_BYTES >> 20} MiB of text with all that it refers to, {REQUESTS} requests to the registry, {NAMES:,} "
        f"named types, {LEVELS} nested types, {BRANCHES:,} branches of a union, {DIGITS:,} digits of a "
        f"decimal, {NAME_CHARACTERS:,} characters of a field's name or a symbol, "
        f"{NULLS:,} values without bytes in a message and {REPEATED_NULLS} in an item of an array or map."
    )
    assert limits in " ".join(page.split())
    assert f"more than {JSON_CHARACTERS:,} characters as JSON" in " ".join(page.split())
