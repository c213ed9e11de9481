"""Where the rows of an update have gone: what was built from it, level by level, one statement a level.

A level is what was built from the updates of the level before, with whatever these were added to or put together into,
and with the rejects of the runs that read them: all of that holds rows of what was asked about.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.events import encoded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.words import some
from feed_assets.ledger import batches, updates, wanted
from feed_assets.ledger.tables import batch, consumed, event, update

READ, ADDED_TO, PUT_TOGETHER, REJECTS_OF = "read", "added to", "put together", "rejects of"
"""How an update has come by the rows: in this order where it has done so twice."""

NAMED = 3
"""Known updates, or batches, that an error names."""

Key = tuple[Partition, str]


@dataclass(frozen=True)
class Use:
    """An update that was built from the one that was asked about.

    Attributes:
        partition: Its feed and partition.
        id: Its id.
        state: What the ledger has of it; None of one that was lost with a ledger.
        is_newest: Whether a reader of its partition gets it now.
        depth: How many datasets lie on the shortest way to it.
        how: What it has to do with `via`.
        via: The update by which it has come by the rows, on the shortest way.
    """

    partition: Partition
    id: str
    state: str | None
    is_newest: bool
    depth: int
    how: str
    via: Key


def uses(connection: sa.Connection, partition: Partition, update_id: str) -> list[Use]:
    """What was built from an update, or from the rows of an event table at a marker, to the leaves.

    Raises NoValidUpdate for what the ledger does not know, InvalidEvent for what is no marker.
    """
    is_known = updates.find(connection, partition, update_id) is not None
    if not is_known and not _is_table(connection, partition):
        raise NoValidUpdate(_unknown(connection, partition, update_id))
    root = partition, update_id if is_known else encoded(update_id)
    found, level, statement = dict[Key, Use](), [root], _using if is_known else _reading
    while level:
        rows = connection.execute(_with_state(statement(wanted.updates(connection, level)))).all()
        depth = 1 + (found[level[0]].depth if level[0] in found else 0)
        new = {key: use for key, use in _first(rows, depth) if key not in found}
        found |= new
        level, statement = [*new], _using
    return sorted(found.values(), key=lambda use: (use.depth, use.partition, use.id))


def _first(rows: Iterable[sa.Row[Any]], depth: int) -> Iterator[tuple[Key, Use]]:
    """Each update of a level once, by its first edge: `dict` keeps the last of several, so that comes last."""
    order = READ, ADDED_TO, PUT_TOGETHER, REJECTS_OF
    for row in sorted(rows, key=lambda row: (order.index(row.how), *row), reverse=True):
        at, via = Partition(Feed.parse(row.feed), row.partition), Partition(Feed.parse(row.of_feed), row.of_partition)
        yield (at, row.id), Use(at, row.id, row.state, bool(row.is_newest), depth, row.how, (via, row.of_id))


_OWN = (consumed.c.feed == consumed.c.input_feed) & ~consumed.c.is_input
"""The rows of the table by which an update holds those of another one of its own feed."""

_HOW = sa.cast(
    sa.case(
        (consumed.c.is_input, READ),
        (consumed.c.input_partition == consumed.c.partition, ADDED_TO),
        else_=PUT_TOGETHER,
    ),
    sa.String,
).label("how")

_EDGE: list[sa.ColumnElement[Any]] = [
    consumed.c.feed,
    consumed.c.partition,
    consumed.c.id,
    _HOW,
    consumed.c.input_feed.label("of_feed"),
    consumed.c.input_partition.label("of_partition"),
    consumed.c.position.label("of_id"),
]


def _built_from(those: sa.FromClause) -> sa.ColumnElement[bool]:
    """The rows of the table that say what was built from some updates."""
    same = (consumed.c.input_feed == those.c.feed) & (consumed.c.input_partition == those.c.partition)
    return same & (consumed.c.position == those.c.id)


def _using(asked: sa.CTE) -> sa.Select[Any]:
    return sa.select(*_EDGE).join(asked, _built_from(asked)).where(consumed.c.is_input | _OWN)


def _reading(asked: sa.CTE) -> sa.Select[Any]:
    """The slices of an event table that a marker is in: those from it on are looked at."""
    same = (consumed.c.input_feed == asked.c.feed) & (consumed.c.input_partition == asked.c.partition)
    begins_before = consumed.c.slice_from.is_(None) | (consumed.c.slice_from < asked.c.id)
    mine = same & (consumed.c.position >= asked.c.id) & begins_before & consumed.c.is_input
    return sa.select(*_EDGE).join(asked, mine)


def _with_state(first: sa.Select[Any]) -> sa.Select[Any]:
    """These edges, those to what holds the same rows, and to the rejects of what has read them; each with its state."""
    held = first.cte("held", recursive=True)
    held = held.union(sa.select(*_EDGE).join(held, _built_from(held)).where(_OWN))
    edges = sa.union(sa.select(held), _rejects(held)).subquery("edges")
    later, names = update.alias(), ("feed", "partition", "id")
    newer = (later.c.feed == update.c.feed) & (later.c.partition == update.c.partition) & (later.c.id > update.c.id)
    is_last = ~sa.exists().where(newer, later.c.state == updates.PUBLISHED)
    is_newest = ((update.c.state == updates.PUBLISHED) & is_last).label("is_newest")
    same = sa.and_(*(update.c[name] == edges.c[name] for name in names))
    return sa.select(edges, update.c.state, is_newest).join(update, same, isouter=True)


def _rejects(held: sa.CTE) -> sa.Select[Any]:
    """The updates that were written beside those which have read: the records that were turned away then."""
    same = sa.and_(*(consumed.c[name] == held.c[name] for name in ("feed", "partition", "id")))
    beside = ~consumed.c.is_input & (consumed.c.feed != consumed.c.input_feed)
    how, of = sa.literal(REJECTS_OF, sa.String), (consumed.c.feed, consumed.c.partition, consumed.c.id)
    to: list[sa.ColumnElement[Any]] = [consumed.c.input_feed, consumed.c.input_partition, consumed.c.position, how, *of]
    query = sa.select(*to)
    return query.join(held, same).where(beside, held.c.how == READ)


def _is_table(connection: sa.Connection, partition: Partition) -> bool:
    """Whether a partition is one of an event table: it has events, and neither updates nor batches that have some."""
    with_events, holding = (
        sa.exists().where(table.c.feed == str(partition.feed), table.c.partition == partition.key)
        for table in (event, batch)
    )
    with_updates = sa.exists().where(updates.is_(partition))
    return bool(connection.execute(sa.select(with_events & ~holding & ~with_updates)).scalar())


def _unknown(connection: sa.Connection, partition: Partition, update_id: str) -> str:
    """What the ledger has in place of an update that it does not know, and what to do."""
    query = sa.select(update.c.id).where(updates.is_(partition)).order_by(update.c.id.desc())
    known = [*connection.execute(query).scalars()]
    held = sorted(batches.known(connection, [partition])[partition], reverse=True)
    if known:
        what = f"it knows {some(known, NAMED)}. Name one of these"
    elif held:
        keys = some([each.key for each in held], NAMED)
        what = f"this partition holds batches: {keys}. Name one of these as the partition, and an update of it"
    else:
        what = (
            f"it knows none of this partition. `feed-assets feed ls {partition.feed}` lists the partitions on the "
            "blackboard; a tick (`feed-assets run`) tells the ledger of them"
        )
    return f"the ledger knows no update {update_id} of {partition}: {what}."
