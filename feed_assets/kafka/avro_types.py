"""Types in parsed Avro schemas. This needs none of Kafka's packages."""

from collections.abc import Iterator, Mapping
from typing import Any, cast


def is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether an Avro type of bytes is a decimal. Avro ignores the logical type if its attributes are invalid.

    In that case, chunks have the plain bytes, too.
    """
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    is_valid = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0
    return schema.get("logicalType") == "decimal" and is_valid


PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


def written_out(schema: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a non-union Avro type as an object with a `type`, even if the schema has only the type's name.

    The name of a primitive type always means this type, as readers of Avro take it.
    """
    if isinstance(schema, dict):
        return cast(Mapping[str, Any], schema)
    return {"type": schema} if schema in PRIMITIVES else named.get(schema, {"type": schema})


def branches(schema: Any) -> list[Any]:
    """Return the branches of an Avro type. A type that is no union has itself alone."""
    return cast(list[Any], schema) if isinstance(schema, list) else [schema]


def named_types(schema: Any, named: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the definition of each type of a value, which may be a union of unions. Null is left out."""
    for each in branches(schema):
        definition = written_out(each, named)
        name = definition["type"]
        if not isinstance(name, str):
            yield from named_types(name, named)
        elif name != "null":
            yield name, definition
