"""Event tables and their consumers as a state machine on a real ledger, under any interleaving and any kill.

The model records what each run consumed, and judges it by sets of tables; it uses none of the product's rules.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.events import NO_NEW_DATA, Operation, Recorded, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.plans import RunSpec
from feed_assets.core.propagation import Consumer
from feed_assets.core.slices import Slice
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import event_store, inbox, pauses, runs, subscriptions
from feed_assets.ledger.database import Ledger, get_cursor, put_cursors
from feed_assets.ledger.tables import cursor, metadata
from feed_assets.ledger.tables import inbox as left
from feed_assets.runs.build import build
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.reconcile import reconcile as finish_left
from feed_assets.runs.services import Services
from feed_assets.testing import PlainMaker
from feed_assets_tests.ledger.stepped import SteppedBuild
from feed_assets_tests.support.ledger_records import deliver, due_of, waiting

NOW = datetime(2024, 1, 1, tzinfo=UTC)
SOURCE, READ = "team", "read team/0"
TABLES = tuple(map(Feed.parse, "abcd"))
CORRELATIONS = "VWXYZ"
PIPELINES = [{"p": "ab", "q": "c"}, {"p": "abc"}, {"p": "a", "q": "bc"}, {"p": "ab", "q": "bc"}, {}]

tables = st.sampled_from(TABLES)
subsets = st.sets(tables, min_size=1).map(frozenset)
pipelines = st.sampled_from(PIPELINES).map(
    lambda found: {name: frozenset(map(Feed.parse, found[name])) for name in found}
)
WANTS = frozenset({"run_spec"})
PLACES = {str(table): [Partition(table), Partition(table, "k")] for table in TABLES}
operations = st.sampled_from([Operation.UPSERT, Operation.UPSERT, Operation.UPSERT, Operation.OVERWRITE])
whose = st.sampled_from(["early", "late"])


@dataclass
class Run:
    """A consuming run from its claim on; `events` are those that it has claimed."""

    build: SteppedBuild
    slices: tuple[Slice, ...]
    events: frozenset[int] = frozenset()
    is_dead: bool = False
    has_manifest: bool = False


@dataclass
class Reader:
    """A consumer with its requests, its one run, and everything that its published runs have consumed."""

    consumer: Consumer
    requests: list[tuple[tuple[Slice, ...], frozenset[int]]] = field(default_factory=list)
    run: Run | None = None
    is_paused: bool = False
    consumed: Counter[int] = field(default_factory=Counter)
    read: list[Slice] = field(default_factory=list)
    """Slices of published runs that are increments."""
    markers: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @property
    def output(self) -> Partition:
        return Partition(self.consumer.feed)


class EventMachine(RuleBasedStateMachine):
    """A driver of one ledger, which each example empties first."""

    ledger: Ledger

    def __init__(self) -> None:
        super().__init__()
        with self.ledger.write() as connection:
            for table in metadata.sorted_tables:
                connection.execute(sa.delete(table))
        self.published: list[WriteEvent] = []
        self.top: Counter[tuple[Feed, str]] = Counter()
        self.numbers = count(1)
        self.readers: dict[str, Reader] = {}
        self.recorded: dict[int, Recorded] = {}
        self.refuse = False
        self.board = Blackboard.open("memory://")

    @initialize(
        refuse=st.booleans(), wait=st.sampled_from(["any", "any", "all"]), skip=st.booleans(), merge=st.booleans()
    )
    def begin(self, refuse, wait, skip, merge) -> None:
        self.refuse = refuse
        options = {"wait_for": wait, "on_incomplete": "skip" if skip else "block", "merge": merge}
        named = {name: frozenset(map(Feed.parse, some)) for name, some in PIPELINES[0].items()}
        self.readers["early"] = Reader(Consumer(Feed.parse("early/v1"), frozenset(TABLES), named, **options))

    # Actions of other teams.

    @rule(
        table=tables,
        key=st.sampled_from(["", "", "k"]),
        correlation=st.sampled_from(CORRELATIONS),
        operation=operations,
    )
    def publish(self, table, key, correlation, operation) -> None:
        self.top[table, key] += 10
        self._tell(table, key, correlation, self.top[table, key], operation)

    @rule(table=tables, correlation=st.sampled_from(CORRELATIONS))
    def publish_no_new_data(self, table, correlation) -> None:
        self._tell(table, "", correlation, self.top[table, ""], Operation.UPSERT, {NO_NEW_DATA: True})

    @rule(table=tables, correlation=st.sampled_from(CORRELATIONS), back=st.integers(1, 25), operation=operations)
    def publish_out_of_order(self, table, correlation, back, operation) -> None:
        self._tell(table, "", correlation, max(0, self.top[table, ""] - back), operation)

    @rule(correlation=st.sampled_from(CORRELATIONS))
    def publish_to_all(self, correlation) -> None:
        for table in TABLES:
            self.publish(table, "", correlation, Operation.UPSERT)

    @rule()
    def publish_twice(self) -> None:
        self.published += self.published[-1:]

    def _tell(self, table, key, correlation, marker, operation, context=None) -> None:
        self.published.append(WriteEvent(str(table), marker, marker, correlation, operation, key, context or {}))

    # Actions of the sensors.

    @rule(limit=st.integers(1, 6), dies=st.sampled_from(["", "", "before", "within"]))
    def ingest(self, limit, dies) -> None:
        """Ingest as orchestration/event_tables.py does: events and position in one transaction."""
        with self.ledger.read() as connection:
            position = int(get_cursor(connection, READ) or 0)
        some = self.published[position : position + limit]
        if dies == "before":
            return
        with suppress(KeyboardInterrupt), self.ledger.change() as connection:
            event_store.record(connection, SOURCE, some, NOW, refuse_out_of_order=self.refuse)
            put_cursors(connection, {READ: str(position + len(some))})
            if dies:
                raise KeyboardInterrupt
        with self.ledger.read() as connection:
            found = event_store.after(connection, TABLES, max(self.recorded, default=0), 10**9, 10**9)
        self.recorded |= {each.sequence: each for each in found}

    @rule()
    def lose_the_position(self) -> None:
        with self.ledger.write() as connection:
            connection.execute(sa.delete(cursor).where(cursor.c.name == READ))

    @rule(name=whose, some=subsets, behind=st.integers(0, 4))
    def deliver(self, name, some, behind) -> None:
        if reader := self.readers.get(name):
            self._deliver(reader, some & reader.consumer.tables, limit=1 + behind)

    @rule(name=whose)
    def deliver_all(self, name) -> None:
        if reader := self.readers.get(name):
            assert self._deliver(reader, reader.consumer.tables)

    def _deliver(self, reader, tables, **options) -> bool:
        return deliver(self.ledger, reader.output, tables, NOW, **options)

    @rule(name=whose)
    def decide(self, name) -> None:
        reader = self.readers.get(name)
        due = self._due(reader) if reader and not reader.is_paused else None
        if reader and due and due.selected:
            waiting = self._waiting(reader)
            within = {each.sequence for each in waiting if any(_holds(piece, each) for piece in due.slices)}
            self._judge(reader, due, waiting, within)
            reader.requests.append((due.slices, frozenset(within)))

    def _due(self, reader):
        with self.ledger.read() as connection:
            return due_of(connection, reader.consumer).get("")

    # Actions of runs.

    @rule(name=whose, which=st.integers(0, 3), repeat=st.booleans())
    def run_begins(self, name, which, repeat) -> None:
        """Begin any request, even a stale or a repeated one; the run stops once it has claimed."""
        reader = self.readers.get(name)
        if reader is None or not reader.requests or (reader.run and not reader.run.is_dead):
            return
        self.reconcile(name)
        at = which % len(reader.requests)
        slices, decided = reader.requests[at] if repeat else reader.requests.pop(at)
        waiting = self._numbers(reader)
        run = Run(self._build(reader, slices), slices)
        if run.build.go("claimed in the ledger"):
            reader.run = run
            self._check_claim(reader, run, decided)
        else:
            reader.consumed.update(waiting - self._numbers(reader))  # It found nothing new to read.

    @rule(name=whose, repeat=st.booleans())
    def run_does_all(self, name, repeat) -> None:
        self.run_begins(name, 0, repeat)
        self.run_publishes(name)

    @rule(name=whose)
    def run_publishes(self, name) -> None:
        reader = self.readers.get(name)
        if reader and reader.run and not reader.run.is_dead:
            reader.run.build.go(None)
            self._published(reader, reader.run)

    @rule(name=whose, has_manifest=st.booleans())
    def run_dies(self, name, has_manifest) -> None:
        reader = self.readers.get(name)
        if reader and reader.run and not reader.run.is_dead:
            if has_manifest:
                reader.run.build.go(f"manifest of {reader.output.feed} written")
            reader.run.build.die()
            reader.run.is_dead, reader.run.has_manifest = True, has_manifest

    @rule(name=whose)
    def reconcile(self, name) -> None:
        reader = self.readers.get(name)
        if reader and reader.run and reader.run.is_dead:
            finish_left(self.services, output=reader.output)
            if reader.run.has_manifest:
                self._published(reader, reader.run)
            reader.run = None

    @rule(name=whose)
    def run_by_hand(self, name) -> None:
        if (reader := self.readers.get(name)) is None or reader.run:
            return
        before = self._waiting(reader)
        with suppress(NoValidUpdate):  # when no table has an event yet
            build(self._recipe(reader), reader.output, PLACES, self.services)
        assert self._waiting(reader) == before, "a run by hand consumed something"

    @property
    def services(self) -> Services:
        return Services(self.board, self.ledger, PlainMaker, lambda: NOW)

    def _recipe(self, reader) -> Recipe:
        sources = tuple(RecipeInput(str(table), table, is_table=True) for table in TABLES)
        return Recipe(reader.output.feed, sources, lambda **_: None, code_version=str(next(self.numbers)), wants=WANTS)

    def _build(self, reader, slices) -> SteppedBuild:
        run_spec = RunSpec({each.partition: each for each in slices}, consumes=True)
        recipe, output = self._recipe(reader), reader.output
        return SteppedBuild(
            self.services, output, lambda services: build(recipe, output, PLACES, services, run_spec=run_spec)
        )

    def _published(self, reader, run) -> None:
        reader.run = None
        reader.consumed.update(run.events)
        self._check_read_once(reader, run)

    def _numbers(self, reader) -> set[int]:
        return {each.sequence for each in self._waiting(reader)}

    # Actions of people.

    @rule(name=whose)
    def pause_or_resume(self, name) -> None:
        if reader := self.readers.get(name):
            reader.is_paused = not reader.is_paused
            feed = reader.consumer.feed
            if reader.is_paused:
                pauses.pause_consumer(self.ledger, feed, "why", None, NOW)
            else:
                pauses.resume(self.ledger, feed, NOW)

    @rule(name=whose, some=subsets, named=pipelines)
    def change_consumer(self, name, some, named) -> None:
        if reader := self.readers.get(name):
            reader.consumer = replace(reader.consumer, tables=some, pipelines=named)

    @rule()
    def come_late(self) -> None:
        early = self.readers["early"].consumer
        self.readers.setdefault("late", Reader(replace(early, feed=Feed.parse("late/v1"), on_incomplete="skip")))

    # Conditions that always hold.

    @invariant()
    def nothing_is_lost_and_nothing_is_consumed_twice(self) -> None:
        for reader in self.readers.values():
            waiting = {each.sequence for each in self._waiting(reader)}
            delivered = self._delivered(reader)
            assert waiting <= delivered.keys()
            assert all(times == 1 for times in reader.consumed.values()), f"consumed twice: {reader.consumed}"
            assert waiting.isdisjoint(reader.consumed), "consumed, and waits still"
            assert waiting | reader.consumed.keys() == delivered.keys(), "delivered and lost"

    @invariant()
    def markers_never_move_backwards(self) -> None:
        for reader in self.readers.values():
            with self.ledger.read() as connection:
                rows = inbox.markers(connection, reader.consumer.feed)
            found = {(row["input_feed"], row["input_partition"]): (row["marker"], row["event_marker"]) for row in rows}
            for partition, (marker, event_marker) in reader.markers.items():
                assert found[partition][0] >= marker
                assert found[partition][1] >= event_marker
            reader.markers = found

    def _waiting(self, reader) -> tuple[Recorded, ...]:
        return waiting(self.ledger, reader.consumer.feed).get("", ())

    def _delivered(self, reader) -> dict[int, Recorded]:
        with self.ledger.read() as connection:
            upto = {t: subscriptions.position(connection, str(reader.consumer.feed), str(t)) for t in TABLES}
        return {number: each for number, each in self.recorded.items() if number <= upto[each.partition.feed]}

    def _judge(self, reader, due, waiting, within) -> None:
        """Assert that everything decided is complete among the delivered events, by sets of tables."""
        delivered = self._delivered(reader)
        replaced = {s.partition for s in due.slices if Operation.OVERWRITE in s.operations}
        for each in waiting:
            if each.sequence in within and each.partition not in replaced and not _is_special(each):
                assert _is_complete(reader.consumer, each, delivered.values()), f"{each} is not complete"
        for taken in due.selected:
            assert {each.sequence for each in taken.events} <= within, "taken, and not in its slices"

    def _check_claim(self, reader, run, decided) -> None:
        with self.ledger.read() as connection:
            (mine,) = runs.running(connection, reader.output)
            mine = sa.select(left.c.sequence).where(left.c.run == mine.id, left.c.feed == str(reader.consumer.feed))
            run.events = frozenset(connection.execute(mine).scalars())
        replaced = {s.partition for s in run.slices if Operation.OVERWRITE in s.operations}
        for number in run.events - decided:
            each = self.recorded[number]
            assert each.partition in replaced or _is_special(each), f"{each} was claimed and not decided about"

    def _check_read_once(self, reader, run) -> None:
        """Assert that increments of published runs do not overlap: without late events, no row is read twice."""
        late = {self.recorded[number].partition for number in run.events if self.recorded[number].flag}
        for piece in run.slices:
            if Operation.OVERWRITE not in piece.operations and piece.start != piece.end and piece.partition not in late:
                assert not [each for each in reader.read if _overlap(each, piece)], f"{piece} was read before"
                reader.read.append(piece)

    def teardown(self) -> None:
        """Complete all correlation ids but one, and run until nothing is due: each complete update is consumed once."""
        try:
            self._to_the_end()
        finally:
            for reader in self.readers.values():
                if reader.run:
                    reader.run.build.die()

    def _to_the_end(self) -> None:
        if not self.readers:
            return
        for correlation in {each.correlation_id for each in self.published} - {CORRELATIONS[-1]}:
            for key in ("", "k"):
                for table in TABLES:
                    self.publish(table, key, correlation, Operation.UPSERT)
        self.ingest(len(self.published) + 1, "")
        self.ingest(len(self.published) + 1, "")
        for name, reader in self.readers.items():
            reader.is_paused = False
            self._until_idle(name, reader)
            self.nothing_is_lost_and_nothing_is_consumed_twice()
            self._judge_the_end(reader)

    def _until_idle(self, name, reader) -> None:
        self.run_publishes(name)
        self.deliver_all(name)
        for _ in range(2 * len(self.recorded) + len(reader.requests) + 9):
            if not reader.requests:
                self.decide(name)
            if not reader.requests:
                return
            self.run_does_all(name, False)
        raise AssertionError(f"{name} is not idle: {self._due(reader)}")

    def _judge_the_end(self, reader) -> None:
        due, who = self._due(reader), reader.consumer
        mine = [each for each in self._waiting(reader) if each.partition.feed in who.tables]
        delivered = self._delivered(reader)
        complete = [each for each in mine if _is_complete(who, each, delivered.values())]
        incomplete = [each for each in mine if each not in complete]
        reported = {event.sequence for each in (due.incomplete if due else ()) for event in each.events}
        assert {each.sequence for each in incomplete} == reported, "waits, and is not told as incomplete"
        if who.wait_for == "any" and who.on_incomplete == "skip":
            assert not complete, f"complete, and never taken: {complete}"
        if who.wait_for == "any" and complete:
            assert incomplete, f"blocked by nobody: {complete}"


def _is_special(event: Recorded) -> bool:
    """Return True if other events cover the event's rows too, or it covers none."""
    return event.flag is not None or NO_NEW_DATA in event.context


def _is_complete(who: Consumer, event: Recorded, delivered) -> bool:
    """Return True if the update of an event has reached all tables of a pipeline that contains its table."""
    same = sorted((each for each in delivered if _key(each) == _key(event)), key=lambda each: each.sequence)
    groups = [some & who.tables for some in who.pipelines.values() if event.partition.feed in some]
    return any(_has_reached(group, event, same) for group in groups) if groups else True


def _has_reached(group, event: Recorded, same) -> bool:
    """Return True if the event's pass through a pipeline has ended. Each pass of an id ends with its last table."""
    reached, is_in = set(), False
    for each in same:
        if each.partition.feed in group:
            reached.add(each.partition.feed)
            is_in |= each.sequence == event.sequence
            if reached == group and is_in:
                return True
            if reached == group:
                reached = set()
    return False


def _key(event: Recorded) -> tuple[str, str]:
    return event.correlation, event.partition.key


def _holds(piece: Slice, event: Recorded) -> bool:
    after = piece.start is None or (event.start is not None and event.start >= piece.start)
    return piece.partition == event.partition and after and event.marker <= piece.end


def _overlap(one: Slice, other: Slice) -> bool:
    return one.partition == other.partition and (one.start or "") < other.end and (other.start or "") < one.end
