"""Sinks that publish our pipelines next to our events: a table with a view, or JSON lines in a folder.

After a change, all pipelines are published as a new version in one step, so no reader sees half of a version. Earlier
versions are kept.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import MAXYEAR, datetime, timedelta
from typing import Any, Protocol

import sqlalchemy as sa

from feed_assets.core.errors import SinkUnavailable, SourceUnavailable
from feed_assets.core.pipelines import PipelineTable, together
from feed_assets.core.secrets import masked
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.lineage_table import rows_of_file
from feed_assets.sources.sinks import PIPELINES, FileSink, Sink, SqlSink, text_of, writing

PIPELINE_SECONDS = 5
"""Seconds for a database to accept a version. Events are published afterwards, even if the database takes too long."""

LOG = "_log"
"""The suffix that turns the view's name into the name of the table with all versions."""

NEWEST = "newest.jsonl"
"""The file with the newest version. Each version also has a file named by its time of publication."""

_PUBLISHED_AT = "published_at"
_NAMES = tuple(each.name for each in fields(PipelineTable))
_COLUMNS = (_PUBLISHED_AT, *_NAMES)


class PipelineSink(Protocol):
    """A place to which pipelines are published."""

    def publish(self, tables: Collection[PipelineTable], now: datetime) -> bool:
        """Publish a version with our tables, if it differs from the newest version. Return whether it was published.

        After a kill at any moment, the newest version is the previous one or this one. Raise SinkUnavailable or
        Blackboard* on failure.
        """
        ...


def pipelines_beside(sink: Sink[Any]) -> PipelineSink | None:
    """Return the sink for pipelines next to a sink for events; None if `sink` is neither a table nor a folder."""
    if isinstance(sink, SqlSink):
        return SqlPipelines(sink.url, f"{sink.table}{PIPELINES}", schema=sink.schema)
    if isinstance(sink, FileSink):
        return FilePipelines(sink.board, f"{sink.prefix}{PIPELINES}")
    return None


@dataclass(frozen=True)
class SqlPipelines:
    """A SQLite or PostgreSQL table with all published versions of the pipelines, and a view of the newest version.

    Table and view are created if they are missing. Their columns are the fields of `PipelineTable`, and `published_at`,
    the time of publishing (UTC). `published_at` is stored as a text whose alphabetical order is the order of time.
    """

    url: str = field(repr=False)
    view: str
    schema: str | None = field(default=None, kw_only=True)

    def publish(self, tables: Collection[PipelineTable], now: datetime) -> bool:
        """Publish a version in one transaction, as `PipelineSink.publish` describes."""
        with writing(self.url, PIPELINE_SECONDS) as connection:
            self._make(connection)
            if connection.dialect.name == "postgresql":  # The lock makes a second process wait for the first.
                # An advisory lock is not safe: any role that may connect could hold it.
                name = connection.dialect.identifier_preparer.format_table(self._log)
                connection.exec_driver_sql(f"LOCK TABLE {name} IN SHARE UPDATE EXCLUSIVE MODE")
            stored = connection.execute(sa.select(*self._view.c)).all()
            try:
                rows = _next([dict(zip(_COLUMNS, row, strict=True)) for row in stored], tables, now)
            except ValueError as error:  # The view would hide our next versions behind these rows.
                raise SinkUnavailable(
                    f"{masked(self.url)}: {self._log.fullname} has rows of somebody else: {error}. Delete them."
                ) from error
            if rows:
                connection.execute(sa.insert(self._log), rows)
        return bool(rows)

    def _make(self, connection: sa.Connection) -> None:
        log = self._log
        log.create(connection, checkfirst=True)
        if not sa.inspect(connection).has_table(self.view, self.schema):
            newest = sa.select(sa.func.max(log.alias("every").c[_PUBLISHED_AT])).scalar_subquery()
            rows = sa.select(log).where(log.c[_PUBLISHED_AT] == newest)
            connection.execute(sa.CreateView(rows, self.view, schema=self.schema))

    @property
    def _view(self) -> sa.TableClause:
        return sa.table(self.view, *map(sa.column, _COLUMNS), schema=self.schema)

    @property
    def _log(self) -> sa.Table:
        return sa.Table(
            f"{self.view}{LOG}",
            sa.MetaData(schema=self.schema),
            *(sa.Column(name, sa.Text, nullable=False) for name in _COLUMNS),
            sa.PrimaryKeyConstraint(_PUBLISHED_AT, "code_location", "table_name"),
        )


@dataclass(frozen=True)
class FilePipelines:
    """JSON lines in a folder of the blackboard: a file for each version, and `newest.jsonl` with the newest version.

    A kill between the two writes leaves a version that `newest.jsonl` does not have. The next tick publishes it again.
    """

    board: Blackboard
    prefix: str

    def publish(self, tables: Collection[PipelineTable], now: datetime) -> bool:
        """Publish a version of the tables, as `PipelineSink.publish` describes. Write each file in one put.

        If somebody else has replaced the newest version by one that we cannot have written, publish ours again.
        """
        stored = rows_of_file(self.board, f"{self.prefix}/{NEWEST}", _COLUMNS)
        try:
            rows = _next(stored or (), tables, now)
        except (ValueError, SourceUnavailable):
            rows = _next((), tables, now)
        if rows:
            lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
            self.board.put(f"{self.prefix}/{rows[0][_PUBLISHED_AT]}.jsonl", lines)
            self.board.put(f"{self.prefix}/{NEWEST}", lines)
        return bool(rows)


def _next(
    stored: Iterable[Mapping[str, str]], tables: Collection[PipelineTable], now: datetime
) -> list[dict[str, str]]:
    """Return the rows with which the next version of the pipelines is stored. Return [] if nothing changed.

    The new version's `published_at` is always later than any stored `published_at`, even if the clock is behind. Raise
    ValueError for a stored `published_at` that no process of ours can have written.
    """
    stored = [*stored]
    last = max((_moment(row[_PUBLISHED_AT]) for row in stored), default=None)
    newest = sorted(PipelineTable(**{name: row[name] for name in _NAMES}) for row in stored)
    merged = together(newest, tables)
    if [*merged] == newest:
        return []
    at = now if last is None or last < now else last + timedelta(microseconds=1)
    return [{_PUBLISHED_AT: text_of(at), **asdict(row)} for row in merged]


def _moment(text: str) -> datetime:
    """Return the time in a stored version. Raise ValueError if it has no zone, or leaves no room for a later one."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment.year == MAXYEAR:
        raise ValueError(f"{_PUBLISHED_AT} is {text[:60]!r}")
    return moment
