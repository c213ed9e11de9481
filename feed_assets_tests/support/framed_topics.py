"""A topic whose messages name their schemas as other serializers than Confluent's do, written here byte by byte."""

import json
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from struct import pack
from typing import Any
from zlib import compress

import requests
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from feed_assets.kafka import avro
from feed_assets_tests.support.glue_server import GlueServer
from feed_assets_tests.support.kafka_topics import FIELDS, KEYS, MORE, Place, World

FRAMINGS = {
    "confluent": "confluent",
    "8 bytes of content id": "apicurio_content_id",
    "4 bytes of global id": "apicurio_global_id",
    "8 bytes of global id": "apicurio_global_id",
    "header with content id": "apicurio_global_id",
    "header with global id": "apicurio_content_id",
    "glue": "glue",
    "glue with zlib": "glue",
}
"""Styles of serializers, with the framing that a topic declares. A header names its own kind of id."""

PROTOBUF = """syntax = "proto3"; package shop; message Other {{ int32 a = 1; }}
message Click {{ optional string id = 1; optional int64 n = 2; {} }}"""
NAME = b"Click"
_REF = bytes([len(NAME) + 2, 0x0A, len(NAME)]) + NAME
"""Apicurio's message `Ref` with its length before it."""

Headers = list[tuple[str, bytes]]


class FramedWorld(World):
    """A topic of one style of serializers and one format of values. `FIELDS` and `MORE` are two schemas of it.

    `numbers` has the ids that the registry gives to these schemas and to the key's.
    """

    def __init__(self, place: Place, style: str, values: str, glue: GlueServer) -> None:
        super().__init__(place)
        self.glue = glue
        self.style, self.values, self.numbers = style, values, list[int]()
        keys = values if values in ("avro", "protobuf") else "json"
        self.change(values=values, keys=keys, framing=FRAMINGS[style], messages=6, seconds=0.2)

    @cached_property
    def ids(self) -> dict[str, Any]:
        """Return the ids of the schemas of values and the key."""
        return {name: self.register(name) for name in ("first", "second", "key")}

    def register(self, name: str) -> Any:
        """Register a schema. Return what a serializer writes for it."""
        form = "AVRO" if self.values == "avro" else "PROTOBUF" if self.values == "protobuf" else "JSON"
        if self.style.startswith("glue"):
            return self.glue.register(f"{self.name}-{'key' if name == 'key' else 'value'}", form, self.text(name))
        with closing(SchemaRegistryClient({"url": self.place.registry})) as client:
            subject = f"{self.name}-{'key' if name == 'key' else 'value'}"
            if name == "key":  # A second version of the same content: global ids differ from content ids.
                client.register_schema(f"{self.name}-other", Schema(self.text(name), form))
            content_id = client.register_schema(subject, Schema(self.text(name), form))
            self.numbers.append(content_id)
        if "global" not in self.style:
            return content_id
        url = self.place.registry.replace("ccompat/v7", "registry/v2")
        answer = requests.get(f"{url}/groups/default/artifacts/{subject}/versions", timeout=30).json()
        return max(each["globalId"] for each in answer["versions"])

    def text(self, name: str) -> str:
        """Return the text of a schema."""
        fields = {"first": FIELDS, "key": KEYS}.get(name, MORE)
        if self.values == "avro":
            return json.dumps({"type": "record", "name": f"{name}_{self.name.replace('.', '_')}", "fields": fields})
        if self.values == "protobuf":
            return PROTOBUF.format("optional string note = 3;" if fields is MORE else "")
        types = {"id": "string", "n": "integer", "note": "string"}
        named = {each["name"]: {"type": types[each["name"]]} for each in fields}
        return json.dumps({"title": f"{name} {self.name}", "type": "object", "properties": named})

    def value(self, number: int, fields: Sequence[Any] = FIELDS) -> bytes:
        return self.framed(self.content(number, fields), "second" if fields is MORE else "first")

    def row(self, number: int, fields: Sequence[Any]) -> dict[str, Any]:
        return {"id": f"k{number % 7}", "n": number, **({"note": f"é, {number}"} if fields is MORE else {})}

    def content(self, number: int, fields: Sequence[Any]) -> bytes:
        """Return a value without what its serializer writes before it."""
        row = self.row(number, fields)
        if self.values == "avro":
            schema = avro.parsed(self.text("second" if fields is MORE else "first"), {})
            return avro.encoded(row, schema, 0)[avro.HEAD.size :]
        if self.values == "protobuf":
            id_, note = row["id"].encode(), str(row.get("note", "")).encode()
            tail = bytes([0x1A, len(note)]) + note if note else b""
            return bytes([0x0A, len(id_)]) + id_ + b"\x10" + _varint(number) + tail
        return json.dumps(row).encode()

    def key(self, number: int) -> bytes:
        if self.values == "json_schema":
            return json.dumps({"id": f"k{number % 7}"}).encode()
        id_ = f"k{number % 7}".encode()
        content = bytes([0x0A, len(id_)]) + id_ if self.values == "protobuf" else bytes([2 * len(id_)]) + id_
        return self.framed(content, "key")

    def framed(self, content: bytes, name: str) -> bytes:
        """Return a value or key as the style's serializer writes it."""
        index = b""
        if self.style.startswith("glue"):
            content = b"\0" + content if self.values == "protobuf" else content  # Click is the first one by its name.
            is_packed = self.style == "glue with zlib"
            return (
                pack(">BB", 3, 5 if is_packed else 0)
                + self.ids[name].bytes
                + (compress(content) if is_packed else content)
            )
        if self.values == "protobuf":
            index = b"\2\2" if self.style == "confluent" else b"" if self.style.startswith("header") else _REF
        if self.style.startswith("header"):
            return index + content
        size = ">Bq" if self.style.startswith("8") else ">BI"
        return pack(size, 0, self.ids[name]) + index + content

    def headers(self, name: str, key: str = "key") -> Headers:
        """Return the headers of a message whose value and key have these schemas."""
        if not self.style.startswith("header"):
            return []
        kind = "globalId" if "global" in self.style else "contentId"
        found = [
            (f"apicurio.{part}.{kind}", pack(">q", self.ids[each])) for part, each in (("value", name), ("key", key))
        ]
        names = [("apicurio.protobuf.type", NAME), ("apicurio.protobuf.type.key", NAME)]
        return [*found, *(names if self.values == "protobuf" else [])]

    def produce(self, count: int = 1, partition: int = 0, fields: Sequence[Any] = FIELDS) -> None:
        for number in range(self._number, self._number + count):
            self.post(self.value(number, fields), number, "second" if fields is MORE else "first")
        self._number += count

    def post(self, value: bytes | None, number: int, name: str = "first", op: str = "update") -> None:
        """Send a message whose value has a schema."""
        headers = [*self.headers(name), ("op", op.encode())]
        self.producer.produce(self.name, value, self.key(number), 0, headers=headers)
        assert self.producer.flush(30) == 0


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)
