"""Queries about propagations: the correlation ids of events, and the tables that they have reached."""

from collections.abc import Iterable

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables
from feed_assets.ledger.tables import event, update
from feed_assets.ledger.updates import COMPACTED

At = tuple[Partition, str]
"""A table partition, with a marker or a correlation id of its events."""


def carried(connection: sa.Connection, positions: Iterable[At]) -> dict[At, str]:
    """Return for each pair of table partition and marker the correlation id of the last event with this marker.

    For a batch without an event of its own, use the event of its parent partition. A compacted update without an event
    has the correlation id of the update that it replaced.
    """
    positions = {*positions}
    above = {(at.parent, marker): (at, marker) for at, marker in positions if at.parent}
    id_by_position = _carried(connection, positions | above.keys())
    if (
        without_event := positions
        - id_by_position.keys()
        - {each for key, each in above.items() if key in id_by_position}
    ):
        id_by_position |= _of_compacted(connection, without_event)
    return {each: id_by_position[each] for each in positions & id_by_position.keys()} | {
        each: id_by_position[key] for key, each in above.items() if key in id_by_position and each not in id_by_position
    }


def _carried(connection: sa.Connection, positions: Iterable[At]) -> dict[At, str]:
    key_table = key_tables.updates(connection, positions, "marker")
    query = sa.select(event.c.feed, event.c.partition, event.c.marker, event.c.correlation)
    rows = connection.execute(query.join(key_table, key_tables.same_keys(event, key_table)).order_by(event.c.sequence))
    return {(Partition(Feed.parse(feed), key), marker): correlation for feed, key, marker, correlation in rows}


def _of_compacted(connection: sa.Connection, positions: Iterable[At]) -> dict[At, str]:
    key_table = key_tables.updates(connection, positions)
    query = sa.select(update.c.feed, update.c.partition, update.c.id, update.c.correlation)
    query = query.join(key_table, key_tables.same_keys(update, key_table))
    rows = connection.execute(query.where(update.c.origin == COMPACTED, update.c.correlation.is_not(None)))
    return {(Partition(Feed.parse(feed), key), update_id): correlation for feed, key, update_id, correlation in rows}


def reached(connection: sa.Connection, correlations: Iterable[At]) -> set[At]:
    """Return the pairs of table partition and correlation id for which there is an event."""
    key_table = key_tables.updates(connection, correlations, "correlation")
    has_event = sa.exists().where(key_tables.same_keys(event, key_table))
    rows = connection.execute(
        sa.select(key_table.c.feed, key_table.c.partition, key_table.c.correlation).where(has_event)
    )
    return {(Partition(Feed.parse(feed), key), correlation) for feed, key, correlation in rows}


def histories(
    connection: sa.Connection, correlations: Iterable[str], tables: Iterable[Feed]
) -> dict[str, list[tuple[str, Feed, int]]]:
    """Return for each correlation id its events in some tables: (partition key, table, number), in commit order."""
    named = {str(table): table for table in tables}
    key_table = key_tables.rows(connection, ("correlation",), [[each] for each in correlations])
    condition = event.c.correlation.in_(sa.select(key_table.c.correlation)) & event.c.feed.in_(sorted(named))
    query = sa.select(event.c.correlation, event.c.partition, event.c.feed, event.c.sequence).where(condition)
    history_by_id: dict[str, list[tuple[str, Feed, int]]] = {}
    for correlation, partition, feed, sequence in connection.execute(query.order_by(event.c.sequence)):
        history_by_id.setdefault(correlation, []).append((partition, named[feed], sequence))
    return history_by_id
