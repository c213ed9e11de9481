"""Forms of schemas with which fastavro reads strictly. With a plain schema, it also accepts invalid bytes.

fastavro looks up an enum's symbol and a union's branch in a list, where -1 is the last item. It reads an int as a long,
and accepts any byte as a boolean. A form replaces the reading of these four types by a lookup in a mapping that has
only the valid values. This is slower only for an int (by 0.15 µs). A number with more bytes than necessary is still
accepted, as in every library.
"""

from collections.abc import Mapping
from typing import Any, cast

_CHECKED = frozenset({"date", "time-millis"})
"""Logical types of ints that need no form: the conversion to a date or a time of day checks the int."""


class _Choices(dict[int | str, Any]):
    """Valid values by their index or byte. An invalid index raises an error."""

    def __missing__(self, index: int) -> Any:
        raise ValueError(f"{index} is not the index of an enum's symbol or a union's branch")


class _Booleans(dict[int, bool]):
    """Booleans by the number that fastavro decodes from a byte."""

    def __missing__(self, _: int) -> bool:
        raise ValueError("a boolean that is neither 0 nor 1")


class _Ints:
    def __getitem__(self, number: int) -> int:
        if -0x80000000 <= number <= 0x7FFFFFFF:
            return number
        raise ValueError(f"{number} is not an int: expected 32 bits")


def _indexed(name: str, values: Any) -> Mapping[str, Any]:
    return {"type": "enum", "name": f"feed_assets.{name}", "symbols": values}


_PRIMITIVES = {"boolean": _indexed("boolean", _Booleans({0: False, -1: True})), "int": _indexed("int", _Ints())}


class Forms:
    """Parsed Avro schemas in a form with which fastavro refuses invalid bytes.

    Each type has only one form, because a parsed schema has the same object wherever it uses a type.
    """

    def __init__(self) -> None:
        self._known = dict[int, Any]()
        """Forms by the `id` of a type's object. The schema keeps the object alive, so the `id` is not reused."""

    def of(self, schema: Any) -> Any:
        """Return the strict form of an Avro type."""
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema, schema)
        if id(cast(object, schema)) not in self._known:
            is_union = isinstance(schema, list)
            self._known[id(schema)] = self._union(cast(list[Any], schema)) if is_union else self._converted(schema)
        return self._known[id(schema)]

    def _union(self, branches: list[Any]) -> Any:
        return _Choices({**dict(enumerate(map(self.of, branches))), "type": "union"})

    def _converted(self, schema: Mapping[str, Any]) -> Any:
        kind = schema["type"]
        if kind in _PRIMITIVES and schema.get("logicalType") not in _CHECKED:
            return _PRIMITIVES[kind]
        parts = {name: self.of(schema[name]) for name in ("items", "values") if name in schema}
        if "symbols" in schema:
            parts["symbols"] = _Choices(dict(enumerate(cast(list[str], schema["symbols"]))))
        if "fields" in schema:
            parts["fields"] = [{**each, "type": self.of(each["type"])} for each in schema["fields"]]
        return {**schema, **parts}
