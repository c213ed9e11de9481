"""Avro in the Confluent wire format: the magic byte 0, four bytes of schema id, then the datum."""

import struct
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import time
from decimal import MAX_PREC, Context, Decimal, Inexact
from importlib import import_module
from io import BytesIO
from typing import Any, NamedTuple, cast

from fastavro import parse_schema, schemaless_writer  # pyright: ignore[reportUnknownVariableType]

from feed_assets.core.limits import REASON_BYTES, excerpt
from feed_assets.kafka.avro_memory import MESSAGE_BYTES, memory_per_byte
from feed_assets.kafka.connect_types import add_logical_types
from feed_assets.kafka.schema_limits import InvalidSchema, is_recursive, loaded
from feed_assets.kafka.strict_avro import Forms

HEAD = struct.Struct(">BI")
"""The first five bytes of a key or value: the magic byte and the schema id."""

_FAST: Any = import_module("fastavro.read")
_SLOW: Any = import_module("fastavro._read_py")
"""fastavro's Python code, which fastavro itself uses if it is not compiled."""

_DATUM = "datum"
"""The field's name in a record that wraps a schema of another type.

fastavro marks only records as parsed. It would parse a schema without this mark again for each datum.
"""

_NULL = ("null", {"type": "null"})


class Schema(NamedTuple):
    """A schema as declared, its strict form for reading (see `strict_avro`), and the function that reads data by it."""

    declared: Any
    form: Mapping[str, Any]
    read: Callable[[BytesIO, Mapping[str, Any], None], Any]
    memory_per_byte: int
    """The most memory that a byte of a message may take when it is decoded (see `avro_memory`)."""
    is_wrapped: bool
    """True if the schema is read as the only field of a record, because it is not a record itself."""
    layouts: dict[tuple[bool, tuple[str, ...], tuple[tuple[str, str], ...], int], Any]
    """Layouts of chunks with this schema, by what a topic declares: envelopes, key fields, masks, and `flatten`.

    The layouts are kept here, to be removed together with the schema.
    """


def parsed(text: str, named: dict[str, Any]) -> Schema:
    """Return a schema for reading and writing. Raise InvalidSchema if the text is invalid.

    `named` has the types that the text may refer to. The types that the text defines are added to `named`.
    """
    with _refused():
        declared: Any = parse_schema(_loaded(text), named)
        is_deep = is_recursive(declared, named)
        forms = Forms()
        form, names = forms.of(declared), {name: forms.of(each) for name, each in named.items()}
    if is_wrapped := not isinstance(declared, dict) or "fields" not in declared:
        form = {"type": "record", "name": "feed_assets.datum", "fields": [{"name": _DATUM, "type": form}]}
    marked: dict[str, Any] = {**form, "__fastavro_parsed": True, "__named_schemas": names}
    # Values of a recursive schema may be nested without limit. Then fastavro's compiled reader would crash the process,
    # but its Python reader raises RecursionError.
    reader = _SLOW if is_deep else _FAST
    memory = memory_per_byte(declared, named)
    return Schema(
        declared,
        marked,
        reader.schemaless_reader,
        memory_per_byte=memory,
        is_wrapped=is_wrapped,
        layouts={},
    )


def define(text: str, named: dict[str, Any]) -> None:
    """Add the types that a text defines to `named`, so that another schema can refer to them. Raise InvalidSchema."""
    with _refused():
        parse_schema(_loaded(text), named)


def _loaded(text: str) -> Any:
    schema = loaded(text)
    add_logical_types(schema)
    return schema


@contextmanager
def _refused() -> Generator[None]:
    try:
        yield
    except InvalidSchema:
        raise
    except Exception as error:  # The library may raise any exception for an invalid text.
        raise InvalidSchema(excerpt(f"{type(error).__name__}: {error}", REASON_BYTES // 2)) from error


def _decimal(data: bytes, schema: Mapping[str, Any], _: object = None) -> Decimal | bytes:
    """Return the decimal in some bytes. Raise ValueError for more digits than declared: fastavro would round them.

    Without a declared precision, return the bytes, as Avro's specification demands.
    """
    if "precision" not in schema:
        return data
    number = int.from_bytes(data, "big", signed=True)
    if len(str(abs(number))) > schema["precision"]:
        raise ValueError(f"a decimal with more than {schema['precision']} digits")
    return Decimal(number).scaleb(-schema.get("scale", 0), _EXACT)


def _time_of(read: Callable[..., time]) -> Callable[..., time]:
    """Return fastavro's reader of a time of day with a check.

    Without the check, the reader accepts times down to minus one hour.
    """

    def checked(count: int, *schemas: object) -> time:
        if count < 0:
            raise ValueError(f"{count} is not a time of day")
        return read(count, *schemas)

    return checked


_EXACT = Context(prec=MAX_PREC, traps=[Inexact])
_readers: Any = _FAST.LOGICAL_READERS
"""Readers of logical types, shared by both versions of fastavro's code."""
_readers["bytes-decimal"] = _readers["fixed-decimal"] = _decimal
for _name in ("int-time-millis", "long-time-micros"):
    _readers[_name] = _time_of(_readers[_name])


def record_of(schema: Schema) -> Mapping[str, Any] | None:
    """Return the schema itself if it is a record, or the record in a union of null and one record; else None."""
    declared: Any = schema.declared
    branches = cast(list[Any], declared) if isinstance(declared, list) else [declared]
    non_null = [each for each in branches if each not in _NULL]
    is_record = len(non_null) == 1 and isinstance(non_null[0], dict) and "fields" in non_null[0]
    return cast(Mapping[str, Any], non_null[0]) if is_record else None


def most_bytes(schema: Schema) -> int:
    """Return the most bytes of a key or value with this schema. More might take more memory than MESSAGE_BYTES."""
    return MESSAGE_BYTES // (schema.memory_per_byte or 1)


def decoded(data: bytes, schema: Schema, begin: int = HEAD.size) -> tuple[Any, int]:
    """Return the datum at `begin`, and the number of bytes after the datum. Bad bytes may raise any exception."""
    stream = BytesIO(data)
    stream.seek(begin)
    datum = schema.read(stream, schema.form, None)
    return datum[_DATUM] if schema.is_wrapped else datum, len(data) - stream.tell()


def encoded(datum: Mapping[str, Any], schema: Schema, schema_id: int) -> bytes:
    """Return a datum in the wire format, as the value of a message."""
    stream = BytesIO()
    stream.write(HEAD.pack(0, schema_id))
    schemaless_writer(stream, schema.declared, datum)
    return stream.getvalue()
