"""Columns of values with a JSON Schema in a registry, whose id a producer's serializer writes before each value.

Source: JSON Schema, drafts 4 to 2020-12. The columns are the properties of the schema.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from feed_assets.core.record_columns import SEPARATOR
from feed_assets.kafka.schema_limits import MOST_COLUMNS, NAME_CHARACTERS, InvalidSchema, check_most, loaded

_PLAIN = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}
_TIMES = {"date": "date", "date-time": "timestamp"}
"""Column types of texts, by `format`. Other formats are texts."""

_REFERENCES = 10
"""The most references, one behind the other, that a property may have."""

_BRANCHES = 16
"""The most types of a property. Any number of properties may refer to the same definition."""


_Type = tuple[str, Mapping[str, Any]]
"""A type by its word, and the definition that has it."""


class _Document:
    """A schema whose references are each followed once, however many properties have them."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._known: dict[str, dict[str, Any]] = {}

    def followed(self, definition: Any, most: int = _REFERENCES) -> dict[str, Any]:
        """Return the definition that `$ref` names in the same schema, or one without it unchanged."""
        if not isinstance(definition, dict) or most < 0:
            raise InvalidSchema("it refers to another schema, or is no object: expected `#/…` of the same schema")
        fields = cast(dict[str, Any], definition)
        if "$ref" not in fields:
            return fields
        reference = str(fields["$ref"])
        if reference not in self._known:
            self._known[reference] = self.followed(self._at(reference), most - 1)
        return self._known[reference]

    def _at(self, reference: str) -> Any:
        definition = self.root
        for part in reference.removeprefix("#/").split("/"):
            definition = cast(dict[str, Any], definition).get(part) if isinstance(definition, dict) else None
        return definition


def columns_of(text: str, depth: int = 0) -> list[tuple[str, str]]:
    """Return the columns of a schema's text, with their types as in Spark's DDL.

    The properties of objects down to a depth are columns. Raise InvalidSchema or ValueError.
    """
    schema, kinds, paths = _Document(loaded(text)), dict[str, str](), dict[str, str]()
    for path, kind in _columns(schema.followed(schema.root), (), depth, schema):
        name = SEPARATOR.join(path)
        if name in kinds:
            raise InvalidSchema(f"the properties {paths[name]} and {'.'.join(path)} would both be the column {name}")
        kinds[name], paths[name] = kind, ".".join(path)
        check_most(len(kinds), MOST_COLUMNS, "properties")
    return [*kinds.items()]


def _columns(
    definition: Mapping[str, Any], path: tuple[str, ...], depth: int, schema: _Document
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and type of each column of an object. Null beside a type is left out: a column may be null."""
    properties: Any = definition.get("properties")
    if not isinstance(properties, dict):
        raise InvalidSchema("it has no properties: expected the schema of an object")
    check_most(len(cast(dict[str, Any], properties)), MOST_COLUMNS, "properties")
    for name, declared in cast(dict[str, Any], properties).items():
        check_most(len(SEPARATOR.join((*path, name))), NAME_CHARACTERS, "characters of a property's name")
        types = [each for each in _types(declared, schema) if each[0] != "null"]
        is_object = len(types) == 1 and types[0][0] == "object" and bool(types[0][1].get("properties"))
        if depth and is_object:
            yield from _columns(types[0][1], (*path, name), depth - 1, schema)
        else:
            yield (*path, name), _kind(".".join((*path, name)), types)


def _kind(name: str, types: Sequence[_Type]) -> str:
    """Return the type of a property's column."""
    plain = _PLAIN.get(types[0][0]) if len(types) == 1 else None
    if plain is None:
        expected = f"expected one of {', '.join(_PLAIN)}, with or without null"
        raise InvalidSchema(f"the property {name} is {', '.join(each for each, _ in types) or 'null'}: {expected}")
    return _TIMES.get(_word(types[0][1].get("format")), plain) if plain == "string" else plain


def _types(declared: Any, schema: _Document) -> list[_Type]:
    """Return the types of the values that a property may have, each with its definition."""
    definition = schema.followed(declared)
    branches = _items(definition.get("oneOf", definition.get("anyOf")))
    if branches:
        check_most(len(branches), _BRANCHES, "types of a property")
        definitions = [schema.followed(each) for each in branches]
        return [(_word(each.get("type")), each) for each in definitions]
    types = _items(definition.get("type")) or [definition.get("type")]
    check_most(len(types), _BRANCHES, "types of a property")
    return [(_word(each), definition) for each in types]


def _word(value: object) -> str:
    """Return a type or format as it is. A schema may have any JSON in its place."""
    return value if isinstance(value, str) else "without a type" if value is None else "no text"


def _items(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
