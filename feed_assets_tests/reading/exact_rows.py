"""Rows of every type, whose values must come back exactly."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

MOMENT = datetime(2026, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)
EXACT = pa.table(
    {
        "id": pa.array([2**62 + 1, None]),
        "small": pa.array([1, None], pa.int8()),
        "price": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
        "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        "local": pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("us")),
        "day": pa.array([date(1700, 1, 1), None]),
        "ok": pa.array([True, None]),
        "text": pa.array(["ü", None]),
        "tags": pa.array([["a", None], None], pa.list_(pa.string())),
        "site": pa.array([{"name": "x", "at": MOMENT}, None]),
    }
)
