"""Declared columns of a Kafka topic with values in JSON, and the Avro record that stands for them in the registry."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_AVRO_TYPES: Mapping[str, Any] = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


def record_schema(kinds: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the Avro record of columns with Spark's types. Each field may be null.

    Raise ValueError for a column that such a record cannot have.
    """
    fields = [{"name": name, "type": ["null", _avro_type(name, kind)], "default": None} for name, kind in kinds]
    names = [name.lower() for name, _ in kinds]  # Warehouses ignore case.
    if not names:
        raise ValueError("found no column, expected some, such as 'id bigint, text string'")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"column {twice[0]!r} occurs twice, expected each column once, in any case")
    if reserved := sorted({"_operation", "_offset"} & {*names}):
        raise ValueError(f"column {reserved[0]!r} is one that chunks add: expected another name")
    return {"type": "record", "name": "row", "namespace": "feed_assets", "fields": fields}


def spelled(kind: str) -> str:
    """Return a type of Spark's DDL in its usual form: lower case, without blanks, and by one name."""
    text = re.sub(r"\s", "", kind.lower())
    text = re.sub(r"^(dec|numeric)(?=\(|$)", "decimal", text)
    text = re.sub(r"^decimal(?:\((\d+)\))?$", lambda match: f"decimal({match[1] or 10},0)", text)
    return _SYNONYMS.get(text, text)


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Return the digits of a decimal type, and those after the point. Return None for another type."""
    match = _DECIMAL.fullmatch(spelled(kind))
    return (int(match[1]), int(match[2])) if match else None


def has_one_text(kind: str) -> bool:
    """Return whether equal values of a type always have the same text, unlike the decimals 1.5 and 1.50."""
    return spelled(kind) in ("string", "boolean", "tinyint", "smallint", "int", "bigint")


def has_order(kind: str) -> bool:
    """Return whether a type can order the rows of a key: a whole number, a decimal, a date or a timestamp."""
    return decimal_digits(kind) is not None or spelled(kind) not in ("string", "boolean", "float", "double")


def _avro_type(name: str, kind: str) -> Any:
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII):
        raise ValueError(f"column {name!r}: expected letters, digits and '_' in the names of a topic's columns")
    if digits := decimal_digits(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": digits[0], "scale": digits[1]}
    if (plain := _AVRO_TYPES.get(spelled(kind))) is None:
        raise ValueError(f"column {name!r} is {kind}: expected one of {', '.join(_AVRO_TYPES)}, or decimal(p,s)")
    return plain
