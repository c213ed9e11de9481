"""Queries and claims for the compaction of whole partitions: an update is replaced by one with the same rows."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import increment_base, log, reached_tables, updates
from feed_assets.ledger.tables import consumed, update

_OF_ROWS = ("records", "first", "last", "windows", "without", "columns", "audit", "figures")
_OF_BUILD = ("code_version", "correlation", "parents")
"""Columns with facts about an update's rows and about its build. A compacted update with the same rows copies them."""


def candidates(connection: sa.Connection, feed: Feed, files: int) -> list[updates.UpdateRow]:
    """Return the newest update of each partition of a feed, if a run wrote it and it has at least `files` files.

    The feed must not be appendable. Cost: one scan of the feed's updates.
    """
    later = update.alias()
    is_later = (later.c.feed == update.c.feed) & (later.c.partition == update.c.partition) & (later.c.id > update.c.id)
    is_replaced = sa.exists().where(is_later, later.c.state == updates.PUBLISHED)
    of_runs = update.c.origin.in_([updates.RUN, updates.REBUILT]) & (update.c.state == updates.PUBLISHED)
    # After a loss of the ledger, an update without a row count has a version that is not a digest of its rows.
    of_runs &= update.c.records.is_not(None)
    query = sa.select(*updates.COLUMNS).where(update.c.feed == str(feed), of_runs, update.c.files >= files)
    rows = connection.execute(query.where(~is_replaced).order_by(update.c.partition)).mappings()
    return [*map(updates.row_of, rows)]


def claim(connection: sa.Connection, replaced: updates.UpdateRow, update_id: str, run_id: str, now: datetime) -> None:
    """Record a claimed update that will have the rows of another one. Its facts and its pins are copied.

    The replaced update becomes its base, as if an increment without rows were added to it. So the partition is built
    again if the replaced update turns out to be invalid.
    """
    partition = replaced.partition
    facts = connection.execute(
        sa.select(*(update.c[name] for name in (*_OF_ROWS, *_OF_BUILD))).where(updates.is_(partition, replaced.id))
    ).mappings()
    key = {"feed": str(partition.feed), "partition": partition.key, "id": update_id}
    values: dict[str, Any] = {"origin": updates.COMPACTED, "state": updates.CLAIMED, "run": run_id, "at": now}
    if passed_on := reached_tables.carried(connection, {(partition, replaced.id)}):
        values["correlation"] = passed_on[partition, replaced.id]
    values["changed"] = log.last(connection)
    connection.execute(sa.insert(update).values({**facts.one(), **key, **values}))
    _copy_pins(connection, replaced, update_id)
    before = increment_base.added_to(connection, [(partition, replaced.id)]).get(partition)
    base = {"input_feed": key["feed"], "input_partition": key["partition"], "position": replaced.id}
    pin = replaced.pin
    measures = {"version": pin.version, "size": pin.size, "files": pin.files, "modified": pin.modified}
    start = before.start if before else replaced.id
    connection.execute(sa.insert(consumed).values({**key, **base, **measures, "slice_from": start, "is_input": False}))


def _copy_pins(connection: sa.Connection, replaced: updates.UpdateRow, update_id: str) -> None:
    names = [each.name for each in consumed.c]
    columns = [sa.literal(update_id).label("id") if name == "id" else consumed.c[name] for name in names]
    partition = replaced.partition
    own = (consumed.c.feed == str(partition.feed)) & (consumed.c.partition == partition.key)
    pins = sa.select(*columns).where(own, consumed.c.id == replaced.id, ~increment_base.ADDS_TO)
    connection.execute(sa.insert(consumed).from_select(names, pins))


def valid_with_same_rows(connection: sa.Connection, partition: Partition, update_id: str) -> list[str]:
    """Return an update and the other published updates with the same rows. Newest first.

    Claimed updates are returned, too, because a compaction in progress may be about to publish them.
    """
    may_be_valid = _in_state(connection, partition, update_id, updates.PUBLISHED, updates.CLAIMED)
    return sorted({update_id, *may_be_valid}, reverse=True)


def invalid_with_same_rows(connection: sa.Connection, partition: Partition, update_id: str) -> list[str]:
    """Return the other invalidated updates with the rows of an update. Newest first."""
    return [each for each in _in_state(connection, partition, update_id, updates.INVALIDATED) if each != update_id]


def _in_state(connection: sa.Connection, partition: Partition, update_id: str, *states: str) -> list[str]:
    rows = [updates.find(connection, partition, each) for each in with_same_rows(connection, partition, update_id)]
    return [row.id for row in rows if row and row.state in states]


def replaced_by(connection: sa.Connection, row: updates.UpdateRow) -> list[str]:
    """Return the older updates with the rows of a compacted update. Return [] for an update that is not compacted."""
    if row.origin != updates.COMPACTED:
        return []
    return [each for each in with_same_rows(connection, row.partition, row.id) if each < row.id]


def with_same_rows(connection: sa.Connection, partition: Partition, update_id: str) -> list[str]:
    """Return an update and all updates with the same rows, because one was compacted from the other. Newest first.

    Increments are not followed, because they have other rows.
    """
    connected, pairs = {update_id}, replaced_updates(connection, partition).items()
    while neighbours := {each for pair in pairs if connected.intersection(pair) for each in pair} - connected:
        connected |= neighbours
    return sorted(connected, reverse=True)


def replaced_updates(connection: sa.Connection, partition: Partition) -> dict[str, str]:
    """Return the compacted updates of a partition, each with the update that it replaces."""
    of_partition = (consumed.c.feed == str(partition.feed)) & (consumed.c.partition == partition.key)
    is_compacted = sa.exists().where(
        updates.is_(partition), update.c.id == consumed.c.id, update.c.origin == updates.COMPACTED
    )
    edges = sa.select(consumed.c.id, consumed.c.position).where(of_partition, increment_base.ADDS_TO, is_compacted)
    return {row.id: row.position for row in connection.execute(edges)}
