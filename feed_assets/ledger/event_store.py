"""Write events: our own, and those read from sources. Each event is recorded once, in commit order, and never changed.

Each event has the number of its log entry, so a reader that continues from a number misses no event.
"""

import json
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import EventOutOfOrder, InvalidEvent, InvalidName
from feed_assets.core.events import (
    REPLICA_OF,
    WITHDRAWN,
    Marker,
    Operation,
    Recorded,
    Rejected,
    WriteEvent,
    check_event,
    check_kind,
    check_order,
    encode,
    in_words,
    is_moment,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import bulk, event_owners, event_rejects, key_tables, log, removed_markers
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import event

OURS = event_owners.OURS
"""The name of the source for our own events."""

OUT_OF_ORDER = "out of order"

_Key = tuple[str, str]


def publish(
    connection: sa.Connection, new: WriteEvent, now: datetime, updated_at: tuple[Marker, Marker] | None = None
) -> bool:
    """Record one of our own events. Return False if it was recorded before.

    Old events may have been removed (`removed_markers`). An event that is not newer than the removed events counts as
    recorded, because it may repeat one of them. `updated_at` has the first and the last time in the column `updated_at`
    of the event's rows. Raise EventOutOfOrder, InvalidEvent or InvalidName. A repeated call changes nothing.
    """
    check_event(new)
    partition, marker = new.partition, encode(new.marker)
    if _known_identities(connection, OURS, [new]) or removed_markers.may_be_known(connection, [new]):
        return False
    kinds = _kinds(connection, [str(partition.feed)])
    check_kind(new, moments=kinds.setdefault(str(partition.feed), is_moment(marker)))
    last = _last(connection, kinds, [(str(partition.feed), partition.key)]).get((str(partition.feed), partition.key))
    check_order(new, last, updated_at)
    _insert(connection, [_row(OURS, new, marker, previous=last, flag=None, now=now)])
    return True


def _insert(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    first = log.append(connection, [_change(row) for row in rows])
    numbered = [{**row, "sequence": number} for number, row in enumerate(rows, first)]
    bulk.insert(connection, event, numbered)


def _change(row: Mapping[str, Any]) -> Change:
    partition = Partition(Feed.parse(row["feed"]), row["partition"])
    return Change(partition, log.EVENT, row["marker"], row["at"], who=row["source"] or None)


def record(
    connection: sa.Connection, source: str, new: Sequence[WriteEvent], now: datetime, *, refuse_out_of_order: bool
) -> tuple[Rejected, ...]:
    """Record events in the given order. Store invalid events as rejects, and return the rejects.

    An event is out of order if its marker is before the last marker of its table. Such an event is rejected if
    `refuse_out_of_order` is set, and flagged otherwise. Events that were recorded before are skipped, even if they were
    removed since. A new event that is older than a removed event is rejected, because the range of data that it covers
    is unknown. An event of a table that belongs to another source is rejected, too.
    """
    rejected: list[Rejected] = []
    is_ours = source == OURS
    tables = {each.table_name for each in new}
    if not is_ours and (refusals := event_owners.refusals(connection, source, tables)):
        rejected += [_refused(each, refusals[each.table_name]) for each in new if each.table_name in refusals]
        new, tables = [each for each in new if each.table_name not in refusals], tables - refusals.keys()
    kinds = dict.fromkeys(tables, True) if is_ours else _kinds(connection, tables)  # Our markers are times.
    sound = [each for each in new if _is_sound(each, kinds, rejected, is_ours=is_ours)]
    last = _last(connection, kinds, {(each.table_name, each.partition_key) for each in sound})
    rows: list[dict[str, Any]] = []
    doubtful: list[WriteEvent] = []
    for each in sound:
        key, marker = (each.table_name, each.partition_key), encode(each.marker)
        before = last.get(key)
        if before is not None and marker <= before:
            doubtful.append(each)
            continue
        rows.append(_row(source, each, marker, previous=before, flag=None, now=now))
        last[key] = marker
    _insert(connection, rows)
    if doubtful:  # Handle doubtful events last, because they may repeat the other new events.
        _insert(
            connection,
            _doubtful(connection, source, doubtful, last=last, now=now, rejected=rejected, refuse=refuse_out_of_order),
        )
    event_rejects.reject(connection, source, rejected, now)
    return tuple(rejected)


def _refused(new: WriteEvent, reason: str) -> Rejected:
    return Rejected(event_rejects.in_json(new), reason)


def _is_sound(new: WriteEvent, kinds: dict[str, bool], rejected: list[Rejected], *, is_ours: bool) -> bool:
    """Return whether an event can be recorded. If not, add it to `rejected`. Our own events may have a long context.

    The first event of a table sets the table's kind of marker in `kinds`.
    """
    try:
        check_order(new, None) if is_ours else check_event(new)
        check_kind(new, moments=kinds.get(new.table_name, isinstance(new.marker, datetime)))
        _ = new.partition, encode(new.event_marker)
    except (InvalidEvent, InvalidName) as error:
        rejected.append(_refused(new, str(error)))
        return False
    kinds.setdefault(new.table_name, isinstance(new.marker, datetime))
    return True


def _doubtful(
    connection: sa.Connection,
    source: str,
    doubtful: Sequence[WriteEvent],
    last: Mapping[_Key, str],
    now: datetime,
    rejected: list[Rejected],
    *,
    refuse: bool,
) -> list[dict[str, Any]]:
    """Return rows for new events that are not after the last marker of their table partition.

    Such events are out of order, or have no new data. Add refused events to `rejected`.
    """
    known_identities, before = _known_identities(connection, source, doubtful), _before(connection, doubtful)
    removed = removed_markers.may_be_known(connection, doubtful, unless_there=source == OURS)
    rows: list[dict[str, Any]] = []
    for each in doubtful:
        key, marker = (each.table_name, each.partition_key), encode(each.marker)
        if _identity(each) in known_identities:
            continue
        if (published := removed.get((*key, marker))) is not None:
            if source != OURS and encode(each.event_marker) > published:
                rejected.append(_refused(each, _too_old(each, marker)))
            continue
        try:
            check_order(each, last[key])
            rows.append(_row(source, each, marker, previous=marker, flag=None, now=now))
        except InvalidEvent as error:
            if refuse or not isinstance(error, EventOutOfOrder):
                rejected.append(_refused(each, str(error)))
                continue
            rows.append(
                _row(source, each, marker, previous=_marker_before(before[key], marker), flag=OUT_OF_ORDER, now=now)
            )
            insort(before[key], marker)
        known_identities.add(_identity(each))
    return rows


def _too_old(new: WriteEvent, marker: str) -> str:
    return (
        f"{new.partition} {in_words(marker)} is older than events that were removed because of their age "
        "(FEED_ASSETS_LOG_DAYS), and was published after them. The range of data that it covers is unknown: expected "
        "a later marker. Publish the changed data with a later marker."
    )


def _identity(new: WriteEvent) -> tuple[str, str, str, str]:
    return new.table_name, new.partition_key, encode(new.marker), new.correlation_id


def _marker_before(markers: Sequence[str], marker: str) -> str | None:
    at = bisect_left(markers, marker)
    return markers[at - 1] if at else None


def _row(
    source: str, new: WriteEvent, marker: str, previous: str | None, flag: str | None, now: datetime
) -> dict[str, Any]:
    return {
        "source": source,
        "feed": new.table_name,
        "partition": new.partition_key,
        "marker": marker,
        "previous": previous,
        "start": new.start(previous),
        "event_marker": encode(new.event_marker),
        "correlation": new.correlation_id,
        "operation": new.write_operation.value,
        "context": json.dumps(dict(new.context)) if new.context else "{}",
        "flag": flag,
        "at": now,
    }


def _known_identities(
    connection: sa.Connection, source: str, new: Iterable[WriteEvent]
) -> set[tuple[str, str, str, str]]:
    """Return the identities of the new events that are already recorded for this source."""
    names = ("feed", "partition", "marker", "correlation")
    key_table = key_tables.rows(connection, names, map(_identity, new))
    query = sa.select(*(event.c[name] for name in names)).join(key_table, key_tables.same_keys(event, key_table))
    return {(*row,) for row in connection.execute(query.where(event.c.source == source))}


def _kinds(connection: sa.Connection, tables: Collection[str]) -> dict[str, bool]:
    """Return True for each table whose markers are times, False if they are versions. A table's first event decides.

    Cost: one index lookup for each table.
    """
    key_table = key_tables.rows(connection, ("feed",), [[each] for each in sorted(tables)])
    history = event.alias()
    first = sa.select(sa.func.min(history.c.sequence)).where(history.c.feed == key_table.c.feed).correlate(key_table)
    query = sa.select(event.c.feed, event.c.marker).join(key_table, event.c.sequence == first.scalar_subquery())
    rows = connection.execute(query)
    return {table: is_moment(marker) for table, marker in rows}


def _last(connection: sa.Connection, kinds: Mapping[str, bool], keys: Collection[_Key]) -> dict[_Key, str]:
    """Return the last marker of each table partition.

    A table's markers are either times or versions. `kinds` has True for a table with times. Markers of the other kind
    are ignored: they are from before a change of the declaration. Cost: one index lookup for each partition.
    """
    named = [[*key, str(int(kinds[key[0]]))] for key in sorted(keys) if key[0] in kinds]
    key_table = key_tables.rows(connection, ("feed", "partition", "moments"), named)
    same_partition = (event.c.feed == key_table.c.feed) & (event.c.partition == key_table.c.partition)
    of_its_kind = event.c.marker.contains(".") == (key_table.c.moments == "1")
    last = sa.select(sa.func.max(event.c.marker)).where(same_partition, of_its_kind).scalar_subquery()
    rows = connection.execute(sa.select(key_table.c.feed, key_table.c.partition, last))
    return {(feed, partition): marker for feed, partition, marker in rows if marker is not None}


def _before(connection: sa.Connection, new: Iterable[WriteEvent]) -> dict[_Key, list[str]]:
    """Return for each table partition the sorted markers that directly precede the new events.

    The last removed marker is included.
    """
    key_table = key_tables.rows(connection, ("feed", "partition", "marker"), {_identity(each)[:3] for each in new})
    condition = (event.c.feed == key_table.c.feed) & (event.c.partition == key_table.c.partition)
    condition &= removed_markers.of_one_kind(event.c.marker, key_table.c.marker)
    last = (
        sa.select(sa.func.max(event.c.marker)).where(condition, event.c.marker < key_table.c.marker).scalar_subquery()
    )
    markers_by_key: dict[_Key, set[str]] = {}
    for feed, partition, marker in connection.execute(sa.select(key_table.c.feed, key_table.c.partition, last)):
        markers_by_key.setdefault((feed, partition), set()).update({marker} - {None})
    for key, marker in removed_markers.upto(connection, markers_by_key.keys()).items():
        markers_by_key[key].add(marker)
    return {key: sorted(markers) for key, markers in markers_by_key.items()}


def last_marker(connection: sa.Connection, partition: Partition) -> str | None:
    """Return the last marker of a table partition. Return None if it has no event."""
    key = (str(partition.feed), partition.key)
    return _last(connection, _kinds(connection, [key[0]]), [key]).get(key)


def recorded_of(row: Mapping[Any, Any]) -> Recorded:
    """Return a selected row as an event."""
    partition = Partition(Feed.parse(row["feed"]), row["partition"])
    named = {
        name: row[name] for name in ("sequence", "source", "marker", "previous", "start", "event_marker", "correlation")
    }
    # Old rows may have NaN, which is not JSON. It becomes text.
    operation, context = Operation(row["operation"]), json.loads(row["context"], parse_constant=str)
    return Recorded(partition=partition, operation=operation, context=context, flag=row["flag"], at=row["at"], **named)


def after(
    connection: sa.Connection, tables: Collection[Feed], sequence: int, upto: int, limit: int
) -> tuple[Recorded, ...]:
    """Return up to `limit` events of these tables, in order. Their numbers are in `(sequence, upto]`."""
    condition = event.c.feed.in_(sorted(map(str, tables))) & (event.c.sequence > sequence) & (event.c.sequence <= upto)
    rows = connection.execute(sa.select(event).where(condition).order_by(event.c.sequence).limit(limit)).mappings()
    return tuple(recorded_of(row) for row in rows)


def is_recorded(connection: sa.Connection, new: WriteEvent) -> bool:
    """Return whether one of our own events is recorded."""
    return bool(_known_identities(connection, OURS, [new]))


def numbered(connection: sa.Connection, sequences: Collection[int]) -> tuple[Recorded, ...]:
    """Return the events with these numbers in the ledger's log."""
    key_table = key_tables.rows(connection, ("sequence",), [[str(each)] for each in sequences])
    chosen = sa.select(sa.cast(key_table.c.sequence, sa.BigInteger))
    rows = connection.execute(sa.select(event).where(event.c.sequence.in_(chosen))).mappings()
    return tuple(recorded_of(row) for row in rows)


def since(connection: sa.Connection, positions: Mapping[Partition, int]) -> dict[Partition, list[int]]:
    """Return for each table partition the numbers of its events from the given number on, in order."""
    key_table = key_tables.updates(
        connection, ((partition, str(first)) for partition, first in positions.items()), "first"
    )
    condition = (event.c.feed == key_table.c.feed) & (event.c.partition == key_table.c.partition)
    condition &= event.c.sequence >= sa.cast(key_table.c.first, sa.BigInteger)
    numbers_by_partition: dict[Partition, list[int]] = {}
    query = (
        sa.select(event.c.feed, event.c.partition, event.c.sequence)
        .join(key_table, condition)
        .order_by(event.c.sequence)
    )
    for feed, key, number in connection.execute(query):
        numbers_by_partition.setdefault(Partition(Feed.parse(feed), key), []).append(number)
    return numbers_by_partition


def our_events(connection: sa.Connection, sequence: int, limit: int) -> tuple[Recorded, ...]:
    """Return our own events after a number, in order."""
    condition = (event.c.source == OURS) & (event.c.sequence > sequence)
    rows = connection.execute(sa.select(event).where(condition).order_by(event.c.sequence).limit(limit)).mappings()
    return tuple(recorded_of(row) for row in rows)


def last_operation(connection: sa.Connection, new: WriteEvent) -> Operation | None:
    """Return the operation of our newest event with the table, partition and marker of an event; None if none is."""
    key = {
        "source": OURS,
        "feed": str(new.partition.feed),
        "partition": new.partition.key,
        "marker": encode(new.marker),
    }
    query = sa.select(event.c.operation).filter_by(**key).order_by(event.c.sequence.desc()).limit(1)
    operation = connection.execute(query).scalar()
    return Operation(operation) if operation else None


def published_copies(connection: sa.Connection, sequence: int, limit: int) -> tuple[Recorded, ...]:
    """Return the events after a number about updates that were published in data centers, in order."""
    is_of_copy = event.c.context.contains(f'"{REPLICA_OF}": ') & ~event.c.context.contains(f'"{WITHDRAWN}": true')
    condition = (event.c.source == OURS) & (event.c.sequence > sequence) & is_of_copy
    rows = connection.execute(sa.select(event).where(condition).order_by(event.c.sequence).limit(limit)).mappings()
    return tuple(recorded_of(row) for row in rows)


def newest(connection: sa.Connection, limit: int, table: Feed | None = None) -> tuple[Recorded, ...]:
    """Return the newest events of one table or of all, newest first."""
    of_table = event.c.feed == str(table) if table else sa.true()
    query = sa.select(event).where(of_table).order_by(event.c.sequence.desc()).limit(limit)
    return tuple(recorded_of(row) for row in connection.execute(query).mappings())


def newest_of(connection: sa.Connection, tables: Iterable[Feed]) -> dict[Feed, Recorded]:
    """Return the newest event of each table with events. Cost: one index lookup for each table."""
    rows = connection.execute(
        _newest_of(connection.dialect.name), key_tables.row_parameter([[str(table)] for table in tables])
    )
    return {each.partition.feed: each for each in map(recorded_of, rows.mappings())}


@cache
def _newest_of(dialect: str) -> sa.Select[Any]:
    key_table, history = key_tables.table(dialect, ("feed",)), event.alias()
    last = sa.select(sa.func.max(history.c.sequence)).where(history.c.feed == key_table.c.feed).correlate(key_table)
    return sa.select(event).join(key_table, event.c.sequence == last.scalar_subquery())
