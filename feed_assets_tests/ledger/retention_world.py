"""A random history that runs twice: one ledger prunes old rows repeatedly, the other keeps all of them.

There are two event tables of another team, one published by hand, and two datasets by events; the second reads the
first. After each act both ledgers must give the same decisions and the same displays.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import EventOutOfOrder
from feed_assets.core.events import NO_NEW_DATA, Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import Consumer
from feed_assets.ledger import (
    announce,
    claims,
    event_store,
    inbox,
    subscriptions,
    update_changes,
    update_durations,
    updates,
)
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.old_rows import PrunedLog, prune_log
from feed_assets.ledger.tables import event, event_reject
from feed_assets_tests.support.ledger_records import deliver, due_of, waiting

START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = 30
A, B, HAND = map(Feed.parse, ("team/a", "team/b", "hand"))
MID, END = map(Feed.parse, ("mid/v1", "end/v1"))
CONSUMERS = {
    "mid": Consumer(MID, frozenset({A, B}), {"p": frozenset({A, B})}),
    "end": Consumer(END, frozenset({MID, B, HAND}), {"p": frozenset({MID, B})}),
}
SINK = "published to somewhere"
Act = tuple[Any, ...]


@dataclass
class World:
    """One ledger, and the past that acts refer to: equal in both worlds."""

    ledger: Ledger
    now: datetime = START
    told: list[WriteEvent] = field(default_factory=list[WriteEvent])
    by_hand: list[WriteEvent] = field(default_factory=list[WriteEvent])
    runs: int = 0
    stack: dict[Feed, list[tuple[str, str]]] = field(default_factory=dict[Feed, list[tuple[str, str]]])
    invalid: dict[Feed, str] = field(default_factory=dict[Feed, str])
    sunk: list[int] = field(default_factory=list[int])

    def do(self, act: Act) -> object:
        """Do one act, and return its result."""
        self.now += timedelta(minutes=1)
        name, *arguments = act
        return getattr(self, name)(*arguments)

    def wait(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    def tell(self, table: Feed, key: str, correlation: str, is_new: bool) -> object:
        last = max((each.marker for each in self.told if each.partition == Partition(table, key)), default=None)
        marker = self.now if is_new or last is None else last
        context = {} if is_new or last is None else {NO_NEW_DATA: True}
        self.told.append(WriteEvent(str(table), marker, self.now, correlation, Operation.UPSERT, key, context))
        return self._record(self.told[-1:])

    def tell_late(self, table: Feed, correlation: str, minutes: int) -> object:
        marker = self.now - timedelta(minutes=minutes)
        self.told.append(WriteEvent(str(table), marker, self.now, correlation, Operation.UPSERT))
        return self._record(self.told[-1:])

    def tell_all_again(self) -> object:
        return self._record(self.told)

    def _record(self, some: list[WriteEvent]) -> object:
        with self.ledger.change() as connection:
            return event_store.record(connection, "team", some, self.now, refuse_out_of_order=False)

    def publish(self, correlation: str) -> object:
        self.by_hand.append(WriteEvent(str(HAND), self.now, self.now, correlation, Operation.OVERWRITE))
        return self.publish_again(-1)

    def publish_again(self, which: int) -> object:
        if not self.by_hand:
            return None
        with self.ledger.change() as connection:
            return event_store.publish(connection, self.by_hand[which % len(self.by_hand)], self.now)

    def publish_before(self) -> object:
        """Publish out of order, by less than the age of anything that is removed."""
        new = WriteEvent(str(HAND), self.now - timedelta(minutes=1), self.now, "before", Operation.OVERWRITE)
        try:
            with self.ledger.change() as connection:
                return event_store.publish(connection, new, self.now)
        except EventOutOfOrder:
            return "refused"

    def fan_out(self, name: str) -> None:
        consumer = CONSUMERS[name]
        deliver(self.ledger, Partition(consumer.feed), consumer.tables, self.now)

    def run(self, name: str, code: str) -> object:
        """Consume what is due, as a build does."""
        consumer = CONSUMERS[name]
        output = Partition(consumer.feed)
        with self.ledger.read() as connection:
            due = due_of(connection, consumer).get("")
            newest = updates.newest(connection, [Partition(MID)]) if MID in consumer.tables else {}
        if due is None or not due.selected:
            return None
        self.runs += 1
        run, new = f"run {self.runs}", update_id(self.now)
        pins = [Pin(each.partition, each.end, each.version, start=each.start) for each in due.slices]
        pins = [each for each in pins if each.partition.feed != MID] + [row.pin for row in newest.values()]
        with self.ledger.change() as connection:
            claims.claim(connection, run, [(output, new)], pins, code, self.now, slices=due.slices)
        with self.ledger.change() as connection:
            update_changes.publish(connection, output, new, self.now, version=f"rows {self.runs}", size=1, files=1)
        self.stack.setdefault(consumer.feed, []).append((new, run))
        self.invalid.pop(consumer.feed, None)
        return due.slices

    def invalidate(self, name: str) -> None:
        """Invalidate the newest update, if no earlier one is invalid."""
        feed = CONSUMERS[name].feed
        if feed not in self.invalid and len(self.stack.get(feed, ())) > 1:
            new, _ = self.stack[feed].pop()
            self.invalid[feed] = new
            self._change(update_changes.change, Partition(feed), new, updates.INVALIDATED, self.now)

    def validate_again(self, name: str) -> None:
        feed = CONSUMERS[name].feed
        if new := self.invalid.pop(feed, None):
            self.stack[feed].append((new, ""))
            self._change(update_changes.publish, Partition(feed), new, self.now)

    def _change(self, what: Any, *arguments: Any) -> None:
        with self.ledger.change() as connection:
            what(connection, *arguments)

    def pass_on(self) -> object:
        """Forward what went through a dataset without new data, as `decide` does."""
        with self.ledger.read() as connection:
            rows = updates.newest(connection, [Partition(MID), Partition(END)])
            unchanged = {row: updates.consumed_by(connection, row.partition, row.id) for row in rows.values()}
            new = announce.to_pass_on(connection, unchanged, self.now)
        with self.ledger.change() as connection:
            return event_store.record(connection, event_store.OURS, new, self.now, refuse_out_of_order=False)

    def heal(self) -> object:
        with self.ledger.change() as connection:
            return announce.heal(connection, [MID, END], self.now)

    def sink(self) -> None:
        with self.ledger.read() as connection:
            found = event_store.our_events(connection, subscriptions.position(connection, SINK), 1000)
        self.sunk += [each.sequence for each in found]
        with self.ledger.write() as connection:
            subscriptions.advance(connection, SINK, found[-1].sequence if found else 0)

    def say(self) -> Iterator[object]:
        """Yield everything that is decided and shown."""
        yield self.sunk
        for consumer in CONSUMERS.values():
            yield waiting(self.ledger, consumer.feed)
        with self.ledger.read() as connection:
            for consumer in CONSUMERS.values():
                yield due_of(connection, consumer)
                yield inbox.markers(connection, consumer.feed)
                yield inbox.came_back(connection, Partition(consumer.feed))
            tables = (A, B, HAND, MID, END)
            for last in tables:
                yield [update_durations.durations(connection, first, last, update_durations.SHOWN) for first in tables]
                yield event_store.newest(connection, update_durations.SHOWN, last)
            yield [event_store.last_marker(connection, Partition(table, key)) for table in tables for key in ("", "k")]
            yield event_store.newest_of(connection, tables)
            newest = updates.newest(connection, [Partition(MID), Partition(END)])
            yield {at: announce.correlations(connection, "nobody", [row.pin]) for at, row in newest.items()}
            for at, row in newest.items():
                pins = updates.consumed_by(connection, at, row.id)
                yield announce.correlations(connection, "nobody", pins)
            yield connection.execute(sa.select(event_reject.c.raw)).scalars().all()

    def prune(self, *, apply: bool) -> PrunedLog:
        return prune_log(self.ledger, self.now, DAYS, DAYS, apply=apply)

    def events(self) -> int:
        """Return the number of events that are kept."""
        with self.ledger.read() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(event)) or 0


def acts(random: Random, number: int) -> Iterator[Act]:
    """Yield random acts: mostly updates that reach all tables, some that never do, over years."""
    names, hours = [*CONSUMERS], [1, 24, 72, 24 * 20, 24 * 40]
    for at in range(number):
        kind = random.random()
        correlation = f"c{at}"
        if kind < 0.5:
            yield "tell", A, "", correlation, True
            if random.random() < 0.95:
                yield "tell", B, "", correlation, True
            yield from (("fan_out", name) for name in names)
            yield "run", "mid", f"code {at // 20}"
            yield "fan_out", "end"
            yield "run", "end", f"code {at // 20}"
            yield ("sink",)
        elif kind < 0.7:
            yield "wait", random.choice(hours)
        else:
            yield random.choice(
                [
                    ("tell", random.choice([A, B]), random.choice(["", "k"]), correlation, random.random() < 0.7),
                    ("tell_late", random.choice([A, B]), correlation, random.randrange(1, 60)),
                    ("tell_all_again",),
                    ("publish", correlation),
                    ("publish_again", random.randrange(1000)),
                    ("publish_before",),
                    ("fan_out", random.choice(names)),
                    ("run", random.choice(names), f"code {at // 20}"),
                    ("invalidate", random.choice(names)),
                    ("validate_again", random.choice(names)),
                    ("pass_on",),
                    ("heal",),
                    ("sink",),
                ]
            )
