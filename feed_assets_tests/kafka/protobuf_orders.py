"""A schema in Protobuf with a field of each kind, and a registry of such schemas in the form of `Schemas`."""

import json
from struct import pack
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from feed_assets.core.topics import Topic
from feed_assets.kafka import avro, dialect, protobuf_schemas
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import ChunkRow, Message

ORDERS = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import 'google/type/date.proto';
import "google/type/decimal.proto";
import "shop/lines.proto";  // by reference

message First { int32 n = 1; }
message Order {
  enum Status { option allow_alias = true; NEW = 0; DONE = 1; FINISHED = 1; }
  string id = 1 [json_name = "Id"];
  optional int64 n = 2;
  uint64 unsigned = 3;
  float single = 4;
  double ratio = 5;
  bool ok = 6;
  bytes raw = 7;
  Status status = 8;
  google.protobuf.Timestamp at = 9;
  google.protobuf.Duration took = 10;
  google.protobuf.StringValue note = 11;
  google.protobuf.UInt64Value big = 12;
  google.type.Date day = 13;
  google.type.Decimal price = 14;
  repeated int32 numbers = 15;
  map<string, lines.Line> lines = 16;
  map<bool, Status> flags = 17;
  repeated Order children = 18;
  oneof paid { string card = 19; lines.Line voucher = 20; }
  repeated Nothing nothings = 21;
  uint32 count = 22;
  google.protobuf.BoolValue is_new = 23;
  lines.Line.Old old = 24;
  message Nothing {}
  message Second { sint32 n = 1; }
  reserved 97, 98 to 100, 500 to max;
  reserved "gone";
}
message Other { map<int32, int32> a = 1; message One { int32 n = 1; } message Two { int32 n = 1; } }
message Third { message Inner { string id = 1; } string id = 1; }
"""
LINES = """
syntax = "proto2";
package shop.v1.lines;
message Line {
  required string sku = 1;
  optional int32 pieces = 2 [default = 7];
  optional group Old = 3 { optional sfixed64 price = 1; }
  optional Kind kind = 4;
  enum Kind { PLAIN = 1; SPECIAL = -2; }
  extensions 100 to 199;
}
extend Line { optional string extra = 100; }
"""
IMPORTS = {"shop/lines.proto": LINES}
ORDER = (1,)
EMPTY_CELLS = {
    **dict.fromkeys(("n", "at", "took", "note", "big", "day", "price", "card", "voucher", "is_new", "old")),
    "id": "",
    "unsigned": "0",
    "single": "0.0",
    "ratio": "0.0",
    "ok": "false",
    "raw": "",
    "status": "NEW",
    "numbers": "[]",
    "lines": "{}",
    "flags": "{}",
    "children": "[]",
    "nothings": "[]",
    "count": "0",
}


class Registry:
    """Schemas in Protobuf by ids, and the Avro records that are registered for them, in the form of `Schemas`."""

    def __init__(self, *texts: str, references: Any = IMPORTS) -> None:
        self.schemas = {number: protobuf_schemas.parsed(text, references) for number, text in enumerate(texts, 1)}
        self.records: dict[int, Any] = {}
        self.ids: dict[str, int] = {}

    def protobuf(self, schema_id: int) -> Any:
        return self.schemas[schema_id]

    def get(self, schema_id: int) -> Any:
        return self.records[schema_id]

    def register(self, subject: str, schema: Any) -> int:
        if subject not in self.ids:
            self.ids[subject] = 100 + len(self.ids)
            self.records[self.ids[subject]] = avro.parsed(json.dumps(schema), {})
        return self.ids[subject]

    def message(self, index: Any = ORDER, schema_id: int = 1) -> Any:
        """Return the class of a message type."""
        return GetMessageClass(self.schemas[schema_id].message(index))


REGISTRY = Registry(ORDERS)
Order = REGISTRY.message()


def head(index: Any = ORDER, schema_id: int = 1) -> bytes:
    numbers = [] if index == (0,) else [len(index), *index]
    return pack(">BI", 0, schema_id) + (bytes(2 * each for each in numbers) or b"\0")


def decoded(data: bytes, message_key: bytes | None = None, registry: Any = REGISTRY, **topic: Any) -> Any:
    decoder = Decoder(Topic(**{"key": ("id",), "values": "protobuf", **topic}), registry, b"key")
    return decoder(Message(5, message_key, data, []))


def cells(row: Any) -> dict[str, str | None]:
    assert isinstance(row, ChunkRow), row
    (line,) = dialect.read(row.line)
    return dict(zip(row.columns, line, strict=True))


FLAT = 'syntax = "proto3"; message M { %s }'
