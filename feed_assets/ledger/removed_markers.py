"""Markers up to which old events of tables were removed, so that repeats of removed events are not recorded.

There is one row for each table partition with removed events.
"""

from collections.abc import Collection, Iterable

import sqlalchemy as sa

from feed_assets.core.events import WriteEvent, encode
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import insert_into
from feed_assets.ledger.tables import event, forgotten

_Key = tuple[str, str]
_Position = tuple[str, str, str]


def forget(connection: sa.Connection, going: Iterable[sa.RowMapping]) -> None:
    """Store for each partition the greatest marker of the events that are about to be removed.

    Skip the last event of a partition.
    """
    key_table = key_tables.rows(connection, ("sequence",), [[str(row["sequence"])] for row in going])
    is_going = event.c.sequence.in_(sa.select(sa.cast(key_table.c.sequence, sa.BigInteger)))
    later = event.alias()
    same_partition = (later.c.feed == event.c.feed) & (later.c.partition == event.c.partition)
    same_partition &= of_one_kind(later.c.marker, event.c.marker)
    is_old = sa.exists().where(same_partition, later.c.marker > event.c.marker).correlate(event)
    greatest = sa.func.max(event.c.marker), sa.func.max(event.c.event_marker)
    key = event.c.feed, event.c.partition
    query = sa.select(*key, *greatest).where(is_going, is_old).group_by(*key)
    insert = insert_into(connection, forgotten).from_select([*forgotten.c.keys()], query)
    values = {name: _greater(forgotten.c[name], insert.excluded[name]) for name in ("marker", "event_marker")}
    connection.execute(insert.on_conflict_do_update(index_elements=[*forgotten.primary_key], set_=values))


def _greater(old: sa.ColumnElement[str], new: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    return sa.case((old > new, old), else_=new)


def upto(connection: sa.Connection, keys: Collection[_Key]) -> dict[_Key, str]:
    """Return the greatest removed marker of each table and partition."""
    rows = key_tables.matching(connection, forgotten, sorted(keys))
    return {(row.feed, row.partition): row.marker for row in rows}


def may_be_known(
    connection: sa.Connection, new: Iterable[WriteEvent], *, unless_there: bool = False
) -> dict[_Position, str]:
    """Return the (table, partition, marker) of new events that may repeat removed events.

    Each value is the greatest `event_marker` of the partition's removed events: a new event with a greater
    `event_marker` is not a repeat. With `unless_there`, skip markers that still have an event. Several events may
    announce the same current update, and then have the same marker.
    """
    positions = {(each.table_name, each.partition_key, encode(each.marker)) for each in new}
    key_table = key_tables.rows(connection, ("feed", "partition", "marker"), sorted(positions))
    its = (forgotten.c.feed == key_table.c.feed) & (forgotten.c.partition == key_table.c.partition)
    its &= (key_table.c.marker <= forgotten.c.marker) & of_one_kind(key_table.c.marker, forgotten.c.marker)
    is_there = (
        sa.exists().where(key_tables.same_keys(event, key_table)).correlate(key_table) if unless_there else sa.false()
    )
    columns = [key_table.c[name] for name in ("feed", "partition", "marker")]
    query = sa.select(*columns, forgotten.c.event_marker).join(forgotten, its).where(~is_there)
    rows = connection.execute(query).mappings()
    return {(row["feed"], row["partition"], row["marker"]): row["event_marker"] for row in rows}


def of_one_kind(one: sa.ColumnElement[str], other: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition that two markers are both moments or both versions, and so comparable."""
    return one.contains(".") == other.contains(".")
