"""Defaults of Avro fields as texts in the chunks' dialect. A default has the same text as an equal value in a chunk."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from feed_assets.kafka import dialect
from feed_assets.kafka.avro_types import is_decimal, written_out

MOST_OF_DEFAULTS = 1 << 18
"""The most values and characters of all defaults of a schema, including defaults that records get from their fields.

Without a limit, a short schema could have endless defaults: each record type may contain two records of the next type.
"""

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


class Types:
    """The named types of a schema, and a budget: how many more values and characters its defaults may have."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self._left = MOST_OF_DEFAULTS

    def count(self, size: int) -> None:
        """Take `size` values and characters from the budget. Raise ValueError if the budget is too small."""
        self._left -= size
        if self._left < 0:
            raise ValueError(f"the defaults of the schema have more than {MOST_OF_DEFAULTS:,} values and characters")


def default_of(schema: Any, default: Any, types: Types) -> str | None:
    """Return the text of a default; None stands for NULL. A default that does not fit may raise any exception."""
    [[cell]] = dialect.read(dialect.line([_value(schema, default, types)]))
    return cell


def _value(schema: Any, default: Any, types: Types) -> object:
    """Return the value that a default's JSON stands for. In a union, it is a value of the first non-null branch."""
    types.count(1 + (len(default) if isinstance(default, str) else 0))
    if default is None:
        return None
    if isinstance(schema, list):
        return _value(next(each for each in cast(list[Any], schema) if each != "null"), default, types)
    definition = written_out(schema, types.named)
    name = definition["type"]
    if not isinstance(name, str):
        return _value(name, default, types)
    if (read := _NESTED.get(name)) is not None:
        return read(definition, default, types)
    return _LOGICAL.get((name, str(definition.get("logicalType", ""))), lambda value: value)(cast(Any, default))


def _record(schema: Mapping[str, Any], default: Any, types: Types) -> object:
    types.count(sum(len(each["name"]) for each in schema["fields"]))
    values = {**{each["name"]: each.get("default") for each in schema["fields"]}, **default}
    return {each["name"]: _value(each["type"], values[each["name"]], types) for each in schema["fields"]}


def _array(schema: Mapping[str, Any], default: Any, types: Types) -> object:
    return [_value(schema["items"], each, types) for each in default]


def _map(schema: Mapping[str, Any], default: Any, types: Types) -> object:
    types.count(sum(map(len, default)))
    return {name: _value(schema["values"], each, types) for name, each in default.items()}


def _bytes(schema: Mapping[str, Any], default: Any, types: Types) -> object:
    """Return the bytes of a default, or the decimal in them. Each character stands for the byte with its code."""
    content = str(default).encode("latin-1")
    if not is_decimal(schema):
        return content
    types.count(schema.get("scale", 0))
    return Decimal(f"{int.from_bytes(content, signed=True)}E-{int(schema.get('scale', 0))}")


def _float(_: Mapping[str, Any], default: Any, __: Types) -> object:
    return float(default)


_NESTED: dict[str, Callable[[Mapping[str, Any], Any, Types], object]] = {
    "record": _record,
    "array": _array,
    "map": _map,
    "bytes": _bytes,
    "fixed": _bytes,
    "float": _float,
    "double": _float,
}
