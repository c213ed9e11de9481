"""Types of Kafka Connect and Debezium in Avro schemas: they mark a date or time by `connect.name` alone."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

_LOGICAL = {
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
}
"""Avro's logical type by type and `connect.name`. Nanoseconds have no such type, so they stay numbers.

Debezium's timestamps have no time zone.
"""


def add_logical_types(schema: Any) -> None:
    """Add Avro's logical type to each type of a schema that has only its `connect.name`. The schema is JSON."""
    level = [schema]
    while level:
        for each in level:
            if isinstance(each, dict):
                _add(cast(dict[str, Any], each))
        level = [part for each in level for part in _parts(each)]


def _add(definition: dict[str, Any]) -> None:
    kind, name = definition.get("type"), definition.get("connect.name")
    if isinstance(kind, str) and isinstance(name, str) and (logical := _LOGICAL.get((kind, name))):
        definition.setdefault("logicalType", logical)


def _parts(schema: Any) -> Iterator[Any]:
    if isinstance(schema, list):
        yield from cast(list[Any], schema)
    elif isinstance(schema, dict):
        yield from (part for name, part in cast(Mapping[str, Any], schema).items() if name != "default")
