"""Shortcuts that put records into a ledger as runs and readers do."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core import propagation
from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import Consumer, Due
from feed_assets.ledger import claims, inbox, log, quality, runs, update_changes, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.log import Change

SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
CLICKED = Partition(Feed.parse("ads/clicked/v1.0"), "2019-11-24/men")
EFFECT = Partition(Feed.parse("ads/effectiveness/v1.0"), "2019-11-24/men")
REJECTS = Partition(Feed.parse("ads/effectiveness_rejects/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def seen(partition: Partition, update_id: str, size: int = 10) -> Update:
    """Return an update of one file, as a reader finds it."""
    return Update(partition, update_id, (File(f"{partition.path}/{update_id}/part", size, "etag"),))


def sync(
    ledger: Ledger,
    partition: Partition,
    valid: Update | None,
    reasons: dict[str, str] | None = None,
    *,
    is_batch: bool = False,
) -> updates.UpdateRow | None:
    """Synchronize a partition with a reading of now."""
    with ledger.read() as connection:
        as_of = log.last(connection)
    return update_changes.sync(ledger, partition, valid, reasons or {}, NOW, as_of, is_batch=is_batch)


def new_run(run_id: str, output: Partition = EFFECT, started: datetime = NOW) -> runs.Run:
    """Return a run that starts."""
    return runs.Run(run_id, output, runs.RUNNING, "host:1:0.00", started)


def attempt(ledger: Ledger, run_id: str, state: str, output: Partition = EFFECT, started: datetime = NOW) -> None:
    """Record a run that started and ended."""
    runs.start(ledger, new_run(run_id, output, started))
    with ledger.change() as connection:
        runs.pinned(connection, run_id, f"pins of {run_id}")
        if state in (updates.PUBLISHED, runs.UNCHANGED):
            log.append(connection, [Change(output, log.UNCHANGED, run_id, started)])
        if state == updates.REFUSED:
            quality.report(connection, output, "audit", quality.FAILED, f"why {run_id} {state}", run_id, started)
        elif state in (updates.PUBLISHED, runs.UNCHANGED):
            quality.release(connection, [output], run_id, started)
        runs.end(connection, run_id, state, started + MINUTE, f"why {run_id} {state}")


def deliver(ledger: Ledger, output: Partition, tables: Iterable[Feed], now: datetime, **options: Any) -> bool:
    """Fan out the events of some tables to one output of a consumer by events."""
    edges = [(str(output.feed), str(table)) for table in tables]
    affected = Affected([(output, now)], takes_events=True)
    return fan_out(ledger, edges, lambda _consumer, _changed: affected, now, lambda: bool(options), **options)


def due_of(connection: sa.Connection, consumer: Consumer, keys: Collection[str] | None = None) -> dict[str, Due]:
    """Return the due events of a consumer by its partition, from its events alone."""
    every = [each.key for each in inbox.outputs(connection) if each.feed == consumer.feed] if keys is None else keys
    found = inbox.waiting(connection, [Partition(consumer.feed, key) for key in every])
    seen = inbox.seen_by(connection, [consumer], found)[consumer.feed]
    return {output.key: propagation.due(consumer, group, seen) for output, group in found.items()}


def waiting(ledger: Ledger, consumer: Feed) -> dict[str, tuple[Recorded, ...]]:
    """Return the events that a consumer has not consumed, by the key of its partition."""
    with ledger.read() as connection:
        mine = [each for each in inbox.outputs(connection) if each.feed == consumer]
        return {output.key: events for output, events in inbox.waiting(connection, mine).items()}


def claim(ledger: Ledger, run_id: str, *outputs: tuple[Partition, str], pins: tuple[Pin, ...] = ()) -> None:
    """Record the claims of a run."""
    with ledger.change() as connection:
        claims.claim(connection, run_id, outputs, pins, "code 1", NOW)


def publish(ledger: Ledger, run_id: str, partition: Partition, update_id: str, version: str = "rows") -> None:
    """Record that a claimed update was written and published."""
    with ledger.change() as connection:
        claims.stage(connection, seen(partition, update_id), version, records=3)
        update_changes.change(connection, partition, update_id, updates.PUBLISHED, NOW)


def row(ledger: Ledger, partition: Partition, update_id: str) -> updates.UpdateRow:
    """Return an update that the ledger must have."""
    with ledger.read() as connection:
        found = updates.find(connection, partition, update_id)
    assert found is not None
    return found


def newest(ledger: Ledger, partition: Partition) -> str | None:
    """Return the id of the newest published update."""
    with ledger.read() as connection:
        found = updates.newest(connection, [partition]).get(partition)
    return found.id if found else None


@contextmanager
def statements(ledger: Ledger) -> Iterator[list[tuple[str, object]]]:
    """Record the statements that the block executes, with their parameters."""
    executed: list[tuple[str, object]] = []

    def remember(_connection, _cursor, statement, parameters, _context, _many):
        if not statement.startswith(("BEGIN", "SET TRANSACTION")):
            executed.append((statement, parameters))

    sa.event.listen(ledger.engine, "before_cursor_execute", remember)
    yield executed
    sa.event.remove(ledger.engine, "before_cursor_execute", remember)


def scanned(steps: Iterable[str]) -> list[str]:
    """Return the steps of query plans that scan a whole table, except literal tables and small ones."""
    fine = ("CONSTANT", "given", "wanted", "subscription", "awaited")
    return [step for step in steps if step.startswith("SCAN") and not any(name in step for name in fine)]
