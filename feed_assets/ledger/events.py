"""Write events, ours and those read from sources: each is recorded once, in commit order, and never changed.

An event is a change of the log, and has its number: who reads on from a number misses nothing.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import EventOutOfOrder, InvalidEvent, InvalidName
from feed_assets.core.events import Marker, Operation, Recorded, Rejected, WriteEvent, check_order, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log, wanted
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import event, event_reject

OURS = ""
"""The source of our own events."""

OUT_OF_ORDER = "out of order"

_Key = tuple[str, str]


def publish(
    connection: sa.Connection, new: WriteEvent, now: datetime, updated_at: tuple[Marker, Marker] | None = None
) -> bool:
    """Record an event of ours; False if it is known: publishing again is harmless.

    `updated_at` is the range of its rows, both ends included. Raises EventOutOfOrder, InvalidEvent and InvalidName.
    """
    place, marker = new.place, encode(new.marker)
    if _is_known(connection, OURS, new):
        return False
    last = _last(connection, [(str(place.feed), place.key)]).get((str(place.feed), place.key))
    check_order(new, last, updated_at)
    _insert(connection, [_row(OURS, new, marker, last, None, now)])
    return True


def _insert(connection: sa.Connection, rows: list[dict[str, Any]]) -> None:
    changes = [_change(row) for row in rows]
    first = log.append(connection, changes)
    for number, row in enumerate(rows, first):
        row["sequence"] = number
    connection.execute(sa.insert(event), rows)


def _change(row: Mapping[str, Any]) -> Change:
    place = Partition(Feed.parse(row["feed"]), row["partition"])
    return Change(place, log.EVENT, row["marker"], row["at"], who=row["source"] or None)


def record(
    connection: sa.Connection, source: str, new: Sequence[WriteEvent], now: datetime, *, refuse_out_of_order: bool
) -> tuple[Rejected, ...]:
    """Record events in the order in which they were read; those that cannot be are kept with the reason, and returned.

    One whose marker comes before its table's last is refused, or recorded with a flag. What is known stays as it is.
    """
    rejected: list[Rejected] = []
    sound = [each for each in new if _is_sound(each, rejected)]
    last = _last(connection, {(each.table_name, each.partition_key) for each in sound})
    rows: list[dict[str, Any]] = []
    doubtful: list[WriteEvent] = []
    for each in sound:
        key, marker = (each.table_name, each.partition_key), encode(each.marker)
        before = last.get(key)
        if before is not None and marker <= before:
            doubtful.append(each)
            continue
        rows.append(_row(source, each, marker, before, None, now))
        last[key] = marker
    if rows:
        _insert(connection, rows)
    for each in doubtful:  # After the others: they may be repeats of these.
        _record_doubtful(connection, source, each, now, rejected, refuse=refuse_out_of_order)
    reject(connection, source, rejected, now)
    return tuple(rejected)


def _is_sound(new: WriteEvent, rejected: list[Rejected]) -> bool:
    try:
        check_order(new, None)
        _ = new.place, encode(new.event_marker)
    except (InvalidEvent, InvalidName) as error:
        rejected.append(Rejected(in_json(new), str(error)))
        return False
    return True


def _record_doubtful(
    connection: sa.Connection,
    source: str,
    new: WriteEvent,
    now: datetime,
    rejected: list[Rejected],
    *,
    refuse: bool,
) -> None:
    """An event that does not come last: known, without new data, or out of order."""
    if _is_known(connection, source, new):
        return
    key, marker = (new.table_name, new.partition_key), encode(new.marker)
    try:
        check_order(new, _last(connection, [key])[key])
    except EventOutOfOrder as error:
        if refuse:
            rejected.append(Rejected(in_json(new), str(error)))
            return
        previous, flag = _before(connection, key, marker), OUT_OF_ORDER
    except InvalidEvent as error:
        rejected.append(Rejected(in_json(new), str(error)))
        return
    else:
        previous, flag = marker, None
    _insert(connection, [_row(source, new, marker, previous, flag, now)])


def reject(connection: sa.Connection, source: str, rejected: Iterable[Rejected], now: datetime) -> None:
    """Keep what was read and is no event, with the reason; what is read again is kept once."""
    for each in rejected:
        digest = sha256(each.raw.encode()).hexdigest()[:32]
        same = (event_reject.c.source == source) & (event_reject.c.digest == digest)
        if connection.execute(sa.select(event_reject.c.digest).where(same)).first() is None:
            row = {"source": source, "digest": digest, "raw": each.raw, "reason": each.reason, "at": now}
            connection.execute(sa.insert(event_reject).values(row))


def rejects(connection: sa.Connection, limit: int) -> tuple[tuple[str, Rejected, datetime], ...]:
    """What was rejected of each source, the newest first."""
    rows = connection.execute(sa.select(event_reject).order_by(event_reject.c.at.desc()).limit(limit))
    return tuple((row.source, Rejected(row.raw, row.reason), row.at) for row in rows)


def in_json(new: WriteEvent) -> str:
    """An event as one line of JSON, with its fields by their names."""
    fields = {name: getattr(new, name) for name in WriteEvent.__annotations__}
    return json.dumps({**fields, "context": dict(new.context)}, default=str)


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


def _is_known(connection: sa.Connection, source: str, new: WriteEvent) -> bool:
    same = (event.c.feed == new.table_name) & (event.c.partition == new.partition_key)
    same &= (event.c.marker == encode(new.marker)) & (event.c.correlation == new.correlation_id)
    return connection.execute(sa.select(event.c.sequence).where(same, event.c.source == source)).first() is not None


def _last(connection: sa.Connection, keys: Collection[_Key]) -> dict[_Key, str]:
    """The last marker of each table's partition: one index seek for each."""
    asked = wanted.rows(connection, ("feed", "partition"), sorted(keys))
    last = sa.select(sa.func.max(event.c.marker)).where(wanted.same(event, asked)).scalar_subquery()
    rows = connection.execute(sa.select(asked.c.feed, asked.c.partition, last))
    return {(feed, partition): marker for feed, partition, marker in rows if marker is not None}


def _before(connection: sa.Connection, key: _Key, marker: str) -> str | None:
    mine = (event.c.feed == key[0]) & (event.c.partition == key[1]) & (event.c.marker < marker)
    return connection.execute(sa.select(sa.func.max(event.c.marker)).where(mine)).scalar()


def last_marker(connection: sa.Connection, place: Partition) -> str | None:
    """The last marker of a table's partition, None if it has no event."""
    key = (str(place.feed), place.key)
    return _last(connection, [key]).get(key)


def correlation(connection: sa.Connection, place: Partition, marker: str) -> str | None:
    """The correlation id of a table's event with this marker, the last one that has it."""
    mine = (event.c.feed == str(place.feed)) & (event.c.partition == place.key) & (event.c.marker == marker)
    query = sa.select(event.c.correlation).where(mine).order_by(event.c.sequence.desc()).limit(1)
    return connection.execute(query).scalar()


def has(connection: sa.Connection, place: Partition, correlation: str) -> bool:
    """Whether an update, by its correlation id, has reached a table's partition."""
    mine = (event.c.correlation == correlation) & (event.c.feed == str(place.feed)) & (event.c.partition == place.key)
    return connection.execute(sa.select(event.c.sequence).where(mine).limit(1)).first() is not None


def recorded_of(row: Mapping[Any, Any]) -> Recorded:
    """A selected row as a value."""
    place = Partition(Feed.parse(row["feed"]), row["partition"])
    named = {
        name: row[name] for name in ("sequence", "source", "marker", "previous", "start", "event_marker", "correlation")
    }
    operation, context = Operation(row["operation"]), json.loads(row["context"])
    return Recorded(place=place, operation=operation, context=context, flag=row["flag"], at=row["at"], **named)


def after(
    connection: sa.Connection, tables: Collection[Feed], sequence: int, upto: int, limit: int
) -> tuple[Recorded, ...]:
    """The events of some tables with numbers in `(sequence, upto]`, in order."""
    mine = event.c.feed.in_(sorted(map(str, tables))) & (event.c.sequence > sequence) & (event.c.sequence <= upto)
    rows = connection.execute(sa.select(event).where(mine).order_by(event.c.sequence).limit(limit)).mappings()
    return tuple(recorded_of(row) for row in rows)


def numbered(connection: sa.Connection, sequences: Collection[int]) -> tuple[Recorded, ...]:
    """The events with these numbers."""
    asked = wanted.rows(connection, ("sequence",), [[str(each)] for each in sequences])
    chosen = sa.select(sa.cast(asked.c.sequence, sa.BigInteger))
    rows = connection.execute(sa.select(event).where(event.c.sequence.in_(chosen))).mappings()
    return tuple(recorded_of(row) for row in rows)


def since(connection: sa.Connection, place: Partition, sequence: int) -> tuple[int, ...]:
    """The numbers of the events of a table's partition from a number on, in order."""
    mine = (event.c.feed == str(place.feed)) & (event.c.partition == place.key) & (event.c.sequence >= sequence)
    return tuple(connection.execute(sa.select(event.c.sequence).where(mine).order_by(event.c.sequence)).scalars())


def ours(connection: sa.Connection, sequence: int, limit: int) -> tuple[Recorded, ...]:
    """Our own events after a number, in order."""
    mine = (event.c.source == OURS) & (event.c.sequence > sequence)
    rows = connection.execute(sa.select(event).where(mine).order_by(event.c.sequence).limit(limit)).mappings()
    return tuple(recorded_of(row) for row in rows)


def newest(connection: sa.Connection, limit: int, table: Feed | None = None) -> tuple[Recorded, ...]:
    """The newest events, of one table or of all, the newest first."""
    query = sa.select(event).order_by(event.c.sequence.desc()).limit(limit)
    if table:
        query = query.where(event.c.feed == str(table))
    return tuple(recorded_of(row) for row in connection.execute(query).mappings())


def histories(
    connection: sa.Connection, correlations: Collection[str], upto: Mapping[Feed, int]
) -> dict[tuple[str, str], list[tuple[Feed, int]]]:
    """By correlation id and partition key the events of some tables, up to a number of each, in commit order."""
    found: dict[tuple[str, str], list[tuple[Feed, int]]] = {}
    asked = wanted.rows(connection, ("correlation",), [[each] for each in correlations])
    same = (event.c.correlation, event.c.partition, event.c.feed, event.c.sequence)
    mine = event.c.correlation.in_(sa.select(asked.c.correlation)) & event.c.feed.in_(sorted(map(str, upto)))
    tables = {str(table): (table, number) for table, number in upto.items()}
    for correlation, partition, feed, sequence in connection.execute(
        sa.select(*same).where(mine).order_by(event.c.sequence)
    ):
        table, last = tables[feed]
        if sequence <= last:
            found.setdefault((correlation, partition), []).append((table, sequence))
    return found
