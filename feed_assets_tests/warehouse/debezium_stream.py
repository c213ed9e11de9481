"""A topic of Debezium's envelopes without a broker."""

from typing import Any

from feed_assets.core.topics import Topic
from feed_assets.kafka import avro
from feed_assets.kafka.messages import Message
from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.warehouse.stream import Stream

CODES = {"create": "c", "refresh": "r", "update": "u", "delete": "d"}


def envelope(*fields: Any) -> list[dict[str, Any]]:
    """Return the fields of an envelope. Debezium's schemas define the row in `before`, and name it in `after`."""
    row = {"type": "record", "name": "Row", "namespace": "shop.public.orders", "fields": fields}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    return [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "shop.public.orders.Row"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]


def event(operation: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the change event of a row. Without REPLICA IDENTITY FULL an update has no row before."""
    rows = {"before": row, "after": None} if operation == "delete" else {"before": None, "after": row}
    return {**rows, "op": CODES.get(operation, operation), "source": {"lsn": 1}}


class DebeziumStream(Stream):
    """A topic of envelopes. Its rows are those of `Stream`."""

    def __init__(self, *place: Any, **options: Any) -> None:
        super().__init__(*place, **options)
        self.topic = Topic(key=("id",), operation="debezium")

    def shape(self, schema_id: int | None):
        schema = schema_id and self.schemas.get(schema_id)
        return shape_of(schema, self.topic.key, is_debezium=True) if schema else None

    def _message(self, offset: int, schema_id: int, row: Any) -> Message:
        operation, value = row if isinstance(row, tuple) else ("update", row)
        key = avro.encoded({"id": value["id"]}, self.schemas.get(self.key_id), self.key_id)
        data = operation and avro.encoded(event(operation, value), self.schemas.get(schema_id), schema_id)
        return Message(offset, key, data or None, [])
