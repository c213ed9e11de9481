"""Schemas in Protobuf: the text of a registry with the texts that it imports, and the messages that it defines."""

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from feed_assets.core.limits import REASON_BYTES, excerpt
from feed_assets.kafka.protobuf_text import file_of
from feed_assets.kafka.schema_limits import NAMES, SCHEMA_BYTES, InvalidSchema, check_most

_MAIN = "feed_assets/schema.proto"
"""The name of a schema's own text, which a registry does not name."""

_COPIED = 1 << 26
"""The most characters of full names that google's library copies for a schema, about 0.1 s."""

_OPTIONAL = FieldDescriptorProto.LABEL_OPTIONAL

_OF_PROTOBUF = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp"),
    *("type", "wrappers"),
)
_OF_TYPE = (
    *("calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction", "interval", "latlng"),
    *("localized_text", "money", "month", "phone_number", "postal_address", "quaternion", "timeofday"),
)
BUILT_IN: Mapping[str, str] = {
    f"google/{folder}/{name}.proto": f"google.{folder}.{name}_pb2"
    for folder, names in (("protobuf", _OF_PROTOBUF), ("type", _OF_TYPE))
    for name in names
}
"""Modules of the files that every Protobuf library has, by the name of an import. A registry is not asked for them."""

_CONFLUENT: Mapping[str, str] = {
    "confluent/meta.proto": "package confluent;",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
"""Files that Confluent's registry does not store, without the options that they define, which change no message."""


MessageIndex = tuple[int, ...] | str | int
"""A message type in a file: the index in the file and then in each message, its name at the top level, or its number.

AWS Glue numbers all messages of a file, also those for the entries of maps, in the order of their names.
"""


class ProtobufSchema:
    """A Protobuf schema as google's library reads it, without its options, defaults, services and extensions."""

    def __init__(self, pool: DescriptorPool, file: FileDescriptorProto, *, is_text: bool) -> None:
        self._pool, self._file, self._is_text = pool, file, is_text
        self.messages: dict[MessageIndex, Any] = {}
        """Readers of messages, by their indexes. They are kept here, to be removed together with the schema."""

    def message(self, indexes: MessageIndex) -> Descriptor:
        """Return the message type that an index names. Raise InvalidSchema if it names none, or several."""
        if isinstance(indexes, int):
            return self._numbered(indexes)
        if isinstance(indexes, str):
            indexes = self._place_of(indexes)
        name, types = f".{self._file.package}".rstrip("."), self._file.message_type
        for index in indexes:
            messages = self._at(types, index)
            if len(messages) != 1:
                place = "/".join(map(str, indexes))
                raise InvalidSchema(f"it has {'several messages' if messages else 'no message'} with the index {place}")
            name, types = f"{name}.{messages[0].name}", messages[0].nested_type
        return self._pool.FindMessageTypeByName(name.removeprefix("."))

    def _place_of(self, name: str) -> tuple[int]:
        names = [each.name for each in self._file.message_type]
        if name not in names:
            raise InvalidSchema("it has no message at its top level with the name that the value or key has")
        return (names.index(name),)

    def _numbered(self, number: int) -> Descriptor:
        names = sorted(_names(self._file, self._file.package))
        descriptor = self._pool.FindMessageTypeByName(names[number]) if number < len(names) else None
        if descriptor is None or descriptor.GetOptions().map_entry:
            raise InvalidSchema(f"it has no message with the number {number}")
        return descriptor

    def only_message(self) -> Descriptor:
        """Return the message type of a schema with one at its top level. Raise InvalidSchema for several or none."""
        if len(self._file.message_type) != 1:
            raise InvalidSchema(f"it has {len(self._file.message_type)} messages: expected one, or declare `key`")
        return self.message((0,))

    def _at(self, types: Sequence[DescriptorProto], index: int) -> list[DescriptorProto]:
        """Return the messages that an index may mean: some serializers count the entries of maps, and others do not."""
        messages = [each for each in types if not each.options.map_entry]
        counted = [each for each in types[index : index + 1] if not each.options.map_entry]
        return counted + [each for each in messages[index : index + 1] if self._is_text and each not in counted]


def parsed(text: str, referenced: Mapping[str, str]) -> ProtobufSchema:
    """Return the schema of a text. Raise InvalidSchema if it is invalid.

    `referenced` has the texts of other files by the names by which they are imported, each before those that import it.
    """
    check_most(sum(len(each.encode(errors="replace")) for each in (text, *referenced.values())), SCHEMA_BYTES, "bytes")
    try:
        file, is_text = _file(text, _MAIN)
        files = [*(_file(each, name)[0] for name, each in referenced.items()), file]
        check_most(sum(_types(each) for each in files), NAMES, "named types")
        check_most(sum(map(_copied, files)), _COPIED, "characters of full names")
        pool, added = DescriptorPool(), {each.name for each in files}
        for each in files:
            for name in each.dependency:
                _add_built_in(pool, name, added)
            pool.AddSerializedFile(each.SerializeToString())
    except InvalidSchema:
        raise
    except Exception as error:  # The library raises several kinds of exceptions for an invalid file.
        raise InvalidSchema(excerpt(f"{type(error).__name__}: {error}", REASON_BYTES // 2)) from error
    return ProtobufSchema(pool, file, is_text=is_text)


def _file(text: str, name: str) -> tuple[FileDescriptorProto, bool]:
    """Return a file's descriptor, and whether it was a text. Python's serializer registers the descriptor in Base64."""
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except Exception:  # noqa: BLE001 - It is no Base64, or no descriptor: the library raises its own exceptions.
        return file_of(text, name), True
    if file.syntax == "editions":
        raise InvalidSchema("it has an edition: expected proto2 or proto3")
    file.name = name
    del file.extension[:]
    for message in file.message_type:
        _make_like_text(message)
    return file, False


def _make_like_text(message: DescriptorProto) -> None:
    """Remove what is not read of a text either. Raise InvalidSchema for a map that no text can have."""
    del message.extension[:]
    fields = [(each.number, each.label) for each in message.field]
    if message.options.map_entry and fields != [(1, _OPTIONAL), (2, _OPTIONAL)]:
        raise InvalidSchema(f"{message.name} is no entry of a map: expected a key and a value")
    for each in message.nested_type:
        _make_like_text(each)


def _types(part: Any) -> int:
    return len(part.enum_type) + sum(1 + _types(each) for each in _messages(part))


def _copied(part: Any, begin: int = 0, scopes: int = 1) -> int:
    """Return how many characters google's library copies for the full names in a file or message.

    It copies one for each field and value, and for a type without a leading dot one for each scope that it searches.
    """
    is_file = isinstance(part, FileDescriptorProto)
    begin += 1 + len(part.package if is_file else part.name)
    scopes += part.package.count(".") if is_file else 1
    values = sum(begin + len(enum.name) + len(each.name) for enum in part.enum_type for each in enum.value)
    fields: list[Any] = [] if is_file else [*part.field]
    names = sum(
        begin + len(each.name) + (begin + len(each.type_name)) * (0 if each.type_name[:1] in ("", ".") else scopes)
        for each in fields
    )
    return values + names + sum(_copied(each, begin, scopes) for each in _messages(part))


def _messages(part: Any) -> Any:
    return part.message_type if isinstance(part, FileDescriptorProto) else part.nested_type


def _names(part: Any, scope: str) -> Iterator[str]:
    """Yield the full names of messages in a file or message."""
    for each in _messages(part):
        yield (name := f"{scope}.{each.name}".lstrip("."))
        yield from _names(each, name)


def _add_built_in(pool: DescriptorPool, name: str, added: set[str]) -> None:
    """Add a built-in file, and those that it imports. Another name is left out: the library then names it."""
    if name in added or not is_built_in(name):
        return
    added.add(name)
    content = _content(name)
    for each in FileDescriptorProto.FromString(content).dependency:
        _add_built_in(pool, each, added)
    pool.AddSerializedFile(content)


def is_built_in(name: str) -> bool:
    """Return whether an import needs no file of the registry."""
    return name in BUILT_IN or name in _CONFLUENT


@cache
def _content(name: str) -> bytes:
    if text := _CONFLUENT.get(name):
        return file_of(text, name).SerializeToString()
    return import_module(BUILT_IN[name]).DESCRIPTOR.serialized_pb
