"""Columns of values with a JSON Schema in a registry, whose id a producer's serializer writes before each value.

Source: JSON Schema, drafts 4 to 2020-12. The columns are the properties of the schema.
"""

from typing import Any, cast

from feed_assets.kafka.schema_limits import MOST_COLUMNS, NAME_CHARACTERS, InvalidSchema, check_most, loaded

_PLAIN = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}
_TIMES = {"date": "date", "date-time": "timestamp"}
"""Column types of texts, by `format`. Other formats are texts."""

_REFERENCES = 10
"""The most references, one behind the other, that a property may have."""

_BRANCHES = 16
"""The most types of a property. Any number of properties may refer to the same definition."""


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


def columns_of(text: str) -> list[tuple[str, str]]:
    """Return the columns of a schema's text, with their types as in Spark's DDL. Raise InvalidSchema or ValueError."""
    schema = _Document(loaded(text))
    properties: Any = schema.followed(schema.root).get("properties")
    if not isinstance(properties, dict):
        raise InvalidSchema("it has no properties: expected the schema of an object")
    declared: dict[str, Any] = {**properties}
    check_most(len(declared), MOST_COLUMNS, "properties")
    check_most(max(map(len, declared), default=0), NAME_CHARACTERS, "characters of a property's name")
    return [(name, _kind(name, each, schema)) for name, each in declared.items()]


def _kind(name: str, declared: Any, schema: _Document) -> str:
    """Return the type of a property's column. Null beside a type is left out: every column may be null."""
    types = [each for each in _types(declared, schema) if each[0] != "null"]
    plain = _PLAIN.get(types[0][0]) if len(types) == 1 else None
    if plain is None:
        expected = f"expected one of {', '.join(_PLAIN)}, with or without null"
        raise InvalidSchema(f"the property {name} is {', '.join(each for each, _ in types) or 'null'}: {expected}")
    return _TIMES.get(types[0][1], plain) if plain == "string" else plain


def _types(declared: Any, schema: _Document) -> list[tuple[str, str]]:
    """Return type and format of each value that a property may have."""
    definition = schema.followed(declared)
    branches = _items(definition.get("oneOf", definition.get("anyOf")))
    if branches:
        check_most(len(branches), _BRANCHES, "types of a property")
        definitions = [schema.followed(each) for each in branches]
        return [(_word(each.get("type")), _word(each.get("format"))) for each in definitions]
    types = _items(definition.get("type")) or [definition.get("type")]
    check_most(len(types), _BRANCHES, "types of a property")
    return [(_word(each), _word(definition.get("format"))) for each in types]


def _word(value: object) -> str:
    """Return a type or format as it is. A schema may have any JSON in its place."""
    return value if isinstance(value, str) else "without a type" if value is None else "no text"


def _items(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
