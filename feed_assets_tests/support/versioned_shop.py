"""A team whose rows have a version each, and that publishes events about them."""

from datetime import UTC, datetime

from feed_assets import EventSource, SqlTable
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.sources.sinks import SqlSink

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Shop:
    """A team with versioned rows and a table of events about them."""

    def __init__(self, folder):
        self.sink = SqlSink(f"sqlite:///{folder / 'shop.db'}", "events")
        self.source = EventSource("shop", (SqlTable(self.sink.url, "events", "id"),))
        self.sink.publish([])
        self.rows, self.last = {}, 0

    def write(self, *keys, table="orders", operation=Operation.UPSERT, correlation=None):
        """Give some keys a new row each, and publish an event."""
        self.last += 1
        self.rows |= {(table, key): {"key": key, "version": self.last, "by": "shop"} for key in keys}
        self.tell(self.last, table=table, operation=operation, correlation=correlation)

    def late(self, key, version):
        """Add a row with a version that was already read past, and publish an event."""
        self.rows["orders", key] = {"key": key, "version": version, "by": "shop"}
        self.tell(version)

    def tell(self, marker, *, table="orders", operation=Operation.UPSERT, correlation=None, context=None):
        """Publish an event that there may be new data up to a version."""
        event = WriteEvent(table, marker, NOON, correlation or f"c{marker}", operation, context=context or {})
        self.sink.publish([(0, event)])

    def read(self, piece):
        """Return the current rows of a slice."""
        start, end = int(piece.start or -1), int(piece.end)
        table = str(piece.partition.feed).removeprefix("shop/")
        return [row for (name, _), row in self.rows.items() if name == table and start < row["version"] <= end]
