"""Change events of Debezium: the operation, the row, and the record type of the row.

The value of such an event is an envelope: a record with `op`, `before` and `after`. Debezium's transform may unwrap
the envelope. Its values are plain rows, which may lack long values, too.
"""

from base64 import b64encode
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, cast

from feed_assets.kafka import avro
from feed_assets.kafka.poison import Poison

OPERATIONS = {"c": "create", "r": "refresh", "u": "update", "d": "delete"}
"""Types of messages by Debezium's `op`. It is `r` for a row that a snapshot has read."""

_TEXT = "__debezium_unavailable_value"
_UNKNOWN = (_TEXT, _TEXT.encode(), b64encode(_TEXT.encode()).decode(), _TEXT.encode().hex())
"""Placeholders of an unchanged long value, which PostgreSQL did not send: of a text, and of bytes in each form."""

_BYTES = tuple(each.encode() for each in _UNKNOWN if isinstance(each, str))


def row_type(schema: avro.Schema) -> Mapping[str, Any] | None:
    """Return the record type of the rows in an envelope, with all named types. Return None for another schema."""
    envelope = avro.record_of(schema)
    types = {each["name"]: each["type"] for each in envelope["fields"]} if envelope else {}
    if envelope is None or not {"op", "before", "after"} <= types.keys() or not isinstance(types["after"], list):
        return None
    named = envelope.get("__named_schemas", {})
    branches = [each for each in cast(list[Any], types["after"]) if each != "null"]
    row = named.get(branches[0]) if len(branches) == 1 and isinstance(branches[0], str) else (branches or [None])[0]
    return {**row, "__named_schemas": named} if isinstance(row, dict) and "fields" in row else None


def change(value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the operation and the row of an envelope: `before` for a delete, otherwise `after`.

    Raise Poison for an unknown operation or a missing row. Also raise it if the new row lacks a long value that did not
    change. Storing this row would overwrite the known value.
    """
    code = value.get("op")
    operation = OPERATIONS.get(code) if isinstance(code, str) else None
    if operation is None:
        expected = f"expected one of {', '.join(OPERATIONS)}"
        word = "null or missing" if code is None else brief(code)
        raise Poison(f"the field op is {word}: {expected}", f"the field op is another word: {expected}")
    part = "before" if operation == "delete" else "after"
    row = value.get(part)
    if not isinstance(row, dict):
        reason = f"the field {part} of a {operation} is {{}}: expected a row"
        raise Poison(reason.format(brief(row)), reason.format("none"))
    row = cast(dict[str, Any], row)
    if part == "after":
        _check_whole(row)
    return operation, row


def check_unwrapped(data: bytes, operation: str, row: Mapping[str, Any]) -> None:
    """Raise Poison if an unwrapped event lacks a long value, unless it is a delete. `data` is the message's value."""
    if operation != "delete" and any(each in data for each in _BYTES):
        _check_whole(row)


def _check_whole(row: Mapping[str, Any]) -> None:
    if absent := [name for name, cell in row.items() if _is_unknown(cell)]:
        reason = "{} is a long value that was not sent, because it did not change: expected whole rows. "
        advice = "Set REPLICA IDENTITY FULL for the table."
        raise Poison(reason.format(absent[0]) + advice, reason.format("a field") + advice)


def _is_unknown(cell: Any) -> bool:
    """Return whether a value is a placeholder, or an array or a map that has one instead of its values."""
    parts = cast(Any, cell.values() if isinstance(cell, dict) else cell if isinstance(cell, list) else [cell])
    return any(isinstance(each, str | bytes) and each in _UNKNOWN for each in parts)
