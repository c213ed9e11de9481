"""Values of every Avro type."""

import json
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
MOMENTS = [
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999_000, tzinfo=UTC),
]
LOCAL = [each.replace(tzinfo=None) for each in MOMENTS]
TYPES = {
    "boolean": ("boolean", [True, False]),
    "int": ("int", [0, 2**31 - 1, -(2**31)]),
    "long": ("long", [2**63 - 1, -(2**63)]),
    "float": ("float", [0.5, -3.0, math.inf, math.nan]),
    "double": ("double", [0.1, 5e-324, 1.5e308, -math.inf, math.nan]),
    "string": (
        "string",
        ["", " ", "\\N", "a,b", 'say "hi"\r\n', "\\.", "NULL", "é👩‍👩‍👧‍👦\U0010ffff", "x" * 70_000, "\x01\x7f"],
    ),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["A", "B"]),
    "bytes": ("bytes", [b"", b"\x00\xff", bytes(range(256))]),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, [b"\x00\x01"]),
    "decimal": (
        DECIMAL,
        [Decimal("-12345678901234567890123456.0123456789"), Decimal("0.0000000001"), Decimal("0E-10")],
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, [UUID(int=0), UUID(int=2**128 - 1)]),
    "date": ({"type": "int", "logicalType": "date"}, [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "time_ms": ({"type": "int", "logicalType": "time-millis"}, [time(0), time(23, 59, 59, 999_000)]),
    "time_us": ({"type": "long", "logicalType": "time-micros"}, [time(23, 59, 59, 999_999)]),
    "moment_ms": ({"type": "long", "logicalType": "timestamp-millis"}, MOMENTS),
    "moment_us": ({"type": "long", "logicalType": "timestamp-micros"}, [*MOMENTS, MOMENTS[1].replace(microsecond=1)]),
    "local_ms": ({"type": "long", "logicalType": "local-timestamp-millis"}, LOCAL),
    "local_us": ({"type": "long", "logicalType": "local-timestamp-micros"}, LOCAL),
    "array": ({"type": "array", "items": ["null", "int"]}, [[], [1, None]]),
    "map": ({"type": "map", "values": "string"}, [{}, {'"k,': "v\n"}]),
    "record": ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, [{"x": 1}]),
    "several": (["string", "int"], ["a", 5]),
}


def comparable(value, as_json=False):
    """Return a comparable form of a value: NaN equals NaN, and JSON text equals its parsed value."""
    if as_json and isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, dict):
        value = dict(sorted(value.items()))
    return repr(value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value)
