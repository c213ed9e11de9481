"""Values and keys in JSON. A declared schema becomes an Avro record, which stands for it in the registry.

So a chunk of JSON messages has a schema id, and a loader makes the same table as from messages in Avro.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import partial
from hashlib import sha256
from math import isfinite
from typing import Any, cast

from feed_assets.core.message_words import with_article
from feed_assets.core.record_columns import column_of, records_of
from feed_assets.core.topic_columns import decimal_digits, record_schema, spelled
from feed_assets.kafka.connect_json import payload_of
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas

SUBJECT = "feed_assets-rows"
"""How the registry's subjects of declared schemas begin. The rest is a digest, so each schema has its own subject."""

_TIMES = ("date", "timestamp", "timestamp_ntz")
_INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOAT = struct.Struct(">f")
_EXPONENT = 1_000
"""The largest exponent of a number. A key is written without one, so `1e999999999` would fill the memory."""

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_LOCAL = re.compile(_TIME, re.ASCII)
_MOMENT = re.compile(rf"{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})", re.ASCII)

_FORMS = {
    "date": "a text such as 2026-01-31",
    "timestamp": "a text with an offset, such as 2026-01-31T23:59:59Z",
    "timestamp_ntz": "a text without an offset, such as 2026-01-31T23:59:59",
}

_Convert = Callable[[Any], Any]


class JsonValues:
    """The reader of JSON values with declared columns. Equal values always become equal rows."""

    def __init__(self, columns: Sequence[tuple[str, str]], schemas: Schemas, flatten: int = 0) -> None:
        self._schemas, self._kinds, self._flatten = schemas, columns, flatten
        self._records = {record for name, _ in columns for record in records_of(name)}
        """The objects whose fields may be columns, by their names as columns."""
        self._converts = {name: _convert(kind) for name, kind in self._kinds}
        self._schema_id: int | None = None

    def row(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row of an object: each declared column. Raise Poison for an undeclared field or a wrong value."""
        fields = self._flat(fields, "", self._flatten) if self._flatten else fields
        if unknown := fields.keys() - self._converts.keys():
            raise Poison(
                f"the value has a field {min(unknown)!r}, which is not declared", "the value has an undeclared field"
            )
        return {name: self._cell(name, fields.get(name)) for name in self._converts}

    def _flat(self, fields: Mapping[str, Any], record: str, depth: int) -> dict[str, Any]:
        """Return an object in which the fields of objects, down to a depth, have the names of columns. Raise Poison."""
        flat = dict[str, Any]()
        for field, value in fields.items():
            name = column_of(record, field)
            cells = {name: value}
            if depth and name in self._records and isinstance(value, dict):
                cells = self._flat(cast(dict[str, Any], value), name, depth - 1)
            elif value is None and name in self._records and name not in self._converts:
                cells = {}  # All columns of the object are null.
            if twice := flat.keys() & cells.keys():
                reason = "the value has a field for the column {} twice: as its own, and in an object"
                raise Poison(reason.format(min(twice)), reason.format("of another one"))
            flat |= cells
        return flat

    def cells(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a key. Declared columns have the value that a row would have, so their texts are equal.

        Raise Poison for a value that is not of its column's type.
        """
        return {name: self._cell(name, cell) if name in self._converts else cell for name, cell in fields.items()}

    def of_plain_key(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the field of a key in a format of Kafka's own, with the value of its declared column.

        A warehouse would cast `5.7` to 6, and delete the row of another key. Raise Poison for such a text.
        """
        return {name: self._plain(name, cell) for name, cell in fields.items()}

    def _plain(self, name: str, cell: Any) -> Any:
        kind = spelled(dict(self._kinds).get(name, "string"))
        if kind == "string":
            return cell
        if isinstance(cell, str) and kind not in _TIMES and cell == cell.strip():
            with suppress(Poison):
                cell = parsed(cell.encode(), "key")
        return self._cell(name, cell)

    @property
    def schema_id(self) -> int:
        """Return the id of the declared schema. It is registered first. A repeated call returns the same id."""
        if self._schema_id is None:
            schema = record_schema(self._kinds)
            self._schema_id = self._schemas.register(subject_of(schema), schema)
        return self._schema_id

    def _cell(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        try:
            return self._converts[name](value)
        except (ValueError, OverflowError, DecimalException) as error:
            kind = dict(self._kinds)[name]
            reason = f"the field {name} is not {with_article(kind)}: found {_kind_of(value)}{_expected(kind)}"
            raise Poison.plain(reason) from error


def subject_of(schema: Mapping[str, Any]) -> str:
    """Return the registry's subject of the Avro record that stands for rows."""
    return f"{SUBJECT}-{sha256(json.dumps(schema).encode()).hexdigest()[:16]}"


def object_of(data: bytes) -> Mapping[str, Any]:
    """Return the object in a message's value. Raise Poison for another value."""
    value = value_of(data, "value")
    if not isinstance(value, dict):
        raise Poison.plain(f"the value is {_kind_of(value)}: expected a JSON object")
    return cast(dict[str, Any], value)


def value_of(data: bytes, part: str) -> Any:
    """Return the JSON value of a key or value: of Kafka Connect the payload. Raise Poison if it is no JSON."""
    return payload_of(parsed(data, part))


def parsed(data: bytes, part: str) -> Any:
    """Return the JSON value in some bytes, with each number exact. Raise Poison if they are not strict JSON."""
    try:
        return _STRICT.decode(data.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError, too.
        reason = f"the {part} is not JSON"
        raise Poison(f"{reason} ({type(error).__name__}: {str(error)[:200]})", reason) from error


def _exact(text: str) -> Decimal:
    """Return a number with a point or an exponent. Raise ValueError if its exponent is too large."""
    with suppress(DecimalException):  # A Decimal's exponent has at most 18 digits.
        number = Decimal(text)
        if abs(number.adjusted()) <= _EXPONENT:
            return number
    raise ValueError(f"{text[:50]} has an exponent beyond {_EXPONENT:,}")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("an object has a field twice")
    return fields


_STRICT = json.JSONDecoder(parse_float=_exact, parse_constant=_no_number, object_pairs_hook=_each_once)


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {str: "a text", bool: "a boolean", dict: "an object", list: "an array"}
    return names.get(type(cast(object, value)), "a number")


def _expected(kind: str) -> str:
    """Return what a value of a type looks like, for types whose values in JSON have a form of their own."""
    text = spelled(kind)
    if digits := decimal_digits(text):
        before, after = digits[0] - digits[1], digits[1]
        return f", expected a number with at most {before} digits before the point and {after} after it"
    expected = f"a whole number of {_INTEGERS[text]} bits" if text in _INTEGERS else _FORMS.get(text)
    return f", expected {expected}" if expected else ""


def _convert(kind: str) -> _Convert:
    """Return the function that converts a value of JSON to a column's type. It raises ValueError for other values."""
    text = spelled(kind)
    if text in _INTEGERS:
        return partial(_integer, 1 << (_INTEGERS[text] - 1))
    if digits := decimal_digits(text):
        return partial(_decimal, *digits)
    return _CONVERTS[text]


def _of_type(kind: type) -> _Convert:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError
        return value

    return checked


def _integer(bound: int, value: Any) -> int:
    """Return a whole number. `1.0` and `1e3` are whole, too."""
    if type(value) is Decimal and value == value.to_integral_value():
        value = int(value)
    if type(value) is not int or not -bound <= value < bound:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, Decimal) or not isfinite(number := float(value)):
        raise ValueError
    return number


def _single(value: Any) -> float:
    """Return the nearest number of 32 bits, as in Avro. PostgreSQL refuses the text of a smaller one."""
    return _FLOAT.unpack(_FLOAT.pack(_number(value)))[0]


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    """Return the number with exactly `scale` digits after the point. Further digits than zeros are an error."""
    if type(value) not in (int, Decimal):
        raise ValueError
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    return Decimal(value).quantize(Decimal(1).scaleb(-scale), context=exact)


def _day(value: Any) -> date:
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise ValueError
    return date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError
    return datetime.fromisoformat(value).astimezone(UTC)


def _local(value: Any) -> datetime:
    if not isinstance(value, str) or not _LOCAL.fullmatch(value):
        raise ValueError
    return datetime.fromisoformat(value)


_CONVERTS: Mapping[str, _Convert] = {
    "string": _of_type(str),
    "boolean": _of_type(bool),
    "float": _single,
    "double": _number,
    "date": _day,
    "timestamp": _moment,
    "timestamp_ntz": _local,
}
