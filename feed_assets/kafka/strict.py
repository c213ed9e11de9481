"""The form in which a schema is read: fastavro would take bytes that are no values of it, too.

It looks for an enum's symbol and a union's branch in a list, where -1 is the last one, reads an int as a long, and any
byte as a boolean. Here all four are an index into what has just the values that there are, which costs as much as the
list, but for an int (0.15 µs). A number that takes more bytes than it needs is taken, as every library does.
"""

from collections.abc import Mapping
from typing import Any, cast

_CHECKED = frozenset({"date", "time-millis"})
"""Ints that are checked as they become a date or a time of day."""

Named = Mapping[str, Any]
"""Parsed schemas by their names."""


class _Choices(dict[int | str, Any]):
    """What an index may name."""

    def __missing__(self, index: int) -> Any:
        raise ValueError(f"{index} is the index of no symbol of an enum, or branch of a union")


class _Booleans(dict[int, bool]):
    """By the number that fastavro makes of the byte, as if it were an index."""

    def __missing__(self, _: int) -> bool:
        raise ValueError("a boolean that is neither 0 nor 1")


class _Ints:
    def __getitem__(self, number: int) -> int:
        if -0x80000000 <= number <= 0x7FFFFFFF:
            return number
        raise ValueError(f"{number} is no int: expected one of 32 bits")


def _indexed(name: str, values: Any) -> Mapping[str, Any]:
    return {"type": "enum", "name": f"feed_assets.{name}", "symbols": values}


_PRIMITIVES = {"boolean": _indexed("boolean", _Booleans({0: False, -1: True})), "int": _indexed("int", _Ints())}


def strict(schema: Any, named: Named) -> Any:
    """The form of a parsed schema. Raises ValueError for one with values that any bytes may have any number of."""
    if isinstance(schema, list):
        branches = (strict(each, named) for each in cast(list[Any], schema))
        return _Choices({**dict(enumerate(branches)), "type": "union"})
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema, schema)
    kind = schema["type"]
    if kind in _PRIMITIVES and schema.get("logicalType") not in _CHECKED:
        return _PRIMITIVES[kind]
    if "items" in schema and _is_empty(schema["items"], named, frozenset()):
        raise ValueError("an array of what takes no bytes: a few bytes may say that there are any number of them")
    parts = {name: strict(schema[name], named) for name in ("items", "values") if name in schema}
    if "symbols" in schema:
        parts["symbols"] = _Choices(dict(enumerate(cast(list[str], schema["symbols"]))))
    if "fields" in schema:
        parts["fields"] = [{**each, "type": strict(each["type"], named)} for each in schema["fields"]]
    return {**schema, **parts}


def _is_empty(schema: Any, named: Named, above: frozenset[str]) -> bool:
    """Whether values take no bytes."""
    if isinstance(schema, str):
        return schema == "null" or (
            schema in named and schema not in above and _is_empty(named[schema], named, above | {schema})
        )
    if isinstance(schema, list):
        return False
    inside = above | {schema.get("name", "")}
    is_empty_record = "fields" in schema and all(_is_empty(each["type"], named, inside) for each in schema["fields"])
    return schema["type"] == "null" or schema.get("size") == 0 or is_empty_record
