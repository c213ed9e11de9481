"""Parser of `.proto` texts: it makes the descriptors by which google's library reads messages.

It reads the whole language of proto2 and proto3, and skips what does not change how a message is read: options,
defaults, services and extensions. Source: "Protocol Buffers Language Specification" (proto2, proto3).
"""

from collections.abc import Callable
from typing import NoReturn

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from feed_assets.kafka.protobuf_tokens import Tokens
from feed_assets.kafka.schema_limits import check_most

_LEVELS = 32
"""The most messages that are defined one in another. It is protoc's limit, too."""

_GREATEST = 1 << 29
"""The number behind the greatest field number."""


_FIELD = FieldDescriptorProto
_SCALARS = {
    "double": _FIELD.TYPE_DOUBLE,
    "float": _FIELD.TYPE_FLOAT,
    "bool": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "sint32": _FIELD.TYPE_SINT32,
    "sfixed32": _FIELD.TYPE_SFIXED32,
    "int64": _FIELD.TYPE_INT64,
    "sint64": _FIELD.TYPE_SINT64,
    "sfixed64": _FIELD.TYPE_SFIXED64,
    "uint32": _FIELD.TYPE_UINT32,
    "fixed32": _FIELD.TYPE_FIXED32,
    "uint64": _FIELD.TYPE_UINT64,
    "fixed64": _FIELD.TYPE_FIXED64,
}
_NO_KEYS = frozenset({"double", "float", "bytes"})
"""Types that keys of maps do not have."""

_LABELS = {"optional": _FIELD.LABEL_OPTIONAL, "required": _FIELD.LABEL_REQUIRED, "repeated": _FIELD.LABEL_REPEATED}


def file_of(text: str, name: str) -> FileDescriptorProto:
    """Return the descriptor of a text, as a file of this name. Raise InvalidSchema if the text is invalid."""
    return _Parser(text, name).file


class _Parser(Tokens):
    """The definitions of a text."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.file = FileDescriptorProto(name=name, syntax="proto2")
        readers: dict[str, Callable[[], None]] = {
            "syntax": self._syntax,
            "package": self._package,
            "import": self._import,
            "option": self.skip_statement,
            "message": lambda: self._message(self.file.message_type.add(), 1),
            "enum": lambda: self._enum(self.file.enum_type.add()),
            "extend": self.skip_block,
            "service": self.skip_block,
            ";": self.next,
        }
        while self.word:
            readers.get(self.word, self._no_definition)()

    def _no_definition(self) -> NoReturn:
        self.refuse("a definition of proto2 or proto3")

    def _syntax(self) -> None:
        self.next()
        self.skip("=")
        if self.word[1:-1] not in ("proto2", "proto3"):
            self.refuse("proto2 or proto3")
        self.file.syntax = self.string()
        self.skip(";")

    def _package(self) -> None:
        self.next()
        self.file.package = self.path()
        self.skip(";")

    def _import(self) -> None:
        self.next()
        if not self.has("public"):
            self.has("weak")
        self.file.dependency.append(self.string())
        self.skip(";")

    def _message(self, message: DescriptorProto, level: int) -> None:
        self.next()
        message.name = self.name()
        self._body(message, level)

    def _body(self, message: DescriptorProto, level: int) -> None:
        check_most(level, _LEVELS, "messages one in another")
        self.skip("{")
        readers: dict[str, Callable[[], None]] = {
            "message": lambda: self._message(message.nested_type.add(), level + 1),
            "enum": lambda: self._enum(message.enum_type.add()),
            "extend": self.skip_block,
            "extensions": self.skip_statement,
            "option": self.skip_statement,
            "reserved": lambda: self._reserved(message),
            "oneof": lambda: self._oneof(message, level),
            ";": self.next,
        }
        while not self.has("}"):
            readers.get(self.word, lambda: self._field(message, level))()
        _add_oneofs_of_optional_fields(message)

    def _reserved(self, message: DescriptorProto) -> None:
        """Read the numbers of removed fields. Their names are skipped."""
        self.next()
        if not self.word[:1].isdigit():
            self.skip_statement()
            return
        while True:
            first = last = self.number()
            if self.has("to"):
                last = _GREATEST - 1 if self.has("max") else self.number()
            message.reserved_range.add(start=first, end=last + 1)
            if not self.has(","):
                break
        self.skip(";")

    def _oneof(self, message: DescriptorProto, level: int) -> None:
        self.next()
        number = len(message.oneof_decl)
        message.oneof_decl.add(name=self.name())
        self.skip("{")
        while not self.has("}"):
            if self.word == "option":
                self.skip_statement()
            elif not self.has(";"):
                self._plain(message, level, _FIELD.LABEL_OPTIONAL, number)

    def _field(self, message: DescriptorProto, level: int) -> None:
        label = _LABELS.get(self.word)
        if label is not None:
            self.next()
        elif self.file.syntax == "proto2" and self.word != "map":
            self.refuse("optional, required or repeated")
        is_optional = label == _FIELD.LABEL_OPTIONAL and self.file.syntax == "proto3"
        field = self._plain(message, level, label or _FIELD.LABEL_OPTIONAL)
        if is_optional and field is not None:
            field.proto3_optional = True

    def _plain(
        self, message: DescriptorProto, level: int, label: int, oneof: int | None = None
    ) -> FieldDescriptorProto | None:
        """Read a field without its label. Return None for a map."""
        kind = self.path()
        if kind == "map" and self.has("<"):
            self._map(message)
            return None
        field = message.field.add(label=label)
        if oneof is not None:
            field.oneof_index = oneof
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind != "group":
            field.type_name = kind
        self._name_and_number(field)
        if kind == "group":
            field.type, field.type_name = _FIELD.TYPE_GROUP, field.name
            field.name = field.name.lower()
            self._body(message.nested_type.add(name=field.type_name), level + 1)
        else:
            self.skip(";")
        return field

    def _map(self, message: DescriptorProto) -> None:
        """Read a map after its opening bracket. It is a repeated message of a key and a value."""
        entry = message.nested_type.add()
        entry.options.map_entry = True
        if self.word not in _SCALARS or self.word in _NO_KEYS:
            self.refuse("the type of a map's key")
        entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_SCALARS[self.take()])
        self.skip(",")
        value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
        if (kind := self.path()) in _SCALARS:
            value.type = _SCALARS[kind]
        else:
            value.type_name = kind
        self.skip(">")
        field = message.field.add(label=_FIELD.LABEL_REPEATED, type=_FIELD.TYPE_MESSAGE)
        self._name_and_number(field)
        entry.name = field.type_name = f"{_camel_case(field.name)}Entry"
        self.skip(";")

    def _name_and_number(self, field: FieldDescriptorProto) -> None:
        field.name = self.name()
        self.skip("=")
        field.number = self.number()
        if self.word == "[":
            self.skip_brackets()

    def _enum(self, enum: EnumDescriptorProto) -> None:
        self.next()
        enum.name = self.name()
        self.skip("{")
        while not self.has("}"):
            if self.word in ("option", "reserved"):
                self.skip_statement()
            elif not self.has(";"):
                self._value(enum)

    def _value(self, enum: EnumDescriptorProto) -> None:
        value = enum.value.add(name=self.name())
        self.skip("=")
        value.number = self.number()
        if self.word == "[":
            self.skip_brackets()
        self.skip(";")


def _add_oneofs_of_optional_fields(message: DescriptorProto) -> None:
    """Give each optional field of proto3 a oneof of its own, behind all others, with the name that protoc gives it."""
    used = {each.name for each in message.field} | {each.name for each in message.oneof_decl}
    for field in message.field:
        if field.proto3_optional:
            name = field.name if field.name.startswith("_") else f"_{field.name}"
            while name in used:
                name = f"X{name}"
            used.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
