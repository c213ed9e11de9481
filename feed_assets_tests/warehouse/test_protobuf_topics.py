"""A topic in Protobuf at a real broker, with schemas of a real registry in turn, becomes the table that it says."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC
from random import Random
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from feed_assets.core.errors import InvalidName
from feed_assets.kafka import avro, protobuf_schemas
from feed_assets.kafka.protobuf_values import ProtobufType
from feed_assets.warehouse import loader as loader_module
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, Place, World, header
from feed_assets_tests.support.protobuf_topics import KEY, ProtobufWorld
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import loading_of, nexts
from feed_assets_tests.warehouse.loader_thread import loading_in_thread


@pytest.fixture
def world(broker, registry, tmp_path) -> Iterator[ProtobufWorld]:
    made = ProtobufWorld(Place(broker.servers, registry.url, f"file://{tmp_path}"))
    with closing(made.schemas):
        made.change(messages=6, seconds=0.2)
        made.create()
        yield made


@pytest.mark.parametrize("chunk_format", ["csv", "parquet"])
def test_versions_of_a_schema_in_turn_become_one_table(world, url, engine, monkeypatch, chunk_format):
    monkeypatch.setattr(loader_module, "LEASE_SECONDS", 0.0)  # The tests before this one have a lease.
    world.change(format=chunk_format)
    random = Random(7)  # noqa: S311
    for _ in range(25):
        world.produce(random.randint(1, 3), fields=random.choice([FIELDS, MORE]))
        if random.random() < 0.3:
            world.send(None, random.randrange(7))
        elif random.random() < 0.2:
            world.send(world.value(random.randrange(7)), random.randrange(7), op="delete")
    lost = world.value(1) + b"\x1a\0"  # The second version's field with the id of the first one.
    for value in (lost, world.framed(b"\xff"), world.value(1)[:4], b"\0\x7f\xff\xff\xff\0"):
        world.send(value)
    world.run_until_done()
    world.check()
    reasons = [header(each, "reason") for each in world.dead_letters()]
    first = world.ids[0]
    assert reasons == [
        "shop.Click has a field with the number 3, which the schema neither has nor reserves: it would be lost",
        f"the value is not Protobuf of schema {first} (DecodeError: Error parsing message with type 'shop.Click')",
        "the value has 4 bytes: expected a magic byte, 4 bytes of schema id, and Protobuf",
        "the registry has no schema 2147483647",
    ]
    loading = loading_of(world.place, url)
    with closing(loading.schemas), loading_in_thread(loading, world) as ended:
        wait_until(lambda: ended or nexts(engine, world.name) == {0: world.end()}, "the rows")
        assert ended == []
    with opened(engine) as connection:
        rows = connection.execute(f'SELECT id, n, note, moment FROM "{world.name}" ORDER BY id')
    assert [plain(row) for row in rows] == folded(world)
    assert any(row[2] for row in rows), "rows of the second version"


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with its JSON as a value, and its time without a zone."""
    id_, n, note, moment = row
    return (
        id_,
        n,
        json.loads(note) if isinstance(note, str) else note,
        moment and moment.astimezone(UTC).replace(tzinfo=None),
    )


def folded(world: ProtobufWorld) -> list[tuple[Any, ...]]:
    """Return the rows that the valid messages make, by plain Python."""
    found, dead = dict[str, tuple[Any, ...]](), {int(header(each, "offset")) for each in world.dead_letters()}
    for each in world.messages():
        if each.offset() in dead:
            continue
        if each.value() is None:
            found.pop(each.key()[-2:].decode(), None)
            continue
        row = world.columns(each.value())
        found[row["id"]] = row["id"], row["n"], row.get("note"), row.get("moment")
        if dict(each.headers())["op"] == b"delete":
            del found[row["id"]]
    return [found[name] for name in sorted(found)]


def test_the_key_of_a_pattern_is_that_of_the_newest_key_schema(registry, broker, tmp_path):
    with World.of(broker, registry, f"file://{tmp_path}") as world:
        with closing(SchemaRegistryClient({"url": registry.url})) as client:
            client.register_schema(f"{world.name}-key", Schema(KEY, "PROTOBUF"))
            client.register_schema(f"{world.name}.x-key", Schema('syntax = "proto3"; enum E { A = 0; }', "PROTOBUF"))
        assert world.schemas.key_fields(world.name) == ("id",)
        with pytest.raises(InvalidName, match="cannot be read: it has 0 messages: expected one, or declare"):
            world.schemas.key_fields(f"{world.name}.x")


@pytest.mark.parametrize(
    "fields",
    [
        "google.protobuf.Struct s = 2;",
        "map<string, V> children = 2;",
        "V parent = 2; repeated V children = 3;",
        "N a = 2; map<string, N> b = 3; message N { V v = 1; map<int32, N> n = 2; }",
    ],
)
def test_a_registry_takes_the_record_of_a_message_in_itself(registry, broker, tmp_path, fields):
    """Apicurio answers 500 to an Avro record that has itself in a map."""
    text = f'syntax = "proto3"; import "google/protobuf/struct.proto"; message V {{ string id = 1; {fields} }}'
    with World.of(broker, registry, f"file://{tmp_path}") as world:
        kind = ProtobufType(protobuf_schemas.parsed(text, {}).message((0,)))
        record = avro.record_of(world.schemas.get(kind.schema_id(world.schemas)))
    assert record is not None
    assert [each["name"] for each in record["fields"]] == [each["name"] for each in kind.record["fields"]]
