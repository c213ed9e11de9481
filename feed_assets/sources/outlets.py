"""Where our own events are also published to: a SQL table, or JSON lines on the blackboard.

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
from sqlalchemy.dialects import postgresql, sqlite

from feed_assets.core.errors import InvalidDefinition, OutletUnavailable, shown
from feed_assets.core.events import Marker, WriteEvent
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.databases import told

_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_DIGITS = 20
_FILE = re.compile(rf"[0-9]{{{_DIGITS}}}\.jsonl")


class Outlet(Protocol):
    """A place that events are published to."""

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish events with their sequence numbers, in that order. Raises OutletUnavailable or Blackboard*."""
        ...


def open_outlet(url: str, board: Blackboard) -> Outlet:
    """The outlet that a setting names: `blackboard:<prefix>`, or a SQLAlchemy URL with `#table` or `#schema.table`."""
    scheme, _, rest = url.partition(":")
    if scheme == "blackboard" and rest.strip("/"):
        return FileOutlet(board, rest.strip("/"))
    database, _, table = url.rpartition("#")
    if not database or not table:
        raise InvalidDefinition(
            f"{shown(url)!r} is no outlet: expected blackboard:<prefix>, such as blackboard:events, or a SQLAlchemy "
            "URL and a table, such as postgresql+psycopg://user:password@host/database#events."
        )
    schema, _, name = table.rpartition(".")
    return SqlOutlet(database, name, schema=schema or None)


@dataclass(frozen=True)
class SqlOutlet:
    """A table on SQLite or PostgreSQL, made if it is not there; columns as SqlEvents expects them, and an `id`.

    `marker` and `event_marker` are texts that sort: UTC moments as 2010-12-01T06:00:00.000000Z, whole numbers with 20
    digits. Of one (table_name, partition_key, correlation_id, marker) there is one row.
    """

    url: str = field(repr=False)
    table: str
    schema: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.url.partition(":")[0].partition("+")[0] not in _INSERT:
            expected = " or ".join(_INSERT)
            raise InvalidDefinition(f"{shown(self.url)} is no database for an outlet: expected {expected}.")

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish in one transaction; those that are there stay as they are. Raises OutletUnavailable."""
        with told(self.url, OutletUnavailable), _engine(self.url).begin() as connection:
            self.publish_on(connection, [event for _, event in events])

    def publish_on(self, connection: sa.Connection, events: Iterable[WriteEvent]) -> None:
        """Publish in the caller's transaction, where data and event share a database: both are there, or neither."""
        made = self._table
        made.create(connection, checkfirst=True)
        insert = _INSERT[connection.dialect.name](made).on_conflict_do_nothing()
        if rows := [_row(event) for event in events]:
            connection.execute(insert, rows)

    @property
    def _table(self) -> sa.Table:
        texts = (
            "table_name",
            "partition_key",
            "marker",
            "event_marker",
            "correlation_id",
            "write_operation",
            "context",
        )
        return sa.Table(
            self.table,
            sa.MetaData(schema=self.schema),
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
            *(sa.Column(name, sa.Text, nullable=False) for name in texts),
            sa.UniqueConstraint("table_name", "partition_key", "correlation_id", "marker"),
            sqlite_autoincrement=True,  # Else the id of a row that is removed last is given again.
        )


@dataclass(frozen=True)
class FileOutlet:
    """JSON lines in a folder of the blackboard, a file for each batch, named by its first sequence number.

    By that alone, so that of two who publish from the same event on one finds the other's file.
    """

    board: Blackboard
    prefix: str

    def publish(self, events: Sequence[tuple[int, WriteEvent]]) -> None:
        """Publish those that no file has yet. Raises a blackboard's error."""
        while events := self._missing(events):
            lines = "".join(json.dumps({"sequence": sequence, **_row(event)}) + "\n" for sequence, event in events)
            if self.board.create(self._key(events[0][0]), lines.encode()):
                return

    def _missing(self, events: Sequence[tuple[int, WriteEvent]]) -> Sequence[tuple[int, WriteEvent]]:
        """Without those up to the last one of the newest file: a try that was killed wrote it, or another process."""
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
    return sa.create_engine(url, pool_pre_ping=True)


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
