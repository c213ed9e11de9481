"""Defaults of Avro fields as texts in the chunks' dialect. A message with the same value has the same text."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from feed_assets.kafka import dialect

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOGICAL: dict[tuple[str, str], Callable[[int], object]] = {
    ("int", "date"): lambda days: (_EPOCH + timedelta(days)).date(),
    ("int", "time-millis"): lambda count: (_EPOCH + timedelta(milliseconds=count)).time(),
    ("long", "time-micros"): lambda count: (_EPOCH + timedelta(microseconds=count)).time(),
    ("long", "timestamp-millis"): lambda count: _EPOCH + timedelta(milliseconds=count),
    ("long", "timestamp-micros"): lambda count: _EPOCH + timedelta(microseconds=count),
    ("long", "local-timestamp-millis"): lambda count: (_EPOCH + timedelta(milliseconds=count)).replace(tzinfo=None),
    ("long", "local-timestamp-micros"): lambda count: (_EPOCH + timedelta(microseconds=count)).replace(tzinfo=None),
}


def default_of(schema: Any, default: Any, named: Mapping[str, Any]) -> str | None:
    """Return the text of a default; None stands for NULL."""
    [[cell]] = dialect.read(dialect.line([_value(schema, default, named)]))
    return cell


def _value(schema: Any, default: Any, named: Mapping[str, Any]) -> object:
    """Return the value that a default's JSON stands for. In a union, it is a value of the first non-null branch."""
    if default is None:
        return None
    if isinstance(schema, list):
        return _value(next(each for each in cast(list[Any], schema) if each != "null"), default, named)
    definition = written_out(schema, named)
    name = definition["type"]
    if not isinstance(name, str):
        return _value(name, default, named)
    if (read := _NESTED.get(name)) is not None:
        return read(definition, default, named)
    return _LOGICAL.get((name, str(definition.get("logicalType", ""))), lambda value: value)(default)


def written_out(schema: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an Avro type that is not a union as an object with a `type`, even if only its name is written."""
    if isinstance(schema, dict):
        return cast(Mapping[str, Any], schema)
    return named.get(schema, {"type": schema})


def _record(schema: Mapping[str, Any], default: Any, named: Mapping[str, Any]) -> object:
    values = {**{each["name"]: each.get("default") for each in schema["fields"]}, **default}
    return {each["name"]: _value(each["type"], values[each["name"]], named) for each in schema["fields"]}


def _array(schema: Mapping[str, Any], default: Any, named: Mapping[str, Any]) -> object:
    return [_value(schema["items"], each, named) for each in default]


def _map(schema: Mapping[str, Any], default: Any, named: Mapping[str, Any]) -> object:
    return {name: _value(schema["values"], each, named) for name, each in default.items()}


def _bytes(schema: Mapping[str, Any], default: Any, _: Mapping[str, Any]) -> object:
    """Return the bytes of a default, or the decimal in them. Each character stands for the byte with its code."""
    content = str(default).encode("latin-1")
    if schema.get("logicalType") != "decimal":
        return content
    return Decimal(f"{int.from_bytes(content, signed=True)}E-{schema.get('scale', 0)}")


def _float(_: Mapping[str, Any], default: Any, __: Mapping[str, Any]) -> object:
    return float(default)


_NESTED: dict[str, Callable[[Mapping[str, Any], Any, Mapping[str, Any]], object]] = {
    "record": _record,
    "array": _array,
    "map": _map,
    "bytes": _bytes,
    "fixed": _bytes,
    "float": _float,
    "double": _float,
}
