"""Queries about updates in the ledger."""

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
"""States of updates that are not logged. `log` has the other states.

`PRUNED` means that a prune has removed a valid update, or is about to remove it.
"""

FOREIGN, RUN, REBUILT, INTAKE, COMPACTED = "foreign", "run", "rebuilt", "intake", "compacted"
"""Origins of updates: another team, one of our runs, recovery of a lost ledger, intake for partners, and compaction."""


@dataclass(frozen=True)
class UpdateRow:
    """One row of the table `update_`. Sizes are in bytes, times in UTC. None means unknown, or not known yet."""

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
        """Return the identity of the data: the version, or the update id if there is no version."""
        return self.version or self.id

    @property
    def is_foreign(self) -> bool:
        """Return whether another team wrote the update."""
        return self.origin == FOREIGN

    @property
    def went_without(self) -> tuple[str, ...]:
        """Return the needed inputs that were missing when the update was built."""
        return tuple(json.loads(self.without)) if self.without else ()

    @property
    def pin(self) -> Pin:
        """Return the pin with which a run records that it read this update."""
        return Pin(self.partition, self.id, self.version or "", self.size or 0, self.files or 0, modified=self.modified)


COLUMNS: list[sa.ColumnElement[Any]] = [update.c[name] for name in ("feed", *UpdateRow.__annotations__)]


def row_of(columns: sa.RowMapping) -> UpdateRow:
    """Return a selected row (of `COLUMNS`) as an `UpdateRow`."""
    values: dict[str, Any] = {**columns}
    partition = Partition(Feed.parse(values.pop("feed")), values.pop("partition"))
    return UpdateRow(partition, **values)


def is_(partition: Partition, update_id: str | None = None) -> sa.ColumnElement[bool]:
    """Return the SQL condition for the updates of a partition or, with `update_id`, for one update."""
    of_partition = (update.c.feed == str(partition.feed)) & (update.c.partition == partition.key)
    return of_partition & (update.c.id == update_id) if update_id is not None else of_partition


def find(connection: sa.Connection, partition: Partition, update_id: str) -> UpdateRow | None:
    """Return one update. Return None if the ledger does not have it."""
    row = connection.execute(sa.select(*COLUMNS).where(is_(partition, update_id))).mappings().first()
    return row_of(row) if row else None


def newest(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, UpdateRow]:
    """Return the newest published update of each partition that has one.

    Cost: one index lookup for each partition, however long the history is.
    """
    rows = connection.execute(
        _newest(connection.dialect.name), key_tables.row_parameter(key_tables.keys(partitions))
    ).mappings()
    return {row.partition: row for row in map(row_of, rows)}


@cache
def _newest(dialect: str) -> sa.Select[Any]:
    """Build the query once, because building takes longer than running it."""
    key_table, history = key_tables.table(dialect, key_tables.PARTITION), update.alias()
    is_published = key_tables.same_keys(history, key_table) & (history.c.state == PUBLISHED)
    last = sa.select(sa.func.max(history.c.id)).where(is_published).correlate(key_table).scalar_subquery()
    return sa.select(*COLUMNS).join(key_table, key_tables.same_keys(update, key_table)).where(update.c.id == last)


def gone(connection: sa.Connection, partition: Partition) -> UpdateRow | None:
    """Return the last update of a partition if it was published and is invalid now. Return None otherwise."""
    of_partition = (update.c.feed == str(partition.feed)) & (update.c.partition == partition.key)
    ended = of_partition & update.c.state.in_([PUBLISHED, INVALIDATED])
    row = connection.execute(sa.select(*COLUMNS).where(ended).order_by(update.c.id.desc()).limit(1)).mappings().first()
    return row_of(row) if row and row["state"] == INVALIDATED else None


def invalidated(connection: sa.Connection, pins: Collection[Pin]) -> set[Pin]:
    """Return the pins whose updates have been invalidated since they were pinned. Pruned updates are not included."""
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
    """Return the feeds with any recorded update. Cost: one index lookup for each feed."""
    key_table = key_tables.rows(connection, ("feed",), [[feed] for feed in feeds])
    query = sa.select(key_table.c.feed).where(sa.exists().where(update.c.feed == key_table.c.feed).correlate(key_table))
    return {row.feed for row in connection.execute(query)}


def published_keys(connection: sa.Connection, feed: Feed) -> Iterator[str]:
    """Yield the keys of a feed's partitions with a published update. Cost: two index lookups for each partition."""
    yield from (row.partition for row in connection.execute(_published(feed)))


def published(connection: sa.Connection, feeds: Sequence[Feed], after: Partition | None, limit: int) -> list[Partition]:
    """Return the next partitions with a published update, in order of feeds and names, after the partition `after`."""
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
    """Return the pins of the inputs from which an update was built."""
    of_output = (consumed.c.feed == str(partition.feed)) & (consumed.c.partition == partition.key)
    rows = connection.execute(sa.select(consumed).where(of_output, consumed.c.id == update_id, consumed.c.is_input))
    return tuple(sorted(pin_of(row) for row in rows))


def pin_of(row: sa.Row[Any]) -> Pin:
    """Return the pin that a row of the table `consumed` stores: an input's update that was read."""
    partition = Partition(Feed.parse(row.input_feed), row.input_partition)
    return Pin(
        partition,
        row.position,
        row.version,
        size=row.size,
        files=row.files,
        start=row.slice_from,
        modified=row.modified,
    )


NOT_THERE = "it is no longer there"
"""Reason for the invalidity of an update that no longer exists."""

LOGGED = {PUBLISHED, INVALIDATED, PRUNED}
"""States that are logged."""


def output_of(connection: sa.Connection, row: UpdateRow) -> Partition:
    """Return the output of an update's run: the update's partition, or the parent partition for one of our batches."""
    return outputs_of(connection, [row])[row]


def outputs_of(connection: sa.Connection, rows: Collection[UpdateRow]) -> dict[UpdateRow, Partition]:
    """Return the outputs of several updates, in one statement. A batch of another team is its own output."""
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
    """Return whether the newest update on the blackboard is the ledger's newest update.

    The files of a foreign update must be the same, too.
    """
    if recorded_row is None or valid is None:
        return recorded_row is None and valid is None
    return recorded_row.id == valid.id and (not recorded_row.is_foreign or recorded_row.version == valid.files_digest)


def files_of(written: Update) -> dict[str, Any]:
    """Return the values of those columns of an update's row that describe its files."""
    names = [(file.key.removeprefix(f"{written.path}/"), file.size, file.etag) for file in written.files]
    digest, listing = written.files_digest, json.dumps(names)
    counts = {"size": written.size, "files": len(written.files), "modified": written.modified}
    return {**counts, "files_digest": digest, "listing": listing}


def edge(connection: sa.Connection, partitions: Iterable[Partition], of: Any, state: str) -> dict[Partition, str]:
    """Return for each partition the id of its first or last update in a state, by the SQL function `of` (min or max).

    Cost: one index lookup for each partition.
    """
    key_table = key_tables.partitions(connection, partitions)
    condition = key_tables.same_keys(update, key_table) & (update.c.state == state)
    edge_id = sa.select(of(update.c.id)).where(condition).correlate(key_table).scalar_subquery()
    rows = connection.execute(sa.select(key_table.c.feed, key_table.c.partition, edge_id))
    return {Partition(Feed.parse(feed), key): update_id for feed, key, update_id in rows if update_id}


def columns_of(connection: sa.Connection, pin: Pin) -> tuple[tuple[str, str], ...]:
    """Return name and type of each column of one of our updates, or () if they are unknown."""
    columns = connection.execute(sa.select(update.c.columns).where(is_(pin.partition, pin.update_id))).scalar()
    return tuple((name, kind) for name, kind in json.loads(columns)) if columns else ()


def recorded(connection: sa.Connection, partition: Partition, update_id: str) -> Update | None:
    """Return an update with the files that it had at publication. Return None if the ledger has no list of them."""
    listing = connection.execute(sa.select(update.c.listing).where(is_(partition, update_id))).scalar()
    if listing is None:
        return None
    path = Update(partition, update_id, ()).path
    return Update(
        partition, update_id, tuple(File(f"{path}/{name}", *details) for name, *details in json.loads(listing))
    )
