"""Sinks, which our own events are published to: a SQL table, or JSON lines on the blackboard.

Publishing again what was published changes nothing, so the caller moves its cursor afterwards and may die before.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

import sqlalchemy as sa

from feed_assets.core.errors import InvalidDefinition, SinkUnavailable
from feed_assets.core.events import Marker, WriteEvent
from feed_assets.core.secrets import shown
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import insert_missing
from feed_assets.sources.databases import answering, engine_of, translated

_DIGITS = 20
_KEY = ("table_name", "partition_key", "correlation_id", "marker")
_TEXTS = (*_KEY, "event_marker", "write_operation", "context")
_FILE = re.compile(rf"[0-9]{{{_DIGITS}}}\.jsonl")


class Sink(Protocol):
    """A place that events are published to."""

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish events with their sequence numbers, in that order. Raises SinkUnavailable or Blackboard*."""
        ...


def open_sink(url: str, board: Blackboard) -> Sink:
    """The sink that a setting names: `blackboard:<prefix>`, or a SQLAlchemy URL with `#table` or `#schema.table`."""
    scheme, _, rest = url.partition(":")
    if scheme == "blackboard" and rest.strip("/"):
        return FileSink(board, rest.strip("/"))
    database, _, table = url.rpartition("#")
    if not database or not table:
        raise InvalidDefinition(
            f"{shown(url)!r} is no sink: expected blackboard:<prefix>, such as blackboard:events, or a SQLAlchemy "
            "URL and a table, such as postgresql+psycopg://user:password@host/database#events."
        )
    schema, _, name = table.rpartition(".")
    return SqlSink(database, name, schema=schema or None)


@dataclass(frozen=True)
class SqlSink:
    """A table on SQLite or PostgreSQL, made if it is not there; columns as SqlEvents expects them, and an `id`.

    `marker` and `event_marker` are texts that sort: UTC moments as 2010-12-01T06:00:00.000000Z, whole numbers with 20
    digits. There is one row for each (table_name, partition_key, correlation_id, marker).
    """

    url: str = field(repr=False)
    table: str
    schema: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.url.startswith(("sqlite", "postgresql")):
            raise InvalidDefinition(f"{shown(self.url)} is no database for a sink: expected sqlite or postgresql.")

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish in one transaction; events that are there stay as they are. Raises SinkUnavailable."""
        with translated(self.url, SinkUnavailable), _engine(self.url).begin() as connection, answering(connection):
            self.publish_on(connection, [event for _, event in events])

    def publish_on(self, connection: sa.Connection, events: Iterable[WriteEvent]) -> None:
        """Publish in the caller's transaction, where data and event share a database: both are there, or neither."""
        table = self._table
        table.create(connection, checkfirst=True)
        insert_missing(connection, table, [_row(event) for event in events])

    @property
    def _table(self) -> sa.Table:
        return sa.Table(
            self.table,
            sa.MetaData(schema=self.schema),
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
            *(sa.Column(name, sa.Text, nullable=False) for name in _TEXTS),
            sa.UniqueConstraint(*_KEY),
            sqlite_autoincrement=True,  # Else the id of a row that is removed last is given again.
        )


@dataclass(frozen=True)
class FileSink:
    """JSON lines in a folder of the blackboard, a file for each batch, named by its first sequence number alone.

    So two processes that publish from the same event on write one file: the second finds the first one's.
    """

    board: Blackboard
    prefix: str

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish the events that no file has yet. Raises a blackboard's error."""
        while events := self._missing(events):
            lines = "".join(json.dumps({"sequence": sequence, **_row(event)}) + "\n" for sequence, event in events)
            if self.board.create(self._key(events[0][0]), lines.encode()):
                return

    def _missing(self, events: Sequence[tuple[int, WriteEvent]]) -> Sequence[tuple[int, WriteEvent]]:
        """The events after the last one of the newest file, which a try that was killed wrote, or another process."""
        listed = self.board.files_from(self.prefix, self._key(events[0][0])) if events else ()
        ours = [file.key for file in listed if _FILE.fullmatch(file.key.removeprefix(f"{self.prefix}/"))]
        if not ours or not (newest := self.board.get(ours[-1])):
            return events
        last: int = json.loads(newest.splitlines()[-1])["sequence"]
        return [(sequence, event) for sequence, event in events if sequence > last]

    def _key(self, sequence: int) -> str:
        return f"{self.prefix}/{sequence:0{_DIGITS}d}.jsonl"


@cache
def _engine(url: str) -> sa.Engine:
    return engine_of(url)


def _row(event: WriteEvent) -> Mapping[str, Any]:
    return {
        "table_name": event.table_name,
        "partition_key": event.partition_key,
        "marker": _text(event.marker),
        "event_marker": _text(event.event_marker),
        "correlation_id": event.correlation_id,
        "write_operation": event.write_operation.value,
        "context": json.dumps(dict(event.context)),
    }


def _text(marker: Marker) -> str:
    if isinstance(marker, datetime):
        return marker.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return f"{marker:0{_DIGITS}d}"
