"""JSON as Kafka Connect's JsonConverter writes it, of rows in the form of our JSON topics."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def _decimal(value: float) -> str:
    unscaled = int(Decimal(str(value)).scaleb(2))
    return b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def _micros(value: str) -> int:
    return round(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1_000_000)


TYPES: Mapping[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "day": (
        {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
        lambda value: (date.fromisoformat(value) - date(1970, 1, 1)).days,
    ),
    "local": ({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}, _micros),
    "price": (
        {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        _decimal,
    ),
}
"""The types of columns that JSON alone does not tell, and their form in the payload."""


def with_schema(value: dict[str, Any]) -> bytes:
    """Return a row, or an envelope with rows, as a payload with its schema beside it."""
    schema, payload = _described(value)
    return json.dumps({"schema": schema, "payload": payload}).encode()


def _described(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields, payload = list[dict[str, Any]](), dict[str, Any]()
    for name, cell in value.items():
        if isinstance(cell, dict):
            schema, payload[name] = _described(cell)
        else:
            schema, written = TYPES.get(name, ({"type": "string"}, lambda same: same))
            payload[name] = None if cell is None else written(cell)
        fields.append({**schema, "field": name, "optional": True})
    return {"type": "struct", "fields": fields}, payload
