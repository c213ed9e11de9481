"""Random texts in Protobuf with the descriptors that protoc would make, and random messages with their cells."""

import json
import math
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

F = FieldDescriptorProto
SCALARS = {
    name: getattr(F, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"),
        *("sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
KEYS = [name for name in SCALARS if name not in ("double", "float", "bytes")]
BETWEEN = [" ", "  ", "\n", "\t", " // a comment; message X {\n", "/* another } one */", "/**/", "\r\n"]
OPTIONS = [
    'option java_package = "a;b";',
    "option (custom).a = { a: 1 b { c: 'x' } ; };",
    "option deprecated = true;",
    "option x = -inf;",
]
FIELD_OPTIONS = ["", "", "[deprecated = true]", '[(a.b) = {a: [1, 2]}, json_name = "a]"]', "[default = -1.5e+3]"]


class Writer:
    """A text word by word, and beside it the descriptor of the same definitions."""

    def __init__(self, random: Random, name: str) -> None:
        self.random, self.words, self._count = random, list[str](), 0
        self.file = FileDescriptorProto(name=name, package="p.q", syntax=random.choice(["proto2", "proto3"]))
        self._types = list[tuple[str, int]]()
        syntax = ["syntax", "=", f'"{self.file.syntax}"', ";"]
        self.words += [
            *(syntax if self.file.syntax == "proto3" or random.random() < 0.5 else []),
            "package",
            "p.q",
            ";",
        ]
        for _ in range(random.randint(1, 4)):
            self._definition(self.file, "", self.file.message_type)

    def text(self) -> str:
        parts = list[str]()
        for word in self.words:
            parts += [word, self.random.choice(BETWEEN) if self.random.random() < 0.3 else " "]
        return "".join(parts)

    def _name(self, first: str) -> str:
        self._count += 1
        return f"{first}{self._count}"

    def _definition(self, part: Any, scope: str, messages: Any, level: int = 0) -> None:
        if self.random.random() < 0.3:
            self._enum(part.enum_type.add(), scope)
        else:
            self._message(messages.add(name=self._name("M")), scope, level)

    def _enum(self, enum: EnumDescriptorProto, scope: str) -> None:
        enum.name = self._name("E")
        self.words += ["enum", enum.name, "{"]
        for number in [0, *self.random.sample([1, 2, 0x10, -3, 2**31 - 1, -(2**31)], self.random.randint(0, 4))]:
            value = enum.value.add(name=self._name("V"), number=number)
            shown = hex(number) if number == 0x10 else str(number)
            self.words += [value.name, "=", *(["-", shown[1:]] if number < 0 else [shown]), self._options(), ";"]
        self.words += ["reserved", "100", "to", "max", ";", "}"]
        self._types.append((f"p.q{scope}.{enum.name}", F.TYPE_ENUM))

    def _options(self) -> str:
        return self.random.choice(FIELD_OPTIONS)

    def _message(self, message: DescriptorProto, scope: str, level: int) -> None:
        self._types.append((f"p.q{scope}.{message.name}", F.TYPE_MESSAGE))
        self.words += ["message", message.name]
        self._body(message, f"{scope}.{message.name}", level)

    def _body(self, message: DescriptorProto, scope: str, level: int) -> None:
        self.words.append("{")
        for number in self.random.sample(range(1, 5_000), self.random.randint(0, 8)):
            self._item(message, scope, level, number)
        if self.random.random() < 0.3:
            self.words += ["reserved", "6000", ",", "7000", "to", "7010", ";", "reserved", '"a"', ",", "'b'", ";"]
            message.reserved_range.add(start=6_000, end=6_001)
            message.reserved_range.add(start=7_000, end=7_011)
        self.words.append("}")
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _item(self, message: DescriptorProto, scope: str, level: int, number: int) -> None:
        kind = self.random.choice(["field"] * 6 + ["map", "oneof", "definition", "option", "group"])
        if kind == "option":
            self.words.append(self.random.choice([*OPTIONS, ";"]))
        elif kind == "definition" and level < 3:
            self._definition(message, scope, message.nested_type, level + 1)
        elif kind == "map":
            self._map(message, number)
        elif kind == "oneof":
            index = len(message.oneof_decl)
            message.oneof_decl.add(name=self._name("o"))
            self.words += ["oneof", message.oneof_decl[index].name, "{"]
            self._type(message.field.add(label=F.LABEL_OPTIONAL, oneof_index=index), number)
            self.words.append("}")
        elif kind == "group" and self.file.syntax == "proto2":
            self._group(message, scope, level, number)
        else:
            self._field(message, number)

    def _field(self, message: DescriptorProto, number: int) -> None:
        labels = {"optional": F.LABEL_OPTIONAL, "repeated": F.LABEL_REPEATED, "required": F.LABEL_REQUIRED}
        if self.file.syntax == "proto3":
            labels = {**labels, "": F.LABEL_OPTIONAL}
            del labels["required"]
        label = self.random.choice([*labels])
        self.words += [label] if label else []
        field = message.field.add(label=labels[label])
        self._type(field, number)
        if label == "optional" and self.file.syntax == "proto3":
            field.proto3_optional = True

    def _type(self, field: FieldDescriptorProto, number: int) -> None:
        self.words.append(self._typed(field))
        self._named(field, number)

    def _typed(self, field: FieldDescriptorProto) -> str:
        if self._types and self.random.random() < 0.3:
            name, field.type = self.random.choice(self._types)
            field.type_name = f".{name}"
            return self.random.choice([name, f".{name}", name.removeprefix("p."), name.replace(".", " . ")])
        kind = self.random.choice([*SCALARS])
        field.type = SCALARS[kind]
        return kind

    def _named(self, field: FieldDescriptorProto, number: int) -> None:
        field.name, field.number = self._name(self.random.choice(["f_", "message", "Optional", "to_x_"])), number
        self.words += [field.name, "=", str(number), self._options(), ";"]

    def _map(self, message: DescriptorProto, number: int) -> None:
        entry, key = message.nested_type.add(), self.random.choice(KEYS)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=SCALARS[key])
        value = entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)
        self.words += ["map", "<", key, ",", self._typed(value), ">"]
        field = message.field.add(label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE)
        self._named(field, number)
        entry.name = "".join(each[:1].upper() + each[1:] for each in field.name.split("_")) + "Entry"
        field.type_name = entry.name

    def _group(self, message: DescriptorProto, scope: str, level: int, number: int) -> None:
        name = self._name("G")
        self.words += ["optional", "group", name, "=", str(number)]
        message.field.add(name=name.lower(), number=number, label=F.LABEL_OPTIONAL, type=F.TYPE_GROUP, type_name=name)
        self._body(message.nested_type.add(name=name), f"{scope}.{name}", level + 1)


def _text(random: Random) -> str:
    return "".join(random.choice('aé"\\,\n€𝄞 ') for _ in range(random.randint(0, 8)))


def _single(random: Random) -> float:
    return struct.unpack("<f", struct.pack("<f", random.uniform(-1e6, 1e6)))[0]


def _between(low: int, high: int) -> Callable[[Random], int]:
    return lambda random: random.choice([low, high, 0, 1, random.randint(low, high)])


_I32, _I64, _U32, _U64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1), (0, 2**32 - 1), (0, 2**64 - 1)
VALUES: dict[str, Callable[[Random], Any]] = {
    **{name: _between(*_I32) for name in ("int32", "sint32", "sfixed32")},
    **{name: _between(*_I64) for name in ("int64", "sint64", "sfixed64")},
    **{name: _between(*_U32) for name in ("uint32", "fixed32")},
    **{name: _between(*_U64) for name in ("uint64", "fixed64")},
    "double": lambda random: math.ldexp(random.uniform(-1, 1), random.randint(-900, 900)),
    "float": _single,
    "bool": lambda random: random.random() < 0.5,
    "string": _text,
    "bytes": lambda random: random.randbytes(random.randint(0, 5)),
    "E": lambda random: random.choice([0, 1, 7]),
}
NAMES = {0: "A", 1: "B", 7: "C"}


def _in_json(kind: str, value: Any) -> Any:
    if kind in ("uint64", "fixed64"):
        return str(value)
    if kind == "bytes":
        return value.hex()
    return NAMES[value] if kind == "E" else value


def _cell(kind: str, value: Any) -> str:
    shown = _in_json(kind, value)
    return shown if isinstance(shown, str) else json.dumps(shown)


def _default(kind: str) -> str:
    return {"bool": "false", "string": "", "bytes": "", "float": "0.0", "double": "0.0", "E": "A"}.get(kind, "0")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def random_rows(random: Random) -> tuple[str, Callable[[Any], tuple[Any, dict[str, str | None]]]]:
    """Return a text with one message, and a function that makes messages of its class and the cells of their rows."""
    forms = {f"f{n}": (random.choice([*VALUES]), random.choice(["", "optional", "repeated", "map"])) for n in range(12)}
    lines = list(_lines(forms, random.sample(range(1, 40), 12)))
    text = f'syntax = "proto3"; enum E {{ A = 0; B = 1; C = 7; }} message M {{ {" ".join(lines)} }}'

    def make(kind: Any) -> tuple[Any, dict[str, str | None]]:
        message, expected = kind(), dict[str, str | None]()
        for name, (scalar, label) in forms.items():
            value, count = VALUES[scalar], random.randint(0, 3)
            if label == "repeated":
                values = [value(random) for _ in range(count)]
                getattr(message, name).extend(values)
                expected[name] = _dumped([_in_json(scalar, each) for each in values])
            elif label == "map":
                entries = {random.randint(-9, 9): value(random) for _ in range(count)}
                getattr(message, name).update(entries)
                expected[name] = _dumped({str(each): _in_json(scalar, entries[each]) for each in sorted(entries)})
            elif count:
                setattr(message, name, single := value(random))
                expected[name] = _cell(scalar, single)
            else:
                expected[name] = None if label == "optional" else _default(scalar)
        return message, expected

    return text, make


def _lines(forms: dict[str, tuple[str, str]], numbers: list[int]) -> Iterator[str]:
    for (name, (kind, label)), number in zip(forms.items(), numbers, strict=True):
        yield f"map<sint32, {kind}> {name} = {number};" if label == "map" else f"{label} {kind} {name} = {number};"
