"""A team whose rows have a version each, and that tells of them in a table of events."""

from datetime import UTC, datetime

from feed_assets import EventSource, SqlTable
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.sources.sinks import SqlSink

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Shop:
    """A team with rows that have a version each, and a table of events about them."""

    def __init__(self, folder):
        self.sink = SqlSink(f"sqlite:///{folder / 'shop.db'}", "events")
        self.source = EventSource("shop", (SqlTable(self.sink.url, "events", "id"),))
        self.sink.publish([])
        self.rows, self.last = {}, 0

    def write(self, *keys, table="orders", operation=Operation.UPSERT, correlation=None):
        """Give some keys a new row each, and tell of it."""
        self.last += 1
        self.rows |= {(table, key): {"key": key, "version": self.last, "by": "shop"} for key in keys}
        self.tell(self.last, table=table, operation=operation, correlation=correlation)

    def late(self, key, version):
        """Have a row of a version that was passed, and tell of it."""
        self.rows["orders", key] = {"key": key, "version": version, "by": "shop"}
        self.tell(version)

    def tell(self, marker, *, table="orders", operation=Operation.UPSERT, correlation=None, context=None):
        """Tell that there may be new data up to a version."""
        event = WriteEvent(table, marker, NOON, correlation or f"c{marker}", operation, context=context or {})
        self.sink.publish([(0, event)])

    def read(self, piece):
        """The rows of a slice, as they are now."""
        start, end = int(piece.start or -1), int(piece.end)
        table = str(piece.partition.feed).removeprefix("shop/")
        return [row for (name, _), row in self.rows.items() if name == table and start < row["version"] <= end]
