"""A topic with values and keys in Protobuf, written by google's library with descriptors made by hand."""

from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from struct import pack, unpack_from
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from feed_assets_tests.support.kafka_topics import FIELDS, MORE, Place, World

NOTES = 'syntax = "proto3"; package notes; message Note { string text = 1; repeated int32 stars = 2; }'
FIRST = 'syntax = "proto3"; package shop; message Other { int32 a = 1; } message Click { string id = 1; int64 n = 2; }'
SECOND = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "notes.proto";
message Other { int32 a = 1; }
message Click {
  string id = 1;
  int64 n = 2;
  notes.Note note = 3;  // not in the first version
  google.protobuf.Timestamp moment = 4;
}
"""
KEY = 'syntax = "proto2"; message Key { required string id = 1; }'
HEAD = 7
"""The bytes before a value: magic byte, id, one index, and this is 1."""

F = FieldDescriptorProto


def _message() -> Any:
    """Return the class of the second version. It writes messages of the first one, too."""
    notes = FileDescriptorProto(name="notes.proto", package="notes", syntax="proto3")
    note = notes.message_type.add(name="Note")
    note.field.add(name="text", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    note.field.add(name="stars", number=2, type=F.TYPE_INT32, label=F.LABEL_REPEATED)
    shop = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.extend(["notes.proto", "google/protobuf/timestamp.proto"])
    click = shop.message_type.add(name="Click")
    click.field.add(name="id", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    click.field.add(name="n", number=2, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    for number, (name, kind) in enumerate([("note", ".notes.Note"), ("moment", ".google.protobuf.Timestamp")], 3):
        click.field.add(name=name, number=number, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=kind)
    pool = DescriptorPool()
    for content in (timestamp_pb2.DESCRIPTOR.serialized_pb, notes.SerializeToString(), shop.SerializeToString()):
        pool.AddSerializedFile(content)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Click"))


Click = _message()


class ProtobufWorld(World):
    """A topic whose messages have one of two versions of a schema: `FIELDS` or `MORE` choose it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.change(values="protobuf", keys="protobuf")

    @cached_property
    def ids(self) -> tuple[int, int, int]:
        """Return the ids of both versions, and of the key."""
        notes = f"{self.name}-notes"
        with closing(SchemaRegistryClient({"url": self.place.registry})) as client:
            client.register_schema(notes, Schema(NOTES, "PROTOBUF"))
            reference = SchemaReference("notes.proto", notes, client.get_latest_version(notes).version)
            first = client.register_schema(f"{self.name}-value", Schema(FIRST, "PROTOBUF"))
            second = client.register_schema(f"{self.name}-value", Schema(SECOND, "PROTOBUF", [reference]))
            return first, second, client.register_schema(f"{self.name}-key", Schema(KEY, "PROTOBUF"))

    def value(self, number: int, fields: Sequence[Any] = FIELDS) -> bytes:
        click = Click(id=f"k{number % 7}", n=number)
        if fields is MORE and number % 3:
            click.note.text = f"é, {number}"
            click.note.stars.extend(range(number % 4))
            click.moment.seconds, click.moment.nanos = number, number * 1_000
        return self.framed(click.SerializeToString(), fields)

    def framed(self, content: bytes, fields: Sequence[Any] = FIELDS) -> bytes:
        return pack(">BI", 0, self.ids[fields is MORE]) + b"\2\2" + content

    def key(self, number: int) -> bytes:
        text = f"k{number % 7}".encode()
        return pack(">BI", 0, self.ids[2]) + b"\0" + b"\x0a" + bytes([len(text)]) + text

    def columns(self, value: bytes) -> dict[str, Any]:
        """Return the columns of a value, by plain Python."""
        click, (schema_id,) = Click.FromString(value[HEAD:]), unpack_from(">I", value, 1)
        row: dict[str, Any] = {"id": click.id, "n": click.n}
        if schema_id == self.ids[1]:
            note = {"text": click.note.text, "stars": [*click.note.stars]} if click.HasField("note") else None
            row |= {"note": note, "moment": click.moment.ToDatetime() if click.HasField("moment") else None}
        return row
