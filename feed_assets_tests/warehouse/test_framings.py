"""Topics of each framing at a real broker, with schemas of a real registry in turn, become the same table."""

import json
from collections.abc import Iterator
from contextlib import closing
from random import Random
from typing import Any
from uuid import UUID, uuid4

import pytest
import requests

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.kafka import dead_letters
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.foreign_schemas import GlobalId
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.warehouse import loader as loader_module
from feed_assets_tests.support.framed_topics import FRAMINGS, FramedWorld
from feed_assets_tests.support.glue_server import GlueServer, glue_server
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, Place, header
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import loading_of, nexts
from feed_assets_tests.warehouse.loader_thread import loading_in_thread

STYLES = [
    *((style, "avro") for style in FRAMINGS),
    *((style, "protobuf") for style in ("8 bytes of content id", "header with global id", "glue with zlib")),
    *((style, "json_schema") for style in ("4 bytes of global id", "header with content id", "glue")),
]


@pytest.fixture
def glue(monkeypatch) -> Iterator[GlueServer]:
    with glue_server() as server:
        for name, each in server.env.items():
            monkeypatch.setenv(name, each)
        yield server


@pytest.fixture
def world(broker, registry, glue, tmp_path, request) -> Iterator[FramedWorld]:
    made = FramedWorld(Place(broker.servers, registry.url, f"file://{tmp_path}"), *request.param, glue)
    with closing(made.schemas):
        made.create()
        yield made


@pytest.mark.parametrize("world", STYLES, indirect=True, ids=" ".join)
@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_schemas_in_turn_become_one_table(world, url, engine, monkeypatch):
    monkeypatch.setattr(loader_module, "LEASE_SECONDS", 0.0)  # The tests before this one have a lease.
    random, rows = Random(7), dict[str, tuple[Any, ...]]()  # noqa: S311
    for number in range(30):
        fields = random.choice([FIELDS, MORE]) if number else FIELDS  # The schema that is seen first is the older one.
        row = world.row(number, fields)
        world.produce(fields=fields)
        rows[row["id"]] = row["id"], row["n"], row.get("note")
        if random.random() < 0.3:
            world.post(None, number)
            del rows[row["id"]]
    bad = [b"\xff", b"\0", world.value(1)[:3], world.value(1) + b"\xff"]
    for each in bad:
        world.post(each, 1)
    world.run_until_done()
    world.check()
    assert len(world.dead_letters()) == len(bad), [header(each, "reason") for each in world.dead_letters()]
    if world.values == "avro" and world.numbers:
        assert {each.schema_id for each in world.signals()} - {None} == {*world.numbers[:2]}, "the ids of the originals"
    loading = loading_of(world.place, url)
    with closing(loading.schemas), loading_in_thread(loading, world) as ended:
        wait_until(lambda: ended or nexts(engine, world.name) == {0: world.end()}, "the rows")
        assert ended == []
    with opened(engine) as connection:
        found = connection.execute(f'SELECT id, n, note FROM "{world.name}" ORDER BY id')
    assert found == [rows[name] for name in sorted(rows)]


@pytest.mark.parametrize(
    "world", [each for each in STYLES if each[0].startswith("header")], indirect=True, ids=" ".join
)
def test_a_replayed_letter_has_the_headers_that_name_its_schema(world):
    world.produce(3)
    right = world.settings.framing
    world.change(framing="confluent")
    world.run_until_done()
    assert len(world.dead_letters()) == 3
    world.change(framing=right)
    clients = Clients({"bootstrap.servers": world.place.servers})
    assert dead_letters.settle(clients, world.name, produces=True) == 3
    world.run_until_done()
    messages = world.messages()
    assert [each.headers() for each in messages[3:]] == [each.headers() for each in messages[:3]]
    assert sum(each.records for each in world.signals()) == 3


def test_a_global_id_is_copied_with_its_references(registry):
    """Ids that are not there are dead letters, and a wrong URL is an outage."""
    url, name = registry.url.replace("ccompat/v7", "registry/v2"), uuid4().hex
    place = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
    click = {"type": "record", "name": "Click", "fields": [{"name": "at", "type": "Place"}]}
    reference = {"name": "Place", "subject": f"{name}-place", "version": 1}
    with closing(Schemas(registry.url)) as schemas:
        schemas.register(f"{name}-place", place)
        body = {"schema": json.dumps(click), "references": [reference]}
        number = requests.post(f"{registry.url}/subjects/{name}/versions", json=body, timeout=30).json()["id"]
        found = requests.get(f"{url}/groups/default/artifacts/{name}/meta", timeout=30).json()
        assert schemas.copied(GlobalId(found["globalId"]), "AVRO") == found["contentId"] == number
        lookups = schemas.lookups
        assert schemas.copied(GlobalId(found["globalId"]), "AVRO") == number
        assert schemas.lookups == lookups, "requested once"
        with pytest.raises(Poison, match=r"the registry has no schema 2147483647 \(a global id\)"):
            schemas.copied(GlobalId(2**31 - 1), "AVRO")
        with pytest.raises(Poison, match=r"schema \d+ \(a global id\) cannot be read: the registry refuses a copy"):
            schemas.copied(GlobalId(found["globalId"]), "PROTOBUF")
    for wrong in (f"{registry.url.replace('ccompat', 'nowhere/ccompat')}", registry.url.replace("/apis", "")):
        with closing(Schemas(wrong)) as schemas, pytest.raises(KafkaUnavailable):
            schemas.copied(GlobalId(1), "AVRO")


def test_versions_of_glue_are_copied_in_their_order(registry, glue):
    """A later version is a greater number, whichever a topic has first. Another process has the same numbers."""
    name = f"clicks_{uuid4().hex}"
    texts = [json.dumps({"type": "record", "name": name, "doc": f"{number}", "fields": []}) for number in range(4)]
    ids = [glue.register(name, "AVRO", each) for each in texts]
    with closing(Schemas(registry.url)) as schemas, closing(Schemas(registry.url)) as others:
        third, first = schemas.copied(ids[2], "AVRO"), schemas.copied(ids[0], "AVRO")
        assert len(glue.requests) == 4, "the third with those before it, and the first"
        fourth, second = schemas.copied(ids[3], "AVRO"), schemas.copied(ids[1], "AVRO")
        assert first < second < third < fourth
        assert [others.copied(each, "AVRO") for each in ids] == [first, second, third, fourth]
        assert schemas.copied(ids[3], "AVRO") == fourth
        assert len(glue.requests) == 4 + 2 + 4, "requested once by each process"
        assert schemas.get(second).declared["doc"] == "1"
        with pytest.raises(Poison, match=r"cannot be read: it is AVRO, not PROTOBUF"):
            schemas.copied(ids[0], "PROTOBUF")
        unknown = UUID(bytes=b"a secret message")
        for _ in range(2):
            with pytest.raises(Poison, match=str(unknown)) as raised:
                schemas.copied(unknown, "AVRO")
            assert raised.value.public == "the registry has no schema of a UUID"
        glue.error = "AccessDeniedException"
        with pytest.raises(KafkaUnavailable, match=r"AccessDeniedException.*Check AWS_DEFAULT_REGION") as denied:
            schemas.copied(uuid4(), "AVRO")
        assert "schema " not in str(denied.value).partition("Glue")[2]
