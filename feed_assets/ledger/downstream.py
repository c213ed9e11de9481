"""Downstream uses of an update: all updates built from its rows, level by level, with one statement for each level.

A level has the updates built from the updates of the previous level. It also has the increments and compacted ranges
that contain these updates, and the rejects that the same runs wrote. All of these hold rows of the requested update.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.events import encoded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import shortened
from feed_assets.ledger import batch_partitions, key_tables, updates
from feed_assets.ledger.tables import batch, consumed, event, update

READ, ADDED_TO, PUT_TOGETHER, REJECTS_OF = "read", "added to", "put together", "rejects of"
"""Ways in which an update got the rows of another update. If several apply, the first in this order counts."""

NAMED = 3
"""Maximum number of updates or batches that an error message names."""

Key = tuple[Partition, str]


@dataclass(frozen=True)
class Use:
    """An update that was built from the requested one.

    Attributes:
        partition: Its feed and partition.
        id: Its id.
        state: Its state in the ledger; None if an earlier ledger with its state was lost.
        is_newest: True if readers of its partition get it now.
        depth: Number of datasets on the shortest way to it.
        how: Its relation to `via`.
        via: The update from which it got the rows, on the shortest way.
    """

    partition: Partition
    id: str
    state: str | None
    is_newest: bool
    depth: int
    how: str
    via: Key


def uses(connection: sa.Connection, partition: Partition, update_id: str) -> list[Use]:
    """Return all updates built, directly or indirectly, from an update, or from an event table's rows at a marker.

    Raise NoValidUpdate if the ledger does not have the update, and InvalidEvent for a malformed marker.
    """
    is_known = updates.find(connection, partition, update_id) is not None
    if not is_known and not _is_table(connection, partition):
        raise NoValidUpdate(_unknown(connection, partition, update_id))
    root = partition, update_id if is_known else encoded(update_id)
    use_by_key, level, statement = dict[Key, Use](), [root], _using if is_known else _reading
    while level:
        rows = connection.execute(_with_state(statement(key_tables.updates(connection, level)))).all()
        depth = 1 + (use_by_key[level[0]].depth if level[0] in use_by_key else 0)
        new = {key: use for key, use in _first(rows, depth) if key not in use_by_key}
        use_by_key |= new
        level, statement = [*new], _using
    return sorted(use_by_key.values(), key=lambda use: (use.depth, use.partition, use.id))


def _first(rows: Iterable[sa.Row[Any]], depth: int) -> Iterator[tuple[Key, Use]]:
    """Yield the uses of updates that one level of the lineage found, by update.

    An update may be found in several ways. The preferred way is last, because `dict` keeps the last value.
    """
    order = READ, ADDED_TO, PUT_TOGETHER, REJECTS_OF
    for row in sorted(rows, key=lambda row: (order.index(row.how), *row), reverse=True):
        at, via = Partition(Feed.parse(row.feed), row.partition), Partition(Feed.parse(row.of_feed), row.of_partition)
        yield (
            (at, row.id),
            Use(at, row.id, row.state, is_newest=bool(row.is_newest), depth=depth, how=row.how, via=(via, row.of_id)),
        )


_OWN = (consumed.c.feed == consumed.c.input_feed) & ~consumed.c.is_input
"""Condition for rows of `consumed` that record that an update contains another update of the same feed."""

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
    """Return the condition for rows of `consumed` whose input is one of the updates in `those`."""
    same_partition = (consumed.c.input_feed == those.c.feed) & (consumed.c.input_partition == those.c.partition)
    return same_partition & (consumed.c.position == those.c.id)


def _using(key_table: sa.CTE) -> sa.Select[Any]:
    return sa.select(*_EDGE).join(key_table, _built_from(key_table)).where(consumed.c.is_input | _OWN)


def _reading(key_table: sa.CTE) -> sa.Select[Any]:
    """Select the slices of an event table that contain a marker.

    Only slices that end at or after the marker are scanned.
    """
    same_partition = (consumed.c.input_feed == key_table.c.feed) & (consumed.c.input_partition == key_table.c.partition)
    begins_before = consumed.c.slice_from.is_(None) | (consumed.c.slice_from < key_table.c.id)
    condition = same_partition & (consumed.c.position >= key_table.c.id) & begins_before & consumed.c.is_input
    return sa.select(*_EDGE).join(key_table, condition)


def _with_state(first: sa.Select[Any]) -> sa.Select[Any]:
    """Select the edges of `first`. Add edges to the updates that contain an update in `first`, and edges to rejects.

    The rejects are from the runs that wrote these updates. Each row also has the state of the update.
    """
    held = first.cte("held", recursive=True)
    held = held.union(sa.select(*_EDGE).join(held, _built_from(held)).where(_OWN))
    edges = sa.union(sa.select(held), _rejects(held)).subquery("edges")
    later, names = update.alias(), ("feed", "partition", "id")
    newer = (later.c.feed == update.c.feed) & (later.c.partition == update.c.partition) & (later.c.id > update.c.id)
    is_last = ~sa.exists().where(newer, later.c.state == updates.PUBLISHED)
    is_newest = ((update.c.state == updates.PUBLISHED) & is_last).label("is_newest")
    same_update = sa.and_(*(update.c[name] == edges.c[name] for name in names))
    return sa.select(edges, update.c.state, is_newest).join(update, same_update, isouter=True)


def _rejects(held: sa.CTE) -> sa.Select[Any]:
    """Select the rejects that were written by the runs that wrote the given updates."""
    same_update = sa.and_(*(consumed.c[name] == held.c[name] for name in ("feed", "partition", "id")))
    beside = ~consumed.c.is_input & (consumed.c.feed != consumed.c.input_feed)
    how, of = sa.literal(REJECTS_OF, sa.String), (consumed.c.feed, consumed.c.partition, consumed.c.id)
    to: list[sa.ColumnElement[Any]] = [consumed.c.input_feed, consumed.c.input_partition, consumed.c.position, how, *of]
    query = sa.select(*to)
    return query.join(held, same_update).where(beside, held.c.how == READ)


def _is_table(connection: sa.Connection, partition: Partition) -> bool:
    """Return whether a partition belongs to an event table: it has events, but neither updates nor batches."""
    with_events, holding = (
        sa.exists().where(table.c.feed == str(partition.feed), table.c.partition == partition.key)
        for table in (event, batch)
    )
    with_updates = sa.exists().where(updates.is_(partition))
    return bool(connection.execute(sa.select(with_events & ~holding & ~with_updates)).scalar())


def _unknown(connection: sa.Connection, partition: Partition, update_id: str) -> str:
    """Return the message for an unknown update: what the ledger has instead, and what to do."""
    query = sa.select(update.c.id).where(updates.is_(partition)).order_by(update.c.id.desc())
    update_ids = [*connection.execute(query).scalars()]
    held = sorted(batch_partitions.recorded_batches(connection, [partition])[partition], reverse=True)
    if update_ids:
        advice = f"it has {shortened(update_ids, NAMED)}. Name one of these"
    elif held:
        keys = shortened([each.key for each in held], NAMED)
        advice = f"this partition holds batches: {keys}. Name one of these as the partition, and an update of it"
    else:
        advice = (
            f"it has none of this partition. `feed-assets feed ls {partition.feed}` lists the partitions on the "
            "blackboard. A tick (`feed-assets run`) records them in the ledger"
        )
    return f"the ledger has no update {update_id} of {partition}: {advice}."
