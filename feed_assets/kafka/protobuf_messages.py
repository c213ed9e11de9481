"""Readers of Protobuf messages: the fields of a message as the values that Avro would have, and their Avro type."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from google.protobuf.descriptor_pb2 import DescriptorProto
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from feed_assets.kafka.avro_memory import MESSAGE_BYTES
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_kinds import KNOWN, SCALARS, FieldKind, Read, enum_kind, unchanged
from feed_assets.kafka.protobuf_schemas import BUILT_IN
from feed_assets.kafka.schema_limits import LEVELS, NAME_CHARACTERS, InvalidSchema, check_most

_fields_of: Callable[[Any], Sequence[tuple[Any, Any]]] = Empty.ListFields
"""The method of every message. A message may have a field of this name, which hides its own one."""

_ITEM, _EXACT_ITEM, _ENTRY, _MESSAGE, _PLACE = 64, 200, 250, 400, 96
"""Bytes of a value in a list, of a decimal or time in it, of a map's entry, of a message, and of each of its fields."""

_OWN_MESSAGE, _OWN_PLACE = 96, 16
"""Bytes of a message, and of each of its fields, in google's library."""


class _MemoryBudget:
    """The memory that the values of one message may still take."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._left = MESSAGE_BYTES

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise Poison.plain(f"its nested messages, lists and maps take more than {MESSAGE_BYTES:,} bytes of memory")


class MessageReader:
    """The reader of one message type. `record` is its Avro type."""

    def __init__(self, descriptor: Any, record: dict[str, Any], memory: _MemoryBudget) -> None:
        self.descriptor, self.record = descriptor, record
        self._memory, self._size = memory, _MESSAGE + _PLACE * len(descriptor.fields)
        self._defaults = dict[str, Any]()
        self._converts = dict[int, tuple[str, Read | None]]()
        self._reserved: list[tuple[int, int]] | None = None

    def add(self, field: Any, kind: FieldKind) -> None:
        """Add a field. Every column may be null."""
        self._defaults[field.name] = kind.default
        self._converts[field.number] = field.name, kind.convert
        self.record["fields"].append({"name": field.name, "type": ["null", kind.avro], "default": None})

    def read(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message. An absent field is its default, or null if it has presence."""
        self._memory.take(self._size)
        fields = self._defaults.copy()
        for field, value in _fields_of(message):
            name, convert = self._converts[field.number]
            fields[name] = convert(value) if convert else value
        return fields

    def check_unknown(self, message: Any) -> None:
        """Raise Poison for a field of a message that would be lost. The schema may reserve the number of a field."""
        for number in sorted({each.field_number for each in UnknownFieldSet(message)}):
            if field := self.descriptor.fields_by_number.get(number):
                value = "value that its enum lacks" if field.enum_type else "value of another type than the schema has"
                raise Poison.plain(f"the field {field.name} of {self.descriptor.full_name} has a {value}")
            if not self._is_reserved(number):
                raise Poison.plain(
                    f"{self.descriptor.full_name} has a field with the number {number}, which the schema neither has "
                    "nor reserves: it would be lost"
                )

    def _is_reserved(self, number: int) -> bool:
        if self._reserved is None:
            self.descriptor.CopyToProto(proto := DescriptorProto())
            self._reserved = sorted((each.start, each.end) for each in proto.reserved_range)
        at = bisect_right(self._reserved, number, key=itemgetter(0)) - 1  # The library refuses ranges that overlap.
        return at >= 0 and number < self._reserved[at][1]


class TypeReaders:
    """The readers of a message type and of all types in it. Each type has one reader."""

    def __init__(self, descriptor: Any) -> None:
        self._memory, self._messages = _MemoryBudget(), dict[str, MessageReader]()
        self._own_size, self._enums, self._unfinished = 0, dict[str, FieldKind](), set[str]()
        self.root = self._message(descriptor, {"name": "row", "namespace": "feed_assets"}, 0)

    @property
    def most_bytes(self) -> int:
        """Return the most bytes of a message. In google's library, two bytes may stand for a whole nested message."""
        return MESSAGE_BYTES // (self._own_size // 2)

    def read(self, message: Any) -> dict[str, Any]:
        """Return the fields of a message of the root's type. Raise Poison, or other exceptions for wrong values."""
        self._memory.restart()
        return self.root.read(message)

    def check_unknown(self, message: Any) -> None:
        """Raise Poison if a message, or one in it, has a field that would be lost."""
        kind = cast(Any, type(message))  # The message itself may have a field named DESCRIPTOR.
        name = kind.DESCRIPTOR.full_name
        if reader := self._messages.get(name):
            reader.check_unknown(message)
        elif len(UnknownFieldSet(message)):
            raise Poison.plain(f"{name} has a field that would be lost")
        for field, value in _fields_of(message):
            if field.message_type is None:
                continue
            if _is_map(field):
                is_nested = field.message_type.fields_by_number[2].message_type is not None
                messages = value.values() if is_nested else ()
            else:
                messages = value if field.is_repeated else (value,)
            for each in messages:
                self.check_unknown(each)

    def _message(self, descriptor: Any, named: Mapping[str, Any], level: int) -> MessageReader:
        check_most(level, LEVELS // 2, "nested messages")
        reader = MessageReader(descriptor, {"type": "record", **named, "fields": []}, self._memory)
        self._messages[descriptor.full_name] = reader
        self._unfinished.add(descriptor.full_name)
        self._own_size = max(self._own_size, _OWN_MESSAGE + _OWN_PLACE * len(descriptor.fields))
        for field in descriptor.fields:
            check_most(len(field.name), NAME_CHARACTERS, "characters of a name")
            reader.add(field, self._kind(field, level))
        self._unfinished.remove(descriptor.full_name)
        return reader

    def _kind(self, field: Any, level: int) -> FieldKind:
        if _is_map(field):
            return self._map(self._single(field.message_type.fields_by_number[2], level))
        kind = self._single(field, level)
        if field.is_repeated:
            return self._list(kind)
        return kind._replace(default=None) if field.has_presence else kind

    def _list(self, item: FieldKind) -> FieldKind:
        size = _ITEM if isinstance(item.avro, str) else _EXACT_ITEM
        convert, take = item.convert, self._memory.take

        def listed(values: Any) -> list[Any]:
            take(len(values) * size)
            return [convert(each) for each in values] if convert else [*values]

        return FieldKind({"type": "array", "items": item.avro}, [], listed)

    def _map(self, value: FieldKind) -> FieldKind:
        """Return the kind of a map. Its keys are texts in order, so that equal maps are equal texts."""
        convert, take = value.convert or unchanged, self._memory.take

        def mapped(values: Any) -> dict[str, Any]:
            take(len(values) * _ENTRY)
            return {_key(key): convert(values[key]) for key in sorted(values)}

        return FieldKind({"type": "map", "values": value.avro}, {}, mapped)

    def _single(self, field: Any, level: int) -> FieldKind:
        if (enum := field.enum_type) is not None:
            if enum.full_name not in self._enums:
                self._enums[enum.full_name] = enum_kind(enum)
            return self._enums[enum.full_name]
        if field.message_type is None:
            return SCALARS[field.type]
        name = field.message_type.full_name
        if field.message_type.file.name in BUILT_IN and (plain := KNOWN.get(name)):
            return plain
        if (reader := self._messages.get(name)) is None:
            reader = self._message(field.message_type, {"name": f"protobuf.{name}"}, level + 1)
            return FieldKind(reader.record if reader.record["fields"] else _ANY_JSON, None, reader.read)
        is_plain = name in self._unfinished or not reader.record["fields"]
        return FieldKind(_ANY_JSON if is_plain else f"protobuf.{name}", None, reader.read)


_ANY_JSON = {"type": "map", "values": "string"}
"""The Avro type of a message in itself, and of one without fields. Chunks have JSON of both, as of all messages.

Some registries answer 500 to a record that has itself in a map, and an array of records without fields is not valid.
"""


def _is_map(field: Any) -> bool:
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return False
    if not field.is_repeated or entry.containing_type.full_name != field.containing_type.full_name:
        raise InvalidSchema(f"{field.full_name} has the type of another field's entries: expected a map")
    return True


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
