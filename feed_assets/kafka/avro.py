"""Avro in the Confluent wire format: the magic byte 0, four bytes of schema id, the datum."""

import json
import struct
from collections.abc import Mapping
from decimal import MAX_PREC, Context, Decimal, Inexact
from importlib import import_module
from io import BytesIO
from typing import Any, cast

from fastavro import parse_schema, schemaless_writer  # pyright: ignore[reportUnknownVariableType]
from fastavro.schema import SchemaParseException

HEAD = struct.Struct(">BI")
"""The magic byte and the id of the schema."""

Schema = dict[str, Any]


_FAST: Any = import_module("fastavro.read")
_SLOW: Any = import_module("fastavro._read_py")
"""fastavro in Python, which it takes itself where it was not compiled."""

_RECURSIVE = "feed_assets.is_recursive"
"""The mark of such a schema."""

_NULL = ("null", {"type": "null"})


class InvalidSchema(ValueError):
    """A text that is no Avro schema."""


def parsed(text: str, named: dict[str, Any]) -> Schema:
    """A schema for the other two; `named` are those that it may name, and gets those that it defines.

    Raises InvalidSchema.
    """
    try:
        found: Any = parse_schema(json.loads(text), named)
    except (SchemaParseException, ValueError) as error:
        raise InvalidSchema(str(error)) from error
    if _is_recursive(found, named, frozenset()):
        _mark(found)
    return found


def _mark(schema: Any) -> None:
    for each in cast(list[Any], schema) if isinstance(schema, list) else [schema]:
        if isinstance(each, dict):
            each[_RECURSIVE] = True


def _is_recursive(schema: Any, named: Mapping[str, Any], above: frozenset[str]) -> bool:
    """Whether a schema has itself as a part, so that bytes decide how deep its values are."""
    if isinstance(schema, str):
        return schema in above or (schema in named and _is_recursive(named[schema], named, above))
    if isinstance(schema, list):
        return any(_is_recursive(each, named, above) for each in cast(list[Any], schema))
    inside = above | {schema["name"]} if "name" in schema else above
    parts = [each["type"] for each in schema.get("fields", ())]
    parts += [schema[name] for name in ("type", "items", "values") if name in schema]
    return any(_is_recursive(each, named, inside) for each in parts)


def _is_flat(schema: Any) -> bool:
    """Whether the compiled reader may read it: of what may be of any depth it crashes where the other one raises."""
    if isinstance(schema, dict):
        return _RECURSIVE not in schema
    return not isinstance(schema, list) or all(map(_is_flat, cast(list[Any], schema)))


def _decimal(data: bytes, schema: Mapping[str, Any], _: object = None) -> Decimal | bytes:
    """The decimal: fastavro would round one with more digits than declared. Raises ValueError of it.

    Without a precision it is none, and bytes, as Avro's specification has it.
    """
    if "precision" not in schema:
        return data
    number = int.from_bytes(data, "big", signed=True)
    if len(str(abs(number))) > schema["precision"]:
        raise ValueError(f"a decimal with more than {schema['precision']} digits")
    return Decimal(number).scaleb(-schema.get("scale", 0), _EXACT)


_EXACT = Context(prec=MAX_PREC, traps=[Inexact])
for _readers in (_FAST.LOGICAL_READERS, _SLOW.LOGICAL_READERS):
    _readers["bytes-decimal"] = _readers["fixed-decimal"] = _decimal


def record_of(schema: Any) -> Schema | None:
    """The record that a parsed schema is, or the one in a union with null; None if it is anything else."""
    branches = cast(list[Any], schema) if isinstance(schema, list) else [schema]
    found = [each for each in branches if each not in _NULL]
    is_record = len(found) == 1 and isinstance(found[0], dict) and "fields" in found[0]
    return cast(Schema, found[0]) if is_record else None


def decoded(data: bytes, schema: Schema) -> tuple[Any, int]:
    """The datum behind the head, and how many bytes are left. What it raises for other bytes may be anything."""
    stream = BytesIO(data)
    stream.seek(HEAD.size)
    read = _FAST.schemaless_reader if _is_flat(schema) else _SLOW.schemaless_reader
    return read(stream, schema, None), len(data) - stream.tell()


def encoded(datum: Mapping[str, Any], schema: Schema, schema_id: int) -> bytes:
    """A message's value."""
    stream = BytesIO()
    stream.write(HEAD.pack(0, schema_id))
    schemaless_writer(stream, schema, datum)
    return stream.getvalue()
