"""Updates in the ledger: recording one is repeatable, and changes it only once."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.ledger import key_tables
from feed_assets.ledger.log import INVALIDATED, PRUNED, PUBLISHED
from feed_assets.ledger.tables import consumed, run, update

CLAIMED, REFUSED, ABANDONED = "claimed", "refused", "abandoned"
"""States beside those that the log has. A pruned update was valid, and a prune has removed it or is about to."""

FOREIGN, RUN, REBUILT, INTAKE, COMPACTED = "foreign", "run", "rebuilt", "intake", "compacted"
"""Origins: a producer elsewhere, a run of ours, one of ours that was lost with a ledger, our intake of others' data,
and what holds the rows of other batches."""


@dataclass(frozen=True)
class UpdateRow:
    """One row of the table `update_`; sizes in bytes, times in UTC, None where not known (yet)."""

    partition: Partition
    id: str
    state: str
    origin: str
    run: str | None
    version: str | None
    size: int | None
    files: int | None
    records: int | None
    code_version: str | None
    correlation: str | None
    parents: str | None
    reason: str | None
    at: datetime
    changed: int
    without: str | None = None
    modified: datetime | None = None

    @property
    def data_version(self) -> str:
        """Return what identifies its data: its version, or its id if it was never digested."""
        return self.version or self.id

    @property
    def is_foreign(self) -> bool:
        """Return whether another team's producer writes it."""
        return self.origin == FOREIGN

    @property
    def went_without(self) -> tuple[str, ...]:
        """Return the needed inputs that it was built without, as the others were enough."""
        return tuple(json.loads(self.without)) if self.without else ()

    @property
    def pin(self) -> Pin:
        """Return the row as the position of an input."""
        return Pin(self.partition, self.id, self.version or "", self.size or 0, self.files or 0, modified=self.modified)


COLUMNS: list[sa.ColumnElement[Any]] = [update.c[name] for name in ("feed", *UpdateRow.__annotations__)]


def row_of(columns: sa.RowMapping) -> UpdateRow:
    """Return a selected row (of `COLUMNS`) as a value."""
    values: dict[str, Any] = {**columns}
    partition = Partition(Feed.parse(values.pop("feed")), values.pop("partition"))
    return UpdateRow(partition, **values)


def is_(partition: Partition, update_id: str | None = None) -> sa.ColumnElement[bool]:
    """Return the condition that picks a partition's rows, or one row."""
    of_partition = (update.c.feed == str(partition.feed)) & (update.c.partition == partition.key)
    return of_partition & (update.c.id == update_id) if update_id is not None else of_partition


def find(connection: sa.Connection, partition: Partition, update_id: str) -> UpdateRow | None:
    """Return one update. Return None if the ledger does not have it."""
    row = connection.execute(sa.select(*COLUMNS).where(is_(partition, update_id))).mappings().first()
    return row_of(row) if row else None


def newest(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, UpdateRow]:
    """Return the newest published update of each partition that has one: one seek each, however long the history is."""
    rows = connection.execute(
        _newest(connection.dialect.name), key_tables.row_parameter(key_tables.keys(partitions))
    ).mappings()
    return {row.partition: row for row in map(row_of, rows)}


@cache
def _newest(dialect: str) -> sa.Select[Any]:
    """Build the query once: a tick runs it for each partition that it visits, and building takes longer than that."""
    key_table, history = key_tables.table(dialect, key_tables.PARTITION), update.alias()
    is_published = key_tables.same_keys(history, key_table) & (history.c.state == PUBLISHED)
    last = sa.select(sa.func.max(history.c.id)).where(is_published).correlate(key_table).scalar_subquery()
    return sa.select(*COLUMNS).join(key_table, key_tables.same_keys(update, key_table)).where(update.c.id == last)


def gone(connection: sa.Connection, partition: Partition) -> UpdateRow | None:
    """Return the last update of a partition, if it was published and is no longer valid. Return None otherwise."""
    of_partition = (update.c.feed == str(partition.feed)) & (update.c.partition == partition.key)
    ended = of_partition & update.c.state.in_([PUBLISHED, INVALIDATED])
    row = connection.execute(sa.select(*COLUMNS).where(ended).order_by(update.c.id.desc()).limit(1)).mappings().first()
    return row_of(row) if row and row["state"] == INVALIDATED else None


def invalidated(connection: sa.Connection, pins: Collection[Pin]) -> set[Pin]:
    """Return the pins whose updates were valid and are invalid now, not those that a prune has removed."""
    if not pins:
        return set()
    by_key = {(str(pin.partition.feed), pin.partition.key, pin.update_id): pin for pin in pins}
    key_table = key_tables.updates(connection, ((pin.partition, pin.update_id) for pin in pins))
    query = sa.select(update.c.feed, update.c.partition, update.c.id).join(
        key_table, key_tables.same_keys(update, key_table)
    )
    return {
        by_key[row.feed, row.partition, row.id]
        for row in connection.execute(query.where(update.c.state == INVALIDATED))
    }


def known_feeds(connection: sa.Connection, feeds: Iterable[str]) -> set[str]:
    """Return those of some feeds of which any update was ever recorded: one seek for each."""
    key_table = key_tables.rows(connection, ("feed",), [[feed] for feed in feeds])
    query = sa.select(key_table.c.feed).where(sa.exists().where(update.c.feed == key_table.c.feed).correlate(key_table))
    return {row.feed for row in connection.execute(query)}


def published_keys(connection: sa.Connection, feed: Feed) -> Iterator[str]:
    """Yield the keys of a feed's partitions with a published update: two index seeks each, however long its history."""
    yield from (row.partition for row in connection.execute(_published(feed)))


def published(connection: sa.Connection, feeds: Sequence[Feed], after: Partition | None, limit: int) -> list[Partition]:
    """Return the first partitions with a published update of some feeds, by name, that come after one of these."""
    keys = [_published(feed, after.key if after and after.feed == feed else None).limit(limit) for feed in feeds]
    each = [sa.select(keys_of_one.subquery()) for keys_of_one in keys]
    rows = sorted(connection.execute(sa.union_all(*each)).all())
    return [Partition(Feed.parse(feed), key) for feed, key in rows[:limit]]


@lru_cache(1024)
def _published(feed: Feed, after: str | None = None) -> sa.Select[str, Any]:
    first = sa.select(sa.func.min(update.c.partition).label("key")).where(update.c.feed == str(feed))
    first = first if after is None else first.where(update.c.partition > after)
    keys, history = first.cte(recursive=True), update.alias()
    of_feed = history.c.feed == str(feed)
    following = sa.select(sa.func.min(history.c.partition)).where(of_feed, history.c.partition > keys.c.key)
    keys = keys.union_all(sa.select(following.scalar_subquery()).where(keys.c.key.is_not(None)))
    is_published = sa.exists().where(of_feed, history.c.partition == keys.c.key, history.c.state == PUBLISHED)
    columns = sa.literal(str(feed)).label("feed"), keys.c.key.label("partition")
    return sa.select(*columns).where(keys.c.key.is_not(None), is_published)


def consumed_by(connection: sa.Connection, partition: Partition, update_id: str) -> tuple[Pin, ...]:
    """Return what an update was built from."""
    of_output = (consumed.c.feed == str(partition.feed)) & (consumed.c.partition == partition.key)
    rows = connection.execute(sa.select(consumed).where(of_output, consumed.c.id == update_id, consumed.c.is_input))
    return tuple(sorted(pin_of(row) for row in rows))


def pin_of(row: sa.Row[Any]) -> Pin:
    """Return a row of the table `consumed` as the pin that it records."""
    partition = Partition(Feed.parse(row.input_feed), row.input_partition)
    return Pin(partition, row.position, row.version, row.size, row.files, row.slice_from, row.modified)


NOT_THERE = "it is no longer there"
"""Reason why an update is invalid of which nothing is left."""

LOGGED = {PUBLISHED, INVALIDATED, PRUNED}
"""States that are appended to the log, for its readers."""


def output_of(connection: sa.Connection, row: UpdateRow) -> Partition:
    """Return the partition that the run of an update was to build: of a batch of ours the one that holds it."""
    return outputs_of(connection, [row])[row]


def outputs_of(connection: sa.Connection, rows: Collection[UpdateRow]) -> dict[UpdateRow, Partition]:
    """Return the same of several updates, in one statement. No run of ours has made others' batches."""
    held = [row for row in rows if row.run and row.partition.parent]
    key_table = key_tables.rows(connection, ("id",), [[row.run] for row in held])
    query = sa.select(run.c.id, run.c.feed, run.c.partition).join(key_table, run.c.id == key_table.c.id)
    output_by_run = (
        {run_id: Partition(Feed.parse(feed), key) for run_id, feed, key in connection.execute(query)} if held else {}
    )
    return {row: _held(row, output_by_run.get(row.run or "")) for row in rows}


def _held(row: UpdateRow, built: Partition | None) -> Partition:
    return built if built and built == row.partition.parent else row.partition


def agrees(recorded_row: UpdateRow | None, valid: Update | None) -> bool:
    """Return whether the newest update on the blackboard is the one that the ledger has, files and all."""
    if recorded_row is None or valid is None:
        return recorded_row is None and valid is None
    return recorded_row.id == valid.id and (not recorded_row.is_foreign or recorded_row.version == valid.files_digest)


def files_of(written: Update) -> dict[str, Any]:
    """Return the columns with the files of an update."""
    names = [(file.key.removeprefix(f"{written.path}/"), file.size, file.etag) for file in written.files]
    digest, listing = written.files_digest, json.dumps(names)
    counts = {"size": written.size, "files": len(written.files), "modified": written.modified}
    return {**counts, "files_digest": digest, "listing": listing}


def edge(connection: sa.Connection, partitions: Iterable[Partition], of: Any, state: str) -> dict[Partition, str]:
    """Return the first or last update of each partition in a state: one index seek for each."""
    key_table = key_tables.partitions(connection, partitions)
    condition = key_tables.same_keys(update, key_table) & (update.c.state == state)
    edge_id = sa.select(of(update.c.id)).where(condition).correlate(key_table).scalar_subquery()
    rows = connection.execute(sa.select(key_table.c.feed, key_table.c.partition, edge_id))
    return {Partition(Feed.parse(feed), key): update_id for feed, key, update_id in rows if update_id}


def columns_of(connection: sa.Connection, pin: Pin) -> tuple[tuple[str, str], ...]:
    """Return name and type of each column of an update of ours; () if they are not known."""
    columns = connection.execute(sa.select(update.c.columns).where(is_(pin.partition, pin.update_id))).scalar()
    return tuple((name, kind) for name, kind in json.loads(columns)) if columns else ()


def recorded(connection: sa.Connection, partition: Partition, update_id: str) -> Update | None:
    """Return an update with the files that it had when it was published, or None if the ledger has no list of them."""
    listing = connection.execute(sa.select(update.c.listing).where(is_(partition, update_id))).scalar()
    if listing is None:
        return None
    path = Update(partition, update_id, ()).path
    return Update(
        partition, update_id, tuple(File(f"{path}/{name}", *details) for name, *details in json.loads(listing))
    )
