"""Kinds of values in Protobuf messages that are not messages of their own: scalars, enums and well-known types."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from feed_assets.kafka.poison import Poison
from feed_assets.kafka.schema_limits import NAME_CHARACTERS, check_most

Read = Callable[[Any], Any]
_FIELD = FieldDescriptorProto

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = 1_000_000_000
_MOST_SECONDS = 315_576_000_000
"""The most seconds of a Duration, by its definition."""


class FieldKind(NamedTuple):
    """The Avro type of a value, the value of a field without presence, and the function that converts a value."""

    avro: Any
    default: Any = None
    convert: Read | None = None


def _moment(message: Any) -> datetime:
    """Return a Timestamp in microseconds. The rest of its nanoseconds is left out, because no table has them."""
    if not 0 <= message.nanos < _NANOS:
        raise ValueError(f"{message.nanos} nanoseconds")
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)


def _duration(message: Any) -> Decimal:
    """Return the seconds of a Duration."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _MOST_SECONDS or abs(nanos) >= _NANOS or (seconds and nanos and (seconds < 0) != (nanos < 0)):
        raise ValueError(f"a duration of {seconds} seconds and {nanos} nanoseconds")
    return Decimal(f"{seconds * _NANOS + nanos}E-9")


def _day(message: Any) -> date:
    return date(message.year, message.month, message.day)


def _value(message: Any) -> Any:
    return message.value


def _unsigned(message: Any) -> Decimal:
    return Decimal(message.value)


def unchanged(value: Any) -> Any:
    """Return a value as it is."""
    return value


def _text(value: Any) -> str:
    """Return a text. The library returns bytes of proto2 that are not UTF-8 as they are."""
    if not isinstance(value, str):
        raise Poison.plain("a text is not UTF-8")
    return value


def _decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_INT, _LONG, _UNSIGNED = FieldKind("int", 0), FieldKind("long", 0), FieldKind(_decimal(20, 0), Decimal(0), Decimal)
SCALARS: Mapping[int, FieldKind] = {
    **dict.fromkeys((_FIELD.TYPE_INT32, _FIELD.TYPE_SINT32, _FIELD.TYPE_SFIXED32), _INT),
    **dict.fromkeys((_FIELD.TYPE_INT64, _FIELD.TYPE_SINT64, _FIELD.TYPE_SFIXED64), _LONG),
    **dict.fromkeys((_FIELD.TYPE_UINT32, _FIELD.TYPE_FIXED32), _LONG),
    **dict.fromkeys((_FIELD.TYPE_UINT64, _FIELD.TYPE_FIXED64), _UNSIGNED),
    _FIELD.TYPE_FLOAT: FieldKind("float", 0.0),
    _FIELD.TYPE_DOUBLE: FieldKind("double", 0.0),
    _FIELD.TYPE_BOOL: FieldKind("boolean", False),
    _FIELD.TYPE_STRING: FieldKind("string", "", _text),
    _FIELD.TYPE_BYTES: FieldKind("bytes", b""),
}
_WRAPPED = {
    "Double": "double",
    "Float": "float",
    "Int64": "long",
    "Int32": "int",
    "UInt32": "long",
    "Bool": "boolean",
    "String": "string",
    "Bytes": "bytes",
}
KNOWN: Mapping[str, FieldKind] = {
    "google.protobuf.Timestamp": FieldKind({"type": "long", "logicalType": "timestamp-micros"}, convert=_moment),
    "google.protobuf.Duration": FieldKind(_decimal(21, 9), convert=_duration),
    "google.protobuf.UInt64Value": FieldKind(_UNSIGNED.avro, convert=_unsigned),
    **{f"google.protobuf.{name}Value": FieldKind(kind, convert=_value) for name, kind in _WRAPPED.items()},
    "google.type.Date": FieldKind({"type": "int", "logicalType": "date"}, convert=_day),
    "google.type.Decimal": FieldKind("string", convert=_value),
}
"""Message types that stand for plain values."""


def enum_kind(enum: Any) -> FieldKind:
    """Return the kind of an enum: the name of a value, the first one if a number has several names."""
    names = dict[int, str]()
    for each in enum.values:
        check_most(len(each.name), NAME_CHARACTERS, "characters of a name")
        names.setdefault(each.number, each.name)

    def name(number: int) -> str:
        if number not in names:
            public = f"a field has a number that the enum {enum.full_name} lacks"
            raise Poison(f"{enum.full_name} has no value {number}", public)
        return names[number]

    return FieldKind("string", names[enum.values[0].number], name)
