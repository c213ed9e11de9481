"""The most memory that a byte of a message may take when it is decoded, by the schema.

A byte of an array may stand for a whole record with many empty fields. So a message is refused by its length before it
is decoded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

MESSAGE_BYTES = 512 << 20
"""The most memory that one decoded message may take, in bytes."""

_SMALL_DICT, _FIELD, _ITEM, _KEY = 184, 64, 8, 100
"""Bytes of a record with up to five fields, of each field of a larger one, of an array's item, and of a map's key."""

_SMALL = 5

_LOGICAL = 104
"""Bytes of a value of a logical type, such as a decimal or a timestamp."""


class _Cost(NamedTuple):
    """The memory of a value without its repeated and optional parts, and the fewest bytes that encode it."""

    memory: int
    size: int


_PLAIN = {
    "null": _Cost(0, 0),
    "boolean": _Cost(0, 1),
    "double": _Cost(24, 8),
    "float": _Cost(24, 4),
    **dict.fromkeys(("int", "long", "string", "bytes"), _Cost(32, 1)),
}


def memory_per_byte(schema: Any, named: Mapping[str, Any]) -> int:
    """Return the most memory for each byte of a message's arrays, maps and recursive records. `schema` is valid."""
    measured = _Memory(named)
    measured.part(schema, is_repeated=False)
    return measured.ratio


class _Memory:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self.ratio = 0
        self._named = named
        self._parts = dict[tuple[str, bool], _Cost | None]()
        """Parts by name, and whether they are repeated. None for a type that is still being measured."""

    def part(self, schema: Any, *, is_repeated: bool) -> _Cost:
        """Return the part of a type. Raise the ratio for the values that its parts may repeat."""
        if isinstance(schema, list):
            return self._union(cast(list[Any], schema), is_repeated)
        if isinstance(schema, str):
            return _PLAIN.get(schema) or self._of_name(schema, self._named[schema], is_repeated)
        if "fields" in schema:
            return self._of_name(schema["name"], schema, is_repeated)
        return self._unnamed(schema, is_repeated)

    def _unnamed(self, schema: Mapping[str, Any], is_repeated: bool) -> _Cost:
        kind: Any = schema["type"]
        if kind == "array":
            item = self.part(schema["items"], is_repeated=True)
            self._count(_Cost(item.memory + _ITEM, item.size))
            return _Cost(_FIELD, 1)
        if kind == "map":
            value = self.part(schema["values"], is_repeated=True)
            self._count(_Cost(value.memory + _KEY, value.size + 1))
            return _Cost(_FIELD, 1)
        if kind in ("fixed", "enum"):
            return _Cost(_LOGICAL + schema["size"], schema["size"]) if kind == "fixed" else _Cost(0, 1)
        part = self.part(kind, is_repeated=is_repeated)
        return part._replace(memory=_LOGICAL) if "logicalType" in schema else part

    def _union(self, branches: list[Any], is_repeated: bool) -> _Cost:
        """Return the part of a union: its number, and the largest branch that takes no bytes beside it."""
        parts = [self.part(each, is_repeated=is_repeated) for each in branches]
        for each in parts:
            if is_repeated and each.size:
                self._count(_Cost(each.memory, each.size + 1))
        return _Cost(max((each.memory for each in parts if not each.size), default=0), 1)

    def _of_name(self, name: str, definition: Mapping[str, Any], is_repeated: bool) -> _Cost:
        if "fields" not in definition:
            return self.part(definition, is_repeated=is_repeated)
        place = name, is_repeated
        if place not in self._parts:
            self._parts[place] = None
            self._parts[place] = self._record(definition["fields"], is_repeated)
        if (part := self._parts[place]) is not None:
            return part
        # A recursive record is repeated, and takes at least the byte that ends it or goes on.
        return _Cost(0, 1) if is_repeated else self._of_name(name, definition, is_repeated=True)

    def _record(self, fields: Sequence[Mapping[str, Any]], is_repeated: bool) -> _Cost:
        parts = [self.part(each["type"], is_repeated=is_repeated) for each in fields]
        memory = _SMALL_DICT if 0 < len(fields) <= _SMALL else _FIELD * max(len(fields), 1)
        part = _Cost(memory + sum(each.memory for each in parts), sum(each.size for each in parts))
        if is_repeated and part.size:
            self._count(part)
        return part

    def _count(self, part: _Cost) -> None:
        self.ratio = max(self.ratio, -(-part.memory // max(part.size, 1)))
