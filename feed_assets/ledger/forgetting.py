"""Up to where a table's old events were removed: what is told again from before that is known, and not recorded anew.

A row for each table's partition of which something went, however much that was.
"""

from collections.abc import Collection, Iterable

import sqlalchemy as sa

from feed_assets.core.events import WriteEvent, encode
from feed_assets.ledger import wanted
from feed_assets.ledger.database import insert_into
from feed_assets.ledger.tables import event, forgotten

_Key = tuple[str, str]
_Position = tuple[str, str, str]


def forget(connection: sa.Connection, going: Iterable[sa.RowMapping]) -> None:
    """Note the greatest markers of events that go, of those that are not the last of their partition."""
    asked = wanted.rows(connection, ("sequence",), [[str(row["sequence"])] for row in going])
    mine = event.c.sequence.in_(sa.select(sa.cast(asked.c.sequence, sa.BigInteger)))
    later = event.alias()
    same = (later.c.feed == event.c.feed) & (later.c.partition == event.c.partition)
    same &= of_one_kind(later.c.marker, event.c.marker)
    is_old = sa.exists().where(same, later.c.marker > event.c.marker).correlate(event)
    greatest = sa.func.max(event.c.marker), sa.func.max(event.c.event_marker)
    key = event.c.feed, event.c.partition
    query = sa.select(*key, *greatest).where(mine, is_old).group_by(*key)
    insert = insert_into(connection, forgotten).from_select([*forgotten.c.keys()], query)
    values = {name: _greater(forgotten.c[name], insert.excluded[name]) for name in ("marker", "event_marker")}
    connection.execute(insert.on_conflict_do_update(index_elements=[*forgotten.primary_key], set_=values))


def _greater(known: sa.ColumnElement[str], new: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    return sa.case((known > new, known), else_=new)


def upto(connection: sa.Connection, keys: Collection[_Key]) -> dict[_Key, str]:
    """By table and partition the greatest marker that was removed."""
    rows = wanted.matching(connection, forgotten, sorted(keys))
    return {(row.feed, row.partition): row.marker for row in rows}


def may_be_known(
    connection: sa.Connection, new: Iterable[WriteEvent], *, unless_there: bool = False
) -> dict[_Position, str]:
    """Those of some events' table, partition and marker that lie in what was removed; `unless_there`: if all of it was.

    With the greatest event marker of what was removed: one that was published after that is none of these. What
    passes on an update that is still current has its marker, and is told `unless_there`.
    """
    positions = {(each.table_name, each.partition_key, encode(each.marker)) for each in new}
    asked = wanted.rows(connection, ("feed", "partition", "marker"), sorted(positions))
    its = (forgotten.c.feed == asked.c.feed) & (forgotten.c.partition == asked.c.partition)
    its &= (asked.c.marker <= forgotten.c.marker) & of_one_kind(asked.c.marker, forgotten.c.marker)
    is_there = sa.exists().where(wanted.same(event, asked)).correlate(asked) if unless_there else sa.false()
    columns = [asked.c[name] for name in ("feed", "partition", "marker")]
    query = sa.select(*columns, forgotten.c.event_marker).join(forgotten, its).where(~is_there)
    rows = connection.execute(query).mappings()
    return {(row["feed"], row["partition"], row["marker"]): row["event_marker"] for row in rows}


def of_one_kind(one: sa.ColumnElement[str], other: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether two markers are both moments, or both versions: only such are compared (`core.events.is_moment`)."""
    return one.contains(".") == other.contains(".")
