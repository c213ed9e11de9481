"""Limits for schemas. Without them, anybody who registers a schema could make each of its messages very expensive."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

SCHEMA_BYTES = 1 << 20
"""The most bytes of a schema with all referenced schemas. A registry stores a schema in a message of up to 1 MB."""

REQUESTS = 100
"""The most requests to the registry for one schema id: for the schema, and for each schema that it refers to."""

NAMES = 10_000
"""The most named types of a schema, including those of referenced schemas."""

LEVELS = 100
"""The most levels of nested types. Readers need up to three stack frames for each level; Python allows 1,000 frames."""

JSON_LEVELS = 6 * LEVELS
"""The most nested brackets in a schema's text. Each record in a union in a record adds four."""

BRANCHES = 1_000
"""The most branches of a union."""

MOST_COLUMNS = 1_600
"""The most columns of a row. No warehouse table has more, and two bytes of a message may stand for all of them."""

DIGITS = 1_000
"""The most digits of a decimal; also PostgreSQL's limit. Without a limit, one byte could stand for endless zeros."""

NAME_CHARACTERS = 1_024
"""The most characters of a field's name, and of an enum's symbol. One byte of a message may stand for them."""

NULLS, REPEATED_NULLS = 1_000, 16
"""The most values that take no bytes: per message, and per item of an array or map.

A recursive schema has the second limit per message, too. Without these limits, a few bytes of a message could stand for
a huge value.
"""

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_OF_FASTAVRO = frozenset({"__fastavro_parsed", "__named_schemas"})


class InvalidSchema(ValueError):
    """An error for a text that is not a valid Avro schema, or exceeds a limit."""


class UnknownSchema(Exception):
    """An error for a schema that the registry does not have."""


def loaded(text: str) -> Any:
    """Return the parsed JSON of a schema. Raise InvalidSchema if it is too long or too deep, ValueError if not JSON.

    Also raise InvalidSchema for an attribute that fastavro uses itself. With such an attribute, fastavro would not
    check the schema.
    """
    check_most(len(text.encode(errors="replace")), SCHEMA_BYTES, "bytes")
    try:
        schema = json.loads(text)
    except RecursionError as error:
        raise InvalidSchema(f"too many nested brackets: expected at most {JSON_LEVELS}") from error
    level, depth = [schema], 0
    while level := [below for each in level for below in _parts(each)]:
        depth += 1
        check_most(depth, JSON_LEVELS, "nested brackets")
    return schema


def _parts(value: Any) -> Iterable[Any]:
    """Return the objects and lists in a value. Raise InvalidSchema for an attribute that fastavro uses itself."""
    if isinstance(value, dict) and (own := _OF_FASTAVRO & cast(dict[str, Any], value).keys()):
        raise InvalidSchema(f"an attribute {min(own)}, which fastavro reserves: expected none")
    inside: Any = cast(dict[str, Any], value).values() if isinstance(value, dict) else value
    return [each for each in inside if isinstance(each, (dict, list))] if isinstance(value, (dict, list)) else []


def check_most(count: int, limit: int, unit: str) -> None:
    """Raise InvalidSchema if a number exceeds its limit."""
    if count > limit:
        raise InvalidSchema(f"{count:,} {unit}: expected at most {limit:,}")


class _Size(NamedTuple):
    levels: int = 0
    nulls: int = 0
    """The greatest number of values that take no bytes, such as null, in one value of the type (itself included)."""
    is_empty: bool = False
    """True if values take no bytes at all."""


def is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Return whether a parsed schema contains itself, so that each message decides how deep its values are nested.

    Raise InvalidSchema if a limit is exceeded.
    """
    check_most(len(named), NAMES, "named types")
    measured = _Measured(named)
    size = measured.size(schema, 0)
    limit = REPEATED_NULLS if measured.is_recursive else NULLS
    check_most(size.nulls, limit, "values without bytes in one message")
    return measured.is_recursive


class _Measured:
    """Measurement of types: their nested levels, and how many values that take no bytes one value may contain.

    Each named type is measured only once.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.is_recursive = False
        self._named = named
        self._sizes = dict[str, _Size | None]()
        """Sizes by name; None for a type that is still being measured."""

    def size(self, schema: Any, level: int) -> _Size:
        """Return the size of a type at depth `level`. Raise InvalidSchema."""
        check_most(level, LEVELS, "nested types")
        if isinstance(schema, list):
            return self._union(cast(list[Any], schema), level)
        if isinstance(schema, str):
            is_null = schema == "null"
            named = self._named.get(schema)
            return _Size(0, int(is_null), is_null) if named is None else self._of_name(schema, named, level)
        kind = schema["type"]
        return self._of_name(schema["name"], schema, level) if kind in _NAMED else self._unnamed(schema, level)

    def _of_name(self, name: str, schema: Mapping[str, Any], level: int) -> _Size:
        if name not in self._sizes:
            self._sizes[name] = None
            self._sizes[name] = self._defined(schema, level)
        size = self._sizes[name]
        if size is None:
            self.is_recursive = True
            return _Size()
        check_most(level + size.levels, LEVELS, "nested types")
        return size

    def _defined(self, schema: Mapping[str, Any], level: int) -> _Size:
        _check_digits(schema)
        if schema["type"] == "enum":
            check_most(max(map(len, schema["symbols"]), default=0), NAME_CHARACTERS, "characters of a symbol")
            return _Size()
        if schema["type"] == "fixed":
            return _fixed(schema["size"])
        fields = cast(list[Mapping[str, Any]], schema.get("fields", []))
        _check_names([each["name"] for each in fields])
        sizes = [self.size(each["type"], level + 1) for each in fields]
        is_empty, nulls = all(each.is_empty for each in sizes), sum(each.nulls for each in sizes)
        return _Size(_above(sizes), nulls + is_empty, is_empty)

    def _union(self, branches: list[Any], level: int) -> _Size:
        check_most(len(branches), BRANCHES, "branches of a union")
        sizes = [self.size(each, level + 1) for each in branches]
        # The number of the branch precedes a union's value, and takes a byte. This byte makes up for one value that
        # takes no bytes, so count one fewer.
        beside_number = max((each.nulls for each in sizes), default=1) - 1
        return _Size(_above(sizes), max(beside_number, 0))

    def _unnamed(self, schema: Mapping[str, Any], level: int) -> _Size:
        _check_digits(schema)
        if not (parts := [schema[name] for name in ("items", "values") if name in schema]):
            return self.size(schema["type"], level + 1)
        sizes = [self.size(each, level + 1) for each in parts]
        if "items" in schema and sizes[0].is_empty:
            raise InvalidSchema(
                "the items of an array have an empty encoding, such as null: expected at least one byte, because a "
                "short message could declare any number of empty items"
            )
        check_most(max(each.nulls for each in sizes), REPEATED_NULLS, "values without bytes in an item")
        return _Size(_above(sizes))


def _above(sizes: list[_Size]) -> int:
    return 1 + max((each.levels for each in sizes), default=0)


def _fixed(size: Any) -> _Size:
    if not isinstance(size, int) or size < 0:
        raise InvalidSchema(f"a fixed of {size!r:.40} bytes: expected a number of bytes")
    return _Size(0, int(size == 0), size == 0)


def _check_digits(schema: Mapping[str, Any]) -> None:
    """Raise InvalidSchema for a decimal with too many digits. fastavro has already refused other invalid numbers.

    Without a precision, any scale is valid for fastavro.
    """
    if schema.get("logicalType") == "decimal":
        check_most(max(schema.get("precision") or 0, schema.get("scale") or 0), DIGITS, "digits of a decimal")


def _check_names(names: list[Any]) -> None:
    """Raise InvalidSchema unless each field has a unique name of printable characters."""
    earlier = set[str]()
    for name in names:
        if not isinstance(name, str) or not name or "\0" in name or not name.isprintable():
            raise InvalidSchema(f"a field named {name!r:.60}: expected a name of printable characters")
        check_most(len(name), NAME_CHARACTERS, "characters of a name")
        if name in earlier:
            raise InvalidSchema(f"two fields named {name!r:.60}: expected one")
        earlier.add(name)
