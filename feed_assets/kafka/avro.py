"""Avro in the Confluent wire format: the magic byte 0, four bytes of schema id, the datum."""

import json
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer  # pyright: ignore[reportUnknownVariableType]
from fastavro.schema import SchemaParseException

HEAD = struct.Struct(">BI")
"""The magic byte and the id of the schema."""

Schema = dict[str, Any]


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
