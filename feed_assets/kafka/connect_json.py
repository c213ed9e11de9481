"""JSON of Kafka Connect, as Debezium writes it: a payload, with its schema beside it unless that is switched off.

In this JSON a date is a number and a decimal is a text of bytes. Only the schema says what they are, by a name. Source:
`JsonConverter` of Kafka Connect, and "Data types" of Debezium's connectors.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from reprlib import repr as brief
from typing import Any, cast

from feed_assets.core.record_columns import MOST_LEVELS
from feed_assets.kafka.poison import Poison

_LEVELS = 3 + MOST_LEVELS
"""The deepest struct with values to convert: an envelope, its row, records in it, and a decimal with its own scale."""

_MOST_SCALE = 1_000
_SCALE = re.compile("-?[0-9]+")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - Debezium's timestamps have no time zone.


def payload_of(value: Any) -> Any:
    """Return the payload of a value with `schema` and `payload`, or another value as it is.

    Dates, times and decimals of the payload become the texts and numbers that declared columns have. Raise Poison if a
    value is not of its type in the schema.
    """
    both = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    schema = both.get("schema")
    if both.keys() != {"schema", "payload"}:
        return cast(Any, value)
    if schema is None and isinstance(both["payload"], dict):
        return cast(Any, both["payload"])  # Data without a schema.
    if not isinstance(schema, dict) or "type" not in schema:
        return cast(Any, value)
    return _converted(both["payload"], cast(dict[str, Any], schema), _LEVELS)


def _converted(value: Any, schema: Mapping[str, Any], levels: int) -> Any:
    read = _READERS.get(str(schema.get("name")))
    if read and value is not None:
        try:
            return read(value, schema)
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            place = f"the field {brief(schema['field'])}" if "field" in schema else "the value"
            reason = f"{place} is not a value of its type {schema['name']}"
            raise Poison(reason, "a field is not a value of its type in the schema") from error
    if schema.get("type") != "struct" or not isinstance(value, dict) or not levels:
        return cast(Any, value)
    fields = _fields(schema)
    cells = cast(dict[str, Any], value)
    return {name: _converted(cell, fields.get(name, {}), levels - 1) for name, cell in cells.items()}


def _fields(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    fields = schema.get("fields")
    if not isinstance(fields, list) or not all(isinstance(each, dict) for each in cast(list[Any], fields)):
        raise Poison.plain("the schema beside the payload has a struct without fields: expected Kafka Connect's")
    return {str(each.get("field")): each for each in cast(list[Mapping[str, Any]], fields)}


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _day(value: Any, _schema: Mapping[str, Any]) -> str:
    return (date(1970, 1, 1) + timedelta(days=_integer(value))).isoformat()


def _local(unit: timedelta) -> Callable[[Any, Mapping[str, Any]], str]:
    return lambda value, _schema: (_EPOCH + unit * _integer(value)).isoformat()


def _moment(value: Any, _schema: Mapping[str, Any]) -> str:
    return (_EPOCH.replace(tzinfo=UTC) + timedelta(milliseconds=_integer(value))).isoformat()


def _decimal(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a decimal. With `decimal.format=NUMERIC` it is a number already."""
    if not isinstance(value, str):
        return value
    scale = schema["parameters"]["scale"]
    return _scaled(value, int(scale) if isinstance(scale, str) and _SCALE.fullmatch(scale) else _integer(scale))


def _own_scale(value: Any, _schema: Mapping[str, Any]) -> Decimal:
    return _scaled(value["value"], _integer(value["scale"]))


def _scaled(value: str, scale: int) -> Decimal:
    if abs(scale) > _MOST_SCALE:
        raise ValueError
    if not (digits := b64decode(value, validate=True)):
        raise ValueError
    unscaled = int.from_bytes(digits, "big", signed=True)
    return Decimal(f"{unscaled}E{-scale}")  # Without rounding, unlike `scaleb`.


_READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "io.debezium.time.Date": _day,
    "org.apache.kafka.connect.data.Date": _day,
    "io.debezium.time.Timestamp": _local(timedelta(milliseconds=1)),
    "io.debezium.time.MicroTimestamp": _local(timedelta(microseconds=1)),
    "org.apache.kafka.connect.data.Timestamp": _moment,
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _own_scale,
}
"""The functions that read values, by the names of types. Types without an entry stay as they are."""
