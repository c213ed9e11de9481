"""Sinks to which our own events are published: a SQL table, or JSON lines on the blackboard.

Publishing the same events again changes nothing. So the caller may be killed before it saves its new position.
"""

import json
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import product
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from feed_assets.core.errors import InvalidDefinition, InvalidName, SinkUnavailable
from feed_assets.core.events import Marker, WriteEvent
from feed_assets.core.feeds import Feed, File
from feed_assets.core.secrets import masked
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import insert_missing
from feed_assets.sources.databases import answering, connected, engine_of, translated

SINK_SECONDS = 10
"""Seconds for a database to accept a batch: one tick publishes to all sinks, one after the other."""

PIPELINES = "_pipelines"
"""Suffix that turns the name of the events' table or folder into the name for our pipelines (`pipeline_sink.py`)."""

_DIGITS = 20
_KEY = ("table_name", "partition_key", "correlation_id", "marker")
_TEXTS = (*_KEY, "event_marker", "write_operation", "context")
_ENDS = ".jsonl"
_FILE = re.compile(rf"([0-9]{{{_DIGITS}}})(?:[^0-9].*)?\.jsonl")


Numbered = tuple[int, WriteEvent]
_Event_contra = TypeVar("_Event_contra", contravariant=True)


class Sink(Protocol[_Event_contra]):
    """A place to which events are published."""

    def publish(self, events: Sequence[tuple[int, _Event_contra]]) -> tuple[str, ...]:
        """Publish events in the order of their numbers. Raise SinkUnavailable or Blackboard* on failure.

        Return the names of items, such as files, that another writer has put in the place of ours.
        """
        ...

    def strangers(self, after: int, own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return other writers' items that follow our event number `after` and hide our next events from readers.

        `own` returns the numbers of events that another process of ours may be publishing now.
        """
        ...


def open_sink(url: str, board: Blackboard, feeds: Iterable[Feed] = ()) -> Sink[WriteEvent]:
    """Open the sink that a setting names: `blackboard:<prefix>`, or a SQLAlchemy URL with `#table` or `#schema.table`.

    Raise InvalidDefinition if it is neither, or if the folder of one of these `feeds` overlaps the sink's folder.
    """
    if prefix := check_place(url, feeds):
        return FileSink(board, prefix)
    database, _, table = url.rpartition("#")
    if not database or not table:
        raise InvalidDefinition(
            f"{masked(url)!r} is not a sink: expected blackboard:<prefix>, such as blackboard:events, or a SQLAlchemy "
            "URL and a table, such as postgresql+psycopg://user:password@host/database#events."
        )
    schema, _, name = table.rpartition(".")
    return SqlSink(database, name, schema=schema or None)


def check_place(url: str, feeds: Iterable[Feed]) -> str | None:
    """Return the prefix of a sink on the blackboard. Return None for any other sink.

    Raise InvalidDefinition if the prefix is not a valid name, or if a feed's folder overlaps the folder of the sink or
    of its pipelines.
    """
    scheme, _, path = url.partition(":")
    prefix = path.strip("/")
    if scheme != "blackboard" or not prefix:
        return None
    try:
        Feed.parse(prefix)  # A prefix follows the rules for feed names, which exclude `_feed_assets`.
    except InvalidName as error:
        raise InvalidDefinition(f"{url} is not a sink: expected a separate folder. {error}") from error
    for feed, folder in product(feeds, (prefix, f"{prefix}{PIPELINES}")):
        if f"{feed}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{feed}/"):
            raise InvalidDefinition(
                f"{url} is not a sink: its folder {folder}/ contains the feed {feed}. Name another folder."
            )
    return prefix


@dataclass(frozen=True)
class SqlSink:
    """A table on SQLite or PostgreSQL, created if missing, with the columns that SqlEvents expects and an `id`.

    `marker` and `event_marker` are texts that sort like their values: UTC moments as 2010-12-01T06:00:00.000000Z, whole
    numbers with 20 digits. Each (table_name, partition_key, correlation_id, marker) has one row.
    """

    url: str = field(repr=False)
    table: str
    schema: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.url.startswith(("sqlite", "postgresql")):
            raise InvalidDefinition(f"{masked(self.url)} is not a database for a sink: expected sqlite or postgresql.")

    def publish(self, events: Sequence[Numbered]) -> tuple[str, ...]:
        """Publish in one transaction. Existing events stay as they are. Raise SinkUnavailable on failure."""
        with writing(self.url, SINK_SECONDS) as connection:
            self.publish_on(connection, [event for _, event in events])
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return (): rows of other writers never hide ours from readers, because each has its own id."""
        return ()

    def publish_on(self, connection: sa.Connection, events: Iterable[WriteEvent]) -> None:
        """Publish in the caller's transaction. If data and events share a database, both are committed or neither."""
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
            sqlite_autoincrement=True,  # Otherwise the id of a removed last row is reused.
        )


@dataclass(frozen=True)
class FileSink:
    """JSON lines in a folder of the blackboard: a file for each batch, named by its first sequence number.

    If two of our processes publish batches that begin with the same event, both use the same file name. The second
    process then finds the file of the first. A file is ours if it contains what we would write. Any other file is
    skipped and never overwritten.
    """

    board: Blackboard
    prefix: str

    def publish(self, events: Sequence[Numbered]) -> tuple[str, ...]:
        """Publish the events that no file of ours has yet. Return the keys of other writers' files that block ours."""
        unpublished, number, foreign = self._unpublished(events)
        key = self._key(number)
        while unpublished:
            lines = _lines(unpublished)
            if self.board.create(key, lines):
                break
            if count := self._count(key, lines):  # Another process of ours has already published `count` events.
                unpublished, number = unpublished[count:], unpublished[min(count, len(unpublished) - 1)][0]
                key = self._key(number)
            else:
                foreign, key = foreign | {key}, self._beside(number)
        return tuple(sorted(foreign))

    def strangers(self, after: int, own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return files of other writers whose names sort after our event number `after`.

        Readers go through files in the order of names. After such a file, they would skip our next files. `own` returns
        the numbers of events that another process of ours may be publishing now.
        """
        files = self._from(after + 1)
        numbers = own() if files else ()
        return tuple(file.key for file in files if self._number(file) not in numbers)

    def _unpublished(self, events: Sequence[Numbered]) -> tuple[Sequence[Numbered], int, set[str]]:
        """Return the events that no file of ours has, the number that begins the next file, and other writers' files.

        Files of ours may already exist: after a kill, from another process, or if a restored ledger has an older
        position. Readers may have passed them, so the name of the next file must sort after the last of them.
        """
        at = {sequence: index for index, (sequence, _) in enumerate(events)}
        published, foreign, number = set[int](), set[str](), events[0][0] if events else 0
        for file in self._from(number) if events else ():
            if (first := self._number(file)) not in at:
                continue  # `strangers` returns this file.
            if count := self._count(file.key, _lines(events[at[first] :])):
                published |= {sequence for sequence, _ in events[at[first] : at[first] + count]}
                number = first
            else:
                foreign.add(file.key)
        unpublished = [event for event in events if event[0] not in published]
        return unpublished, next((each for each, _ in unpublished if each > number or not published), number), foreign

    def _count(self, key: str, lines: bytes) -> int:
        """Return how many of these lines a file begins with. Return 0 if the beginning differs."""
        content = self.board.get(key, len(lines)) or b""
        return content.count(b"\n") if content.endswith(b"\n") and lines.startswith(content) else 0

    def _from(self, number: int) -> tuple[File, ...]:
        return self.board.files_from(self.prefix, self._key(number))

    def _number(self, file: File) -> int:
        """Return the number at the beginning of a file's name; -1 for a name without one."""
        match = _FILE.fullmatch(file.key.removeprefix(f"{self.prefix}/"))
        return int(match[1]) if match else -1

    def _beside(self, number: int) -> str:
        """Return a name that sorts after all names with this number (`_` is after `.`), and before the next number."""
        names = [file.key.removesuffix(_ENDS) for file in self._from(number) if self._number(file) == number]
        return f"{max(names, default=self._key(number))}_{_ENDS}"

    def _key(self, number: int) -> str:
        return f"{self.prefix}/{number:0{_DIGITS}d}{_ENDS}"


def _lines(events: Sequence[Numbered]) -> bytes:
    return b"".join(line_of(sequence, event) + b"\n" for sequence, event in events)


def line_of(sequence: int, event: WriteEvent) -> bytes:
    """Return an event as one line of JSON, without the newline."""
    return json.dumps({"sequence": sequence, **_row(event)}).encode()


@contextmanager
def writing(url: str, seconds: float) -> Generator[sa.Connection]:
    """Yield a connection for one transaction, which must end within `seconds`, its commit included.

    Raise SinkUnavailable if the database fails. A trigger of the table's owner may run at the commit.
    """
    with (
        translated(url, SinkUnavailable),
        connected(engine_to(url)) as connection,
        answering(connection, seconds),
        connection.begin(),
    ):
        yield connection


@cache
def engine_to(url: str) -> sa.Engine:
    """Return the engine of a sink, one for each URL in a process."""
    return engine_of(url)


def _row(event: WriteEvent) -> Mapping[str, Any]:
    return {
        "table_name": event.table_name,
        "partition_key": event.partition_key,
        "marker": text_of(event.marker),
        "event_marker": text_of(event.event_marker),
        "correlation_id": event.correlation_id,
        "write_operation": event.write_operation.value,
        "context": json.dumps(dict(event.context)),
    }


def text_of(marker: Marker) -> str:
    """Return a marker as a text that sorts like it."""
    if isinstance(marker, datetime):
        return marker.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return f"{marker:0{_DIGITS}d}"
