"""Avro in the Confluent wire format: the magic byte 0, four bytes of schema id, the datum."""

import json
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any, cast

from fastavro import parse_schema, schemaless_reader, schemaless_writer  # pyright: ignore[reportUnknownVariableType]
from fastavro.schema import SchemaParseException

HEAD = struct.Struct(">BI")
"""The magic byte and the id of the schema."""

Schema = dict[str, Any]


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
    return found


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
    return schemaless_reader(stream, schema, None), len(data) - stream.tell()


def encoded(datum: Mapping[str, Any], schema: Schema, schema_id: int) -> bytes:
    """A message's value."""
    stream = BytesIO()
    stream.write(HEAD.pack(0, schema_id))
    schemaless_writer(stream, schema, datum)
    return stream.getvalue()
