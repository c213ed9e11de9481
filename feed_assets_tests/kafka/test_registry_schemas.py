"""Schemas of a real registry: references, schemas that are not Avro, and unknown ids."""

import gc
import json
from contextlib import closing
from uuid import uuid4

import pytest
import requests

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, decode, registry_schemas
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import Message
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}
CLICK = {"type": "record", "name": "Click", "fields": [{"name": "at", "type": "Place"}]}

JSON = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


@pytest.fixture
def found(registry):
    with closing(Schemas(registry.url)) as made:
        yield made


def register(registry, schema, **more) -> tuple[str, int]:
    """Register a schema under a fresh name; return name and id."""
    name = uuid4().hex
    body = {"schema": json.dumps(schema), **more}
    done = requests.post(f"{registry.url}/subjects/{name}/versions", json=body, timeout=30)
    assert done.ok, done.text
    return name, done.json()["id"]


def test_a_schema_may_refer_to_others(registry, found):
    place, _ = register(registry, PLACE)
    references = [{"name": "Place", "subject": place, "version": 1}]
    _, click = register(registry, CLICK, references=references)
    data = avro.encoded({"at": {"city": "Hamburg"}}, found.get(click), click)
    assert avro.decoded(data, found.get(click)) == ({"at": {"city": "Hamburg"}}, 0)


def test_a_schema_that_is_not_avro_is_poison(registry, found):
    _, schema_id = register(registry, JSON, schemaType="JSON")
    with pytest.raises(Poison, match=f"schema {schema_id} cannot be read: it is JSON, not AVRO"):
        found.get(schema_id)


def test_an_unknown_schema_id_is_looked_up_again_later(found, monkeypatch):
    asked = []
    lookup = found._client.get_schema
    monkeypatch.setattr(found._client, "get_schema", lambda schema_id: asked.append(schema_id) or lookup(schema_id))
    for seconds in (registry_schemas._REFUSED_SECONDS, 0):
        monkeypatch.setattr(registry_schemas, "_REFUSED_SECONDS", seconds)
        for _ in range(3):
            with pytest.raises(Poison, match="the registry has no schema 2147483647"):
                found.get(2**31 - 1)
    assert len(asked) == 1 + 3


def test_schemas_used_last_are_kept_within_a_limit_of_bytes(registry, found, monkeypatch):
    ids = [register(registry, {**PLACE, "name": f"Place{number}", "doc": "x" * 1000})[1] for number in range(3)]
    monkeypatch.setattr(registry_schemas, "_KNOWN_CHARACTERS", 2500)
    for schema_id in (ids[0], ids[1], ids[0], ids[2], ids[0]):
        found.get(schema_id)
    assert (found.lookups, [*found._known]) == (3, [(ids[2], "AVRO"), (ids[0], "AVRO")])
    found.get(ids[1])
    assert (found.lookups, [*found._known]) == (4, [(ids[0], "AVRO"), (ids[1], "AVRO")])


def test_layouts_of_chunks_are_kept_no_longer_than_their_schemas(registry, found, monkeypatch):
    fields = [{"name": "kept", "type": "string"}]
    schemas = [{"type": "record", "name": f"R{number}", "fields": fields, "doc": "x" * 1000} for number in range(4)]
    ids = [register(registry, each)[1] for each in schemas]
    monkeypatch.setattr(registry_schemas, "_KNOWN_CHARACTERS", 2500)
    decoders = [Decoder(Topic(key=("kept",)), found) for _ in range(2)]
    rows = [decoder(Message(0, None, avro.HEAD.pack(0, each) + b"\2a")) for each in ids for decoder in decoders]
    assert rows[-1].columns is rows[-2].columns, "partitions of a topic share a layout"
    layouts = [each for each in gc.get_objects() if isinstance(each, decode._Layout)]
    assert sum(each.columns == rows[0].columns for each in layouts) == len(found._known) == 2


def test_a_wrong_url_is_no_poison(registry):
    with closing(Schemas(f"{registry.url}/nowhere")) as wrong, pytest.raises(KafkaUnavailable, match="nowhere"):
        wrong.get(1)
