"""What each consumer has not consumed yet: events, delivered once to every output that they concern.

Its size is what is new or incomplete, never the history. An event leaves it with the publication that consumed it, in
one transaction, which moves the consumer's markers; until then every tick finds it here again.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer, Seen, Slice, is_whole
from feed_assets.ledger import events, subscriptions
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import event, inbox, marker, taken, update


def deliver(connection: sa.Connection, outputs: Iterable[tuple[Partition, int]]) -> None:
    """Put events, by number, into the inboxes of the outputs that they concern. Repeatable."""
    rows = [{"feed": str(at.feed), "partition": at.key, "sequence": number} for at, number in outputs]
    insert_missing(connection, inbox, rows)


def waiting(
    connection: sa.Connection, consumer: Feed, keys: Collection[str] | None = None
) -> dict[str, tuple[Recorded, ...]]:
    """The events that are not consumed yet, by output partition key, in the order in which they were recorded."""
    mine = inbox.c.feed == str(consumer)
    if keys is not None:
        mine &= inbox.c.partition.in_(sorted(keys))
    query = sa.select(event, inbox.c.partition.label("output")).join(inbox, inbox.c.sequence == event.c.sequence)
    found: dict[str, list[Recorded]] = {}
    for row in connection.execute(query.where(mine).order_by(event.c.sequence)).mappings():
        found.setdefault(row["output"], []).append(events.recorded_of(row))
    return {key: tuple(each) for key, each in found.items()}


def consumers(connection: sa.Connection) -> tuple[Feed, ...]:
    """The consumers that have not consumed everything."""
    found = connection.execute(sa.select(inbox.c.feed).distinct().order_by(inbox.c.feed)).scalars()
    return tuple(map(Feed.parse, found))


def outputs(connection: sa.Connection, consumer: Feed) -> tuple[Partition, ...]:
    """The partitions of a consumer that have not consumed everything."""
    query = sa.select(inbox.c.partition).where(inbox.c.feed == str(consumer)).distinct().order_by(inbox.c.partition)
    return tuple(Partition(consumer, key) for key in connection.execute(query).scalars())


def waiting_and_seen(
    connection: sa.Connection, consumer: Consumer, keys: Collection[str] | None = None
) -> tuple[dict[str, tuple[Recorded, ...]], Seen]:
    """What a consumer has not consumed, by its partition, and the whole history of these correlation ids.

    An event that was recorded and not delivered yet has not come: half of its update would be taken without it.
    """
    found = waiting(connection, consumer.feed, keys)
    correlations = {each.correlation for group in found.values() for each in group}
    known = subscriptions.positions(connection, [str(consumer.feed)])
    upto = {table: known.get((str(consumer.feed), str(table)), 0) for table in consumer.tables}
    return found, events.histories(connection, correlations, upto)


def claim(connection: sa.Connection, output: Partition, run: str, slices: Iterable[Slice]) -> None:
    """Note that a run is about to read these slices: the events within them are consumed when it publishes.

    Before it reads: an event that came since the slices were chosen covers rows that are there already.
    """
    for each in slices:
        connection.execute(sa.update(inbox).where(_of(output), _within(each)).values(run=run))


def are_whole(connection: sa.Connection, output: Partition, slices: Iterable[Slice]) -> bool:
    """Whether nothing of some slices was consumed since they were cut: else rows would be read twice."""
    for each in slices:
        left = sa.select(inbox.c.sequence).where(_of(output), _within(each))
        rows = connection.execute(sa.select(event).where(event.c.sequence.in_(left))).mappings()
        if not is_whole(each, map(events.recorded_of, rows)):
            return False
    return True


def holds(connection: sa.Connection, output: Partition, slices: Iterable[Slice]) -> bool:
    """Whether an output has not consumed all of some slices yet."""
    some = [sa.select(inbox.c.sequence).where(_of(output), _within(each)).limit(1) for each in slices]
    return any(connection.execute(query).first() for query in some)


def _within(piece: Slice) -> sa.ColumnElement[bool]:
    """The events that lie in a slice: as `Interval.within`, of the same two columns."""
    mine = (event.c.feed == str(piece.place.feed)) & (event.c.partition == piece.place.key)
    mine &= event.c.marker <= piece.end
    if piece.start is not None:
        mine &= event.c.start >= piece.start
    return sa.select(event.c.sequence).where(mine, event.c.sequence == inbox.c.sequence).correlate(inbox).exists()


def _of(output: Partition) -> sa.ColumnElement[bool]:
    return (inbox.c.feed == str(output.feed)) & (inbox.c.partition == output.key)


def correlations(connection: sa.Connection, run: str) -> set[str]:
    """The correlation ids of the events that a run has claimed."""
    query = sa.select(event.c.correlation).join(inbox, inbox.c.sequence == event.c.sequence)
    return {*connection.execute(query.where(inbox.c.run == run).distinct()).scalars()}


def consume(connection: sa.Connection, output: Partition, run: str, now: datetime) -> None:
    """With the publication of a run: its events leave the inbox, and the markers move, all together. Repeatable.

    Which events these were is kept: they come back if the update is invalidated, and go again if it is valid again.
    """
    known = _taken_by(output, run)
    mine = _of(output) & ((inbox.c.run == run) | inbox.c.sequence.in_(known))
    columns = inbox.c.feed, inbox.c.partition, inbox.c.sequence, sa.literal(run)
    new = sa.select(*columns).where(mine, inbox.c.sequence.not_in(known))
    connection.execute(sa.insert(taken).from_select([column.name for column in taken.c], new))
    _leave(connection, output, mine, now)


def _leave(connection: sa.Connection, output: Partition, mine: sa.ColumnElement[bool], now: datetime) -> None:
    last = sa.func.max(event.c.marker), sa.func.max(event.c.event_marker)
    query = sa.select(event.c.feed, event.c.partition, *last).join(inbox, inbox.c.sequence == event.c.sequence)
    for feed, partition, table_marker, event_marker in connection.execute(
        query.where(mine).group_by(event.c.feed, event.c.partition)
    ).all():
        _move(connection, output, Partition(Feed.parse(feed), partition), table_marker, event_marker, now)
    connection.execute(sa.delete(inbox).where(mine))


def give_back(connection: sa.Connection, output: Partition, run: str) -> None:
    """With the invalidation of what a run published: the events that it consumed are due again. Repeatable.

    Markers stay: they say how far anything was ever read. What another published update has consumed since, stays so.
    """
    again = taken.alias()
    since = sa.select(again.c.sequence).join(update, update.c.run == again.c.run)
    others = (again.c.feed == str(output.feed)) & (again.c.partition == output.key) & (again.c.run != run)
    since = since.where(others, update.c.feed == again.c.feed, update.c.state.in_(["published", "pruned"]))
    known = sa.select(inbox.c.sequence).where(_of(output))
    gone = sa.select(taken.c.feed, taken.c.partition, taken.c.sequence).where(
        _is_taken(output, run), taken.c.sequence.not_in(known), taken.c.sequence.not_in(since)
    )
    connection.execute(sa.insert(inbox).from_select(["feed", "partition", "sequence"], gone))


def came_back(connection: sa.Connection, output: Partition) -> tuple[sa.RowMapping, ...]:
    """The events that are due again, each with the update that had consumed it and why that is invalid by now."""
    columns = event.c.feed, event.c.partition, event.c.start, event.c.marker
    query = sa.select(*columns, update.c.id.label("consumed_by"), update.c.reason)
    query = query.join(inbox, inbox.c.sequence == event.c.sequence).where(_of(output))
    query = query.join(taken, taken.c.sequence == event.c.sequence)
    mine = (taken.c.feed == str(output.feed)) & (taken.c.partition == output.key)
    same = (update.c.feed == taken.c.feed) & (update.c.partition == taken.c.partition) & (update.c.run == taken.c.run)
    query = query.where(mine).join(update, same).order_by(event.c.sequence, update.c.id)
    return tuple(connection.execute(query).mappings())


def _is_taken(output: Partition, run: str) -> sa.ColumnElement[bool]:
    return (taken.c.feed == str(output.feed)) & (taken.c.partition == output.key) & (taken.c.run == run)


def _taken_by(output: Partition, run: str) -> sa.Select[tuple[int]]:
    return sa.select(taken.c.sequence).where(_is_taken(output, run))


def consume_now(connection: sa.Connection, output: Partition, slices: Iterable[Slice], now: datetime) -> None:
    """Consume events that left nothing new to read, without a run."""
    for each in slices:
        _leave(connection, output, _of(output) & _within(each), now)


def _move(
    connection: sa.Connection, output: Partition, place: Partition, table_marker: str, event_marker: str, now: datetime
) -> None:
    """Forwards only: a propagation that was skipped, and is taken later, has older markers."""
    key = {"feed": str(output.feed), "partition": output.key}
    key |= {"input_feed": str(place.feed), "input_partition": place.key}
    same = sa.and_(*(marker.c[name] == value for name, value in key.items()))
    known = connection.execute(sa.select(marker).where(same)).first()
    if known is None:
        connection.execute(sa.insert(marker).values(**key, marker=table_marker, event_marker=event_marker, at=now))
        return
    values = {
        "marker": max(known.marker, table_marker),
        "event_marker": max(known.event_marker, event_marker),
        "at": now,
    }
    connection.execute(sa.update(marker).where(same).values(values))


def markers(connection: sa.Connection, consumer: Feed, key: str | None = None) -> tuple[Mapping[Any, Any], ...]:
    """Up to where a consumer has consumed each table: rows of the table `marker`."""
    mine = marker.c.feed == str(consumer)
    if key is not None:
        mine &= marker.c.partition == key
    query = sa.select(marker).where(mine).order_by(marker.c.input_feed, marker.c.input_partition, marker.c.partition)
    return tuple(connection.execute(query).mappings())
