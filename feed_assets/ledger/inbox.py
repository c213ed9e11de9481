"""Inboxes: unconsumed events, delivered once to every output that they affect.

They contain only new or incomplete propagations, never the history. The transaction that publishes an update removes
the events that its run consumed, and moves the consumer's markers. Until then the events stay in the inbox.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer, Seen, is_whole
from feed_assets.core.slices import Slice
from feed_assets.ledger import event_store, key_tables, reached_tables, subscriptions
from feed_assets.ledger.database import insert_into, insert_missing
from feed_assets.ledger.tables import batch, event, inbox, marker, taken_event, update


def deliver(connection: sa.Connection, outputs: Iterable[tuple[Partition, int]]) -> None:
    """Put events, by number, into the inboxes of the outputs that they affect. A repeated call changes nothing."""
    rows = [{"feed": str(at.feed), "partition": at.key, "sequence": number} for at, number in outputs]
    insert_missing(connection, inbox, rows)


def waiting(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, tuple[Recorded, ...]]:
    """Return the unconsumed events of outputs, in commit order."""
    key_table = key_tables.partitions(connection, {*outputs})
    output = inbox.c.feed.label("output_feed"), inbox.c.partition.label("output_partition")
    query = sa.select(event, *output).join(inbox, inbox.c.sequence == event.c.sequence)
    query = query.join(key_table, key_tables.same_keys(inbox, key_table)).order_by(event.c.sequence)
    events_by_output: dict[Partition, list[Recorded]] = {}
    for row in connection.execute(query).mappings():
        partition = Partition(Feed.parse(row["output_feed"]), row["output_partition"])
        events_by_output.setdefault(partition, []).append(event_store.recorded_of(row))
    return {output: tuple(each) for output, each in events_by_output.items()}


def outputs(connection: sa.Connection) -> tuple[Partition, ...]:
    """Return the outputs whose inbox has events that no run has consumed yet."""
    partition = inbox.c.feed, inbox.c.partition
    rows = connection.execute(sa.select(*partition).distinct().order_by(*partition))
    return tuple(Partition(Feed.parse(feed), key) for feed, key in rows)


def seen_by(
    connection: sa.Connection, consumers: Collection[Consumer], events_by_output: Mapping[Partition, Iterable[Recorded]]
) -> dict[Feed, Seen]:
    """Return for each consumer all events that have a correlation id of its inboxes.

    Skip events that are recorded but not delivered yet. Otherwise a propagation could count as complete, and be
    consumed without these events.
    """
    ids_by_consumer: dict[Feed, set[str]] = {}
    for output, group in events_by_output.items():
        ids_by_consumer.setdefault(output.feed, set()).update(each.correlation for each in group)
    tables = {table for each in consumers for table in each.tables}
    every = reached_tables.histories(connection, {each for ids in ids_by_consumer.values() for each in ids}, tables)
    upto = subscriptions.positions(connection)
    return {each.feed: _history_of(each, ids_by_consumer.get(each.feed, ()), every, upto) for each in consumers}


def _history_of(
    consumer: Consumer,
    correlations: Iterable[str],
    every: Mapping[str, Sequence[tuple[str, Feed, int]]],
    upto: Mapping[subscriptions.Edge, int],
) -> Seen:
    position_by_table = {table: upto.get((str(consumer.feed), str(table)), 0) for table in consumer.tables}
    history: dict[tuple[str, str], list[tuple[Feed, int]]] = {}
    for correlation in correlations:
        for partition, table, sequence in every.get(correlation, ()):
            if sequence <= position_by_table.get(table, 0):
                history.setdefault((correlation, partition), []).append((table, sequence))
    return history


def claim(connection: sa.Connection, output: Partition, run: str, slices: Iterable[Slice]) -> None:
    """Record that a run is about to read these slices.

    The events within the slices are consumed when the run publishes. Call this before the run reads. An event within
    the slices may arrive after the slices were chosen. Such an event is also claimed, because its rows exist before the
    run reads.
    """
    connection.execute(sa.update(inbox).where(_within(connection, {output: slices})).values(run=run))


def are_whole(connection: sa.Connection, output: Partition, slices: Collection[Slice]) -> bool:
    """Return whether no event of these slices has been consumed since the slices were chosen.

    A slice is a range of a table's rows, which one run reads. If another run has consumed an event of the slice, rows
    would be read twice.
    """
    unconsumed = sa.select(inbox.c.sequence).where(_within(connection, {output: slices}))
    rows = connection.execute(sa.select(event).where(event.c.sequence.in_(unconsumed))).mappings()
    events = [*map(event_store.recorded_of, rows)]
    return all(is_whole(each, (event for event in events if event.partition == each.partition)) for each in slices)


def holds(connection: sa.Connection, output: Partition, slices: Iterable[Slice]) -> bool:
    """Return whether an output still has unconsumed events about the rows of these slices."""
    query = sa.select(inbox.c.sequence).where(_within(connection, {output: slices})).limit(1)
    return connection.execute(query).first() is not None


def _within(connection: sa.Connection, slices: Mapping[Partition, Iterable[Slice]]) -> sa.ColumnElement[bool]:
    """Return the SQL condition for events of outputs that lie in slices. It must agree with `Interval.within`."""
    names = ("feed", "partition", "input_feed", "input_partition", "start", "end")
    key_table = key_tables.rows(
        connection, names, (_bounds(output, each) for output, pieces in slices.items() for each in pieces)
    )
    waits = inbox.alias()
    lies = (event.c.sequence == waits.c.sequence) & (event.c.marker <= key_table.c.end)
    lies &= (event.c.feed == key_table.c.input_feed) & (event.c.partition == key_table.c.input_partition)
    lies &= key_table.c.start.is_(None) | (event.c.start >= key_table.c.start)
    # This needs one index lookup for each waiting event, and no scan of a table's history.
    output = (waits.c.feed == key_table.c.feed) & (waits.c.partition == key_table.c.partition)
    waiting_keys = sa.select(*(waits.c[name] for name in _KEY)).join(key_table, output)
    return sa.tuple_(*(inbox.c[name] for name in _KEY)).in_(waiting_keys.where(sa.exists().where(lies)))


_KEY = "feed", "partition", "sequence"


def _bounds(output: Partition, piece: Slice) -> tuple[str | None, ...]:
    return str(output.feed), output.key, str(piece.partition.feed), piece.partition.key, piece.start, piece.end


def _of(output: Partition) -> sa.ColumnElement[bool]:
    return (inbox.c.feed == str(output.feed)) & (inbox.c.partition == output.key)


def correlations(connection: sa.Connection, run: str) -> set[str]:
    """Return the correlation ids of the events that a run claimed."""
    query = sa.select(event.c.correlation).join(inbox, inbox.c.sequence == event.c.sequence)
    return {*connection.execute(query.where(inbox.c.run == run).distinct()).scalars()}


def consume(connection: sa.Connection, output: Partition, run: str, now: datetime) -> None:
    """Remove the events that a run consumed from the inbox, and move the markers.

    Call this in the transaction that publishes the run's update. The removed events are recorded. If the update is
    invalidated, the events return to the inbox. If it is revalidated, they are removed again. A repeated call changes
    nothing.
    """
    taken_numbers = _taken_by(output, run)
    is_consumed = _of(output) & ((inbox.c.run == run) | inbox.c.sequence.in_(taken_numbers))
    columns = inbox.c.feed, inbox.c.partition, inbox.c.sequence, sa.literal(run)
    new = sa.select(*columns).where(is_consumed, inbox.c.sequence.not_in(taken_numbers))
    connection.execute(sa.insert(taken_event).from_select([column.name for column in taken_event.c], new))
    _leave(connection, is_consumed, now)


def _leave(connection: sa.Connection, is_consumed: sa.ColumnElement[bool], now: datetime) -> None:
    """Remove consumed events from inboxes, and move the markers up to which tables were read. Never move a marker back.

    The events of a propagation that was skipped earlier have older markers. They must not lower the stored markers.
    """
    last = sa.func.max(event.c.marker), sa.func.max(event.c.event_marker), sa.literal(now, marker.c.at.type)
    partition = inbox.c.feed, inbox.c.partition, event.c.feed, event.c.partition
    query = sa.select(*partition, *last).join_from(inbox, event, inbox.c.sequence == event.c.sequence)
    insert = insert_into(connection, marker).from_select(
        [*marker.c.keys()], query.where(is_consumed).group_by(*partition)
    )
    later = {name: _greater(marker.c[name], insert.excluded[name]) for name in ("marker", "event_marker")}
    connection.execute(insert.on_conflict_do_update(index_elements=[*marker.primary_key], set_={**later, "at": now}))
    connection.execute(sa.delete(inbox).where(is_consumed))


def _greater(old: sa.ColumnElement[str], new: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    return sa.case((old > new, old), else_=new)


def give_back(connection: sa.Connection, output: Partition, run: str) -> None:
    """Put the events that a run consumed back into the inbox.

    Call this in the transaction that invalidates the run's update. Markers do not change, because they record how far
    the output was ever read. Skip events that another published update has consumed since. A repeated call changes
    nothing.
    """
    again = taken_event.alias()
    since = sa.select(again.c.sequence).join(update, update.c.run == again.c.run)
    by_other_runs = (again.c.feed == str(output.feed)) & (again.c.partition == output.key) & (again.c.run != run)
    since = since.where(by_other_runs, update.c.feed == again.c.feed, update.c.state.in_(["published", "pruned"]))
    waiting_numbers = sa.select(inbox.c.sequence).where(_of(output))
    gone = sa.select(taken_event.c.feed, taken_event.c.partition, taken_event.c.sequence).where(
        _is_taken(output, run), taken_event.c.sequence.not_in(waiting_numbers), taken_event.c.sequence.not_in(since)
    )
    connection.execute(sa.insert(inbox).from_select(["feed", "partition", "sequence"], gone))


def came_back(connection: sa.Connection, output: Partition) -> tuple[sa.RowMapping, ...]:
    """Return the events that came back to an output's inbox.

    Each event has the invalid update that consumed it, and the `reason` why that update is invalid.
    """
    columns = event.c.feed, event.c.partition, event.c.start, event.c.marker
    query = sa.select(*columns, update.c.id.label("consumed_by"), update.c.reason)
    query = query.join(inbox, inbox.c.sequence == event.c.sequence).where(_of(output))
    query = query.join(taken_event, taken_event.c.sequence == event.c.sequence)
    of_output = (taken_event.c.feed == str(output.feed)) & (taken_event.c.partition == output.key)
    same_update = (
        (update.c.feed == taken_event.c.feed)
        & (update.c.partition == taken_event.c.partition)
        & (update.c.run == taken_event.c.run)
    )
    query = query.where(of_output).join(update, same_update).order_by(event.c.sequence, update.c.id)
    return tuple(connection.execute(query).mappings())


def _is_taken(output: Partition, run: str) -> sa.ColumnElement[bool]:
    return (
        (taken_event.c.feed == str(output.feed)) & (taken_event.c.partition == output.key) & (taken_event.c.run == run)
    )


def _taken_by(output: Partition, run: str) -> sa.Select[tuple[int]]:
    return sa.select(taken_event.c.sequence).where(_is_taken(output, run))


def consume_now(connection: sa.Connection, slices: Mapping[Partition, Iterable[Slice]], now: datetime) -> None:
    """Consume events without a run, because their data have been read already.

    The events are recorded as consumed by the output's newest published update. So they return to the inbox if that
    update is invalidated. A repeated call changes nothing.
    """
    if slices:
        is_consumed = _within(connection, slices)
        key = inbox.c.feed, inbox.c.partition, inbox.c.sequence
        new = sa.select(*key, _published_by()).where(is_consumed, _published_by().is_not(None))
        insert = insert_into(connection, taken_event).from_select([column.name for column in taken_event.c], new)
        connection.execute(insert.on_conflict_do_nothing())
        _leave(connection, is_consumed, now)


def _published_by() -> sa.ScalarSelect[str]:
    """Select the run that published the newest update of the output, for each row of the inbox."""
    held = sa.select(batch.c.key).where(batch.c.feed == inbox.c.feed, batch.c.partition == inbox.c.partition)
    its = (update.c.partition == inbox.c.partition) | update.c.partition.in_(held.correlate(inbox))
    of_output = (update.c.feed == inbox.c.feed) & its
    newest = (
        sa.select(update.c.run).where(of_output, update.c.state == "published").order_by(update.c.id.desc()).limit(1)
    )
    return newest.correlate(inbox).scalar_subquery()


def markers(connection: sa.Connection, consumer: Feed, key: str | None = None) -> tuple[Mapping[Any, Any], ...]:
    """Return rows of the table `marker`: how far a consumer has consumed each table."""
    of_consumer = marker.c.feed == str(consumer)
    if key is not None:
        of_consumer &= marker.c.partition == key
    query = (
        sa.select(marker).where(of_consumer).order_by(marker.c.input_feed, marker.c.input_partition, marker.c.partition)
    )
    return tuple(connection.execute(query).mappings())
