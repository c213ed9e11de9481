"""Facts about the windows that outputs wait for. Each function runs a fixed number of statements for all windows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.events import decode, is_moment
from feed_assets.core.facts import KnownWindow
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import NAMED, TableInput, UpdateInput, WindowInput
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need, State
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger import event_store, key_tables, log, subscriptions, update_counts, updates
from feed_assets.ledger.states import window_policies
from feed_assets.ledger.states.watermarks import Line, watermarks
from feed_assets.ledger.states.window_explanations import whys
from feed_assets.ledger.states.window_queries import stored_windows
from feed_assets.ledger.states.window_rows import WindowRow
from feed_assets.ledger.tables import change, due, update


def reporting(connection: sa.Connection, inputs: Iterable[WindowInput]) -> frozenset[Feed]:
    """Return the feeds whose producer itself reports how many records were ingested.

    Search only feeds whose records may be counted by their readers.
    """
    feeds = {each.span.dataset for each in inputs if each.counts_itself or each.counters}
    return frozenset(update_counts.reported_by_others(connection, feeds) if feeds else ())


def known_windows(connection: sa.Connection, inputs: Iterable[WindowInput]) -> dict[Partition, KnownWindow]:
    """Return the ledger's state of all windows that the inputs need.

    For the first incomplete and the first bad windows of each input, add the reason.
    """
    return known_at(connection, [[at for path in each.windows if (at := address_of(path))] for each in inputs])


def known_at(connection: sa.Connection, groups: Collection[Sequence[WindowAddress]]) -> dict[Partition, KnownWindow]:
    """Return the ledger's state of windows that are given in groups.

    For the first incomplete and the first bad windows of each group, add the reason.
    """
    row_by_address = stored_windows(connection, {at for each in groups for at in each}) if groups else {}
    named = {at: row_by_address[at] for each in groups for at in _named(row_by_address, each)}
    tracked = window_policies.tracked(connection, {at.dataset for at in named}) if named else {}
    reasons = whys(connection, named.values(), tracked)
    return {
        at.partition: KnownWindow(
            row.state,
            row.bad or reasons.get(at, ""),
            row.records,
            changed=row.changed or 0,
            held=row.held is not None,
            stale=row.stale,
            data=row.told or 0,
            failed=row.issue,
        )
        for at, row in row_by_address.items()
    }


def _named(row_by_address: Mapping[WindowAddress, WindowRow], windows: Iterable[WindowAddress]) -> list[WindowAddress]:
    """Return the windows that a verdict's reason may name: the first incomplete windows, and the first bad windows."""
    states = [(at, row_by_address[at].state) for at in windows if at in row_by_address]
    is_open = [at for at, state in states if state not in DONE and state is not WindowState.INVALID]
    is_bad = [at for at, state in states if state in (WindowState.INVALID, WindowState.COMPLETE_WITH_ISSUE)]
    return is_open[:NAMED] + is_bad[:NAMED]


def uncounted(connection: sa.Connection, needs: Iterable[Need], newest: Iterable[updates.UpdateRow]) -> set[Partition]:
    """Return the partitions whose newest updates must be counted in windows, but are not counted yet."""
    counted = {at for need in needs for each in need.windows for at in each.counted}
    rows = [row for row in newest if row.partition in counted or row.partition.parent in counted]
    positions = subscriptions.positions(connection, [update_counts.COUNTER]) if rows else {}
    late = [
        row.partition
        for row in rows
        if row.changed > positions.get((update_counts.COUNTER, str(row.partition.feed)), 0)
    ]
    return {at for partition in late for at in (partition, partition.parent) if at in counted}


def counted_by_nobody(
    connection: sa.Connection, inputs: Iterable[WindowInput], newest: Iterable[updates.UpdateRow]
) -> set[Partition]:
    """Return the partitions whose newest updates no run has counted.

    Search only feeds whose records are counted by their readers.
    """
    counted = {at for each in inputs if each.counts_itself or each.counters for at in each.counted}
    rows = [row for row in newest if row.partition in counted or row.partition.parent in counted]
    if not rows:
        return set()
    key_table = key_tables.updates(connection, ((row.partition, row.id) for row in rows))
    query = sa.select(update.c.feed, update.c.partition).join(key_table, key_tables.same_keys(update, key_table))
    uncounted_keys = connection.execute(query.where(update.c.windows.is_(None)))
    lacking = {Partition(Feed.parse(feed), key) for feed, key in uncounted_keys}
    named = {at for each in rows if each.partition in lacking for at in (each.partition, each.partition.parent) if at}
    return named & counted


def counting(connection: sa.Connection, inputs: Iterable[WindowInput]) -> set[Partition]:
    """Return the due outputs whose runs count feeds, except outputs that wait for a person or skip late data."""
    counters = {at for each in inputs for at in each.counters}
    if not counters:
        return set()
    key_table = key_tables.partitions(connection, counters)
    ends = due.c.state.in_([State.WAITS_FOR_A_PERSON.value, State.SKIPS_LATE_DATA.value])
    goes_on = ~sa.func.coalesce(ends, sa.false())
    query = sa.select(due.c.feed, due.c.partition).join(key_table, key_tables.same_keys(due, key_table)).where(goes_on)
    return {Partition(Feed.parse(feed), key) for feed, key in connection.execute(query)}


def late_since(
    connection: sa.Connection, consumed: Mapping[Partition, Iterable[Pin]]
) -> dict[Partition, dict[Partition, datetime]]:
    """Return when each window that was read became complete for the first time after the read, by output and window."""
    readers: dict[tuple[str, str, str], list[Partition]] = {}
    for output, pins in consumed.items():
        for pin in pins:
            if address_of(pin.partition):
                readers.setdefault((str(pin.partition.feed), pin.partition.key, pin.update_id), []).append(output)
    if not readers:
        return {}
    key_table = key_tables.rows(connection, ("feed", "partition", "position"), readers)
    is_later = (
        (change.c.feed == key_table.c.feed)
        & (change.c.partition == key_table.c.partition)
        & (change.c.kind == log.WINDOW)
    )
    is_later &= change.c.sequence > sa.cast(key_table.c.position, sa.BigInteger)
    names = [key_table.c[name] for name in ("feed", "partition", "position")]
    query = (
        sa.select(*names, sa.func.min(change.c.at).label("at"))
        .join(key_table, is_later)
        .where(change.c.after.in_([*DONE]))
    )
    times_by_output: dict[Partition, dict[Partition, datetime]] = {}
    for row in connection.execute(query.group_by(*names)):
        window = Partition(Feed.parse(row.feed), row.partition)
        for output in readers[row.feed, row.partition, row.position]:
            times_by_output.setdefault(output, {})[window] = row.at
    return times_by_output


def reached(
    connection: sa.Connection, needs: Iterable[Need], newest: Mapping[Partition, Any]
) -> dict[Partition, datetime]:
    """Return for inputs with `beyond` the time that their data reach: a watermark, last event time, or last marker."""
    waited = [each for need in needs for each in need.inputs if isinstance(each, UpdateInput) and each.beyond]
    if not waited:
        return {}
    times = _last_times(connection, [newest[each.partition] for each in waited if each.partition in newest])
    for at in {each.partition for each in waited if isinstance(each, TableInput)}:
        marker = event_store.last_marker(connection, at)
        times |= {at: moment} if marker and is_moment(marker) and isinstance(moment := decode(marker), datetime) else {}
    return times | _watermarks(connection, waited)


def _last_times(connection: sa.Connection, rows: Iterable[updates.UpdateRow]) -> dict[Partition, datetime]:
    key_table = key_tables.updates(connection, ((row.partition, row.id) for row in rows))
    query = sa.select(update.c.feed, update.c.partition, update.c.last).join(
        key_table, key_tables.same_keys(update, key_table)
    )
    last_times = connection.execute(query.where(update.c.last.is_not(None)))
    return {Partition(Feed.parse(feed), key): last for feed, key, last in last_times}


def _watermarks(connection: sa.Connection, waited: Iterable[UpdateInput]) -> dict[Partition, datetime]:
    lines: dict[Partition, Line] = {
        each.partition: (each.partition.feed, each.beyond.sub_partition, each.beyond.grain)
        for each in waited
        if each.beyond and each.beyond.grain
    }
    known_marks = watermarks(connection, lines.values()) if lines else {}
    marks = {at: known_marks[line].contiguous for at, line in lines.items() if line in known_marks}
    return {at: mark for at, mark in marks.items() if mark}
