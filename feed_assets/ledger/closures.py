"""Closed partitions. They are final: no run changes them, and late data do not count.

A retired dataset is closed as a whole, including its future partitions.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from shlex import quote
from typing import Any, TypeVar

import sqlalchemy as sa

from feed_assets.core.errors import IllegalTransition, PartitionClosed, StillRead
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import sentence
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger import key_tables, log, subscriptions
from feed_assets.ledger.database import Ledger, upsert
from feed_assets.ledger.due import AffectedOutput, wake
from feed_assets.ledger.log import Change
from feed_assets.ledger.sessions import lock_log
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.nested_windows import holding
from feed_assets.ledger.states.window_rows import backfilling
from feed_assets.ledger.tables import closure, due

WHOLE = "*"
"""The key that stands for the whole dataset. No partition can have it."""


@dataclass(frozen=True)
class Closure:
    """A closure: why, by whom and when (UTC) a partition was closed. `is_whole` is True if its dataset was retired."""

    why: str
    by: str
    at: datetime
    is_whole: bool = False

    def __str__(self) -> str:
        done = "retired" if self.is_whole else "closed"
        return f"{done} by {self.by} at {self.at:%Y-%m-%d %H:%M} UTC: {self.why}"


@dataclass(frozen=True)
class Readers:
    """Possible readers of a dataset, in this code location and in other code locations.

    `local` are the readers in this code location. `declared` are all datasets that this code location declares. A
    reader in another code location counts as alive if it has read all changes from before `live_since` (UTC).
    """

    local: Set[Feed]
    declared: Set[Feed]
    live_since: datetime


def close(ledger: Ledger, partitions: Iterable[Partition], why: str, by: str, now: datetime) -> int:
    """Close partitions, and log the closures. Return the number of partitions that were open. Skip closed partitions.

    Raise IllegalTransition if a window in one of them is being backfilled, because nobody could end the backfill after
    the closure.
    """
    wanted_now = sorted(set(partitions))
    with _changing(ledger, wanted_now, now) as (connection, tracked):
        already_closed = closed(connection, wanted_now)
        new = [each for each in wanted_now if each not in already_closed]
        _refuse_backfilling(connection, tracked, new)
        rows = [{**_key(each), "why": why, "who": by, "at": now} for each in new]
        upsert(connection, closure, rows, ["why", "who", "at"])
        log.append(
            connection,
            [Change(each, log.CLOSED, "", at=now, before="open", after="closed", why=why, who=by) for each in new],
        )
    return len(new)


def reopen(ledger: Ledger, partitions: Collection[Partition], why: str, by: str, now: datetime) -> int:
    """Open closed partitions again, and log the changes. Return the number of partitions that were closed.

    Skip open partitions.
    """
    with _changing(ledger, partitions, now) as (connection, _):
        reopened = sorted(at for at, each in closed(connection, set(partitions)).items() if not each.is_whole)
        key_conditions = (closure.c[name] == sa.bindparam(f"its_{name}") for name in ("feed", "partition"))
        gone = [{f"its_{name}": value for name, value in _key(each).items()} for each in reopened]
        if gone:
            connection.execute(sa.delete(closure).where(*key_conditions), gone)
        log.append(
            connection,
            [Change(each, log.CLOSED, "", at=now, before="closed", after="open", why=why, who=by) for each in reopened],
        )
    return len(reopened)


def retire(ledger: Ledger, outputs: Sequence[Feed], readers: Readers, why: str, by: str, now: datetime) -> bool:
    """Retire a dataset: close the last feed of `outputs` as a whole. Return False if it was retired before.

    Raise StillRead if a reader of one of the outputs is not retired.
    """
    feed = outputs[-1]
    with _changing(ledger, [Partition(feed)], now) as (connection, _):
        if active_readers := still_reading(connection, outputs, readers):
            raise StillRead.by(feed, active_readers)
        is_new = connection.execute(sa.select(closure.c.at).where(_of_whole_dataset(feed))).first() is None
        if is_new:
            row = {"feed": str(feed), "partition": WHOLE, "why": why, "who": by, "at": now}
            connection.execute(sa.insert(closure).values(row))
            log.append(
                connection,
                [Change(Partition(feed), log.CLOSED, "", at=now, before="open", after="retired", why=why, who=by)],
            )
            connection.execute(sa.update(due).where(due.c.feed == str(feed)).values(look_at=now))
    return is_new


def still_reading(connection: sa.Connection, outputs: Sequence[Feed], readers: Readers) -> list[Feed]:
    """Return, sorted, the datasets that read one of the outputs and are not retired, in any code location."""
    elsewhere = {Feed.parse(each) for each in subscriptions.readers(connection, outputs, readers.live_since)}
    return sorted((readers.local | (elsewhere - readers.declared)) - retired(connection))


def bring_back(ledger: Ledger, feed: Feed, partitions: Iterable[Partition], why: str, by: str, now: datetime) -> bool:
    """Open a retired dataset again. Return False if it was not retired.

    Put all its partitions on the due list, because their changes were dropped while it was retired.
    """
    with _changing(ledger, [Partition(feed)], now) as (connection, _):
        was_retired = bool(connection.execute(sa.delete(closure).where(_of_whole_dataset(feed))).rowcount)
        if was_retired:
            change = Change(Partition(feed), log.CLOSED, "", at=now, before="retired", after="open", why=why, who=by)
            number = log.append(connection, [change])
            wake(connection, [AffectedOutput(each, number, now) for each in partitions], now)
    return was_retired


def retired(connection: sa.Connection) -> set[Feed]:
    """Return the datasets that a person has retired, so that nothing builds them any more."""
    return {Feed.parse(feed) for (feed,) in connection.execute(sa.select(closure.c.feed).where(_is_whole()))}


def _is_whole() -> sa.ColumnElement[bool]:
    return closure.c.partition == WHOLE


def _of_whole_dataset(feed: Feed) -> sa.ColumnElement[bool]:
    return (closure.c.feed == str(feed)) & _is_whole()


@contextmanager
def _changing(
    ledger: Ledger, partitions: Collection[Partition], now: datetime
) -> Generator[tuple[sa.Connection, Mapping[Feed, Tracked]]]:
    """Open a transaction that waits for running count reports. New claims wait until it ends.

    If a dataset has no lock row yet, create one, because its first count report may be running.
    """
    tables = {each.feed for each in partitions if address_of(each)}
    with ledger.write() as connection:
        tracked_feeds = window_policies.tracked(connection, {each.feed for each in partitions})
        tracked = window_policies.lock(connection, tables.union(tracked_feeds), now)
        lock_log(connection)
        yield connection, tracked


def _refuse_backfilling(
    connection: sa.Connection, tracked: Mapping[Feed, Tracked], partitions: Collection[Partition]
) -> None:
    for row in backfilling(connection, {each.feed for each in partitions if address_of(each)}):
        places = {at.partition for at in holding(tracked[row.address.dataset], row.address, row.start)}
        if places.intersection(partitions):
            at = row.address.partition
            raise IllegalTransition(
                f"{at} is being backfilled, and nobody could end the backfill after the closure. End it first: "
                f"`feed-assets state backfill {at} --done --why …`, or `--failed`."
            )


def closed(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Closure]:
    """Return the closures of closed partitions. A partition's own closure wins over the closure of its dataset.

    Cost: two index lookups for each partition.
    """
    rows = connection.execute(_closed(connection.dialect.name), key_tables.row_parameter(key_tables.keys(partitions)))
    return {
        Partition(Feed.parse(row.feed), row.partition): Closure(row.why, row.who, row.at, row.whole) for row in rows
    }


@cache
def _closed(dialect: str) -> sa.Select[Any]:
    key_table = key_tables.table(dialect, key_tables.PARTITION)
    its = (closure.c.feed == key_table.c.feed) & closure.c.partition.in_([key_table.c.partition, WHOLE])
    query = sa.select(
        key_table, closure.c.why, closure.c.who, closure.c.at, (closure.c.partition == WHOLE).label("whole")
    )
    return query.join(closure, its).order_by(sa.desc("whole"))  # A partition's own closure is last, so it wins.


def of_feeds(connection: sa.Connection, feeds: Iterable[Feed]) -> set[Feed]:
    """Return the feeds with any closure. Cost: one index lookup for each feed."""
    key_table = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in feeds])
    is_there = sa.exists().where(key_tables.same_keys(closure, key_table)).correlate(key_table)
    return {Feed.parse(feed) for (feed,) in connection.execute(sa.select(key_table.c.feed).where(is_there))}


_Place = TypeVar("_Place")


def has_any(connection: sa.Connection, dataset: Feed) -> bool:
    """Return whether a dataset has any closure. Cost: one index lookup."""
    return connection.execute(sa.select(sa.exists().where(closure.c.feed == str(dataset)))).scalar_one()


def of_windows(connection: sa.Connection, places: Mapping[_Place, Iterable[WindowAddress]]) -> dict[_Place, str]:
    """Return the keys of `places` that have a closed window, each with a message about the closure."""
    named = {place: [at.partition for at in holding] for place, holding in places.items()}
    closure_by_partition = closed(connection, {each for partitions in named.values() for each in partitions})
    final = {
        place: [each for each in partitions if each in closure_by_partition] for place, partitions in named.items()
    }
    return {
        place: _final(partitions[0], closure_by_partition[partitions[0]])
        for place, partitions in final.items()
        if partitions
    }


def refuse(connection: sa.Connection, partitions: Iterable[Partition]) -> None:
    """Raise PartitionClosed if one of the partitions is closed."""
    for partition, why in sorted(closed(connection, partitions).items()):
        raise PartitionClosed(_final(partition, why))


def _final(partition: Partition, why: Closure) -> str:
    command = f"feed-assets state open {partition.feed} {quote(partition.key)} --why …"
    if why.is_whole:
        command = f"feed-assets feed retire {partition.feed} --undo --why …"
    return f"{partition} is {sentence(str(why))} Open it first: `{command}`."


def _key(partition: Partition) -> dict[str, str]:
    return {"feed": str(partition.feed), "partition": partition.key}
