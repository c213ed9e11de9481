"""Missing partitions found tick by tick equal those of the whole history, for random arrivals, losses and closures."""

import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from feed_assets import Cadence, EventSource, SqlTable, event_table, foreign_feed, with_automation
from feed_assets.core.cadence import tick_after
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.ledger import batch_partitions, closures, event_store, expected_cursor, update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.overdue import late_partitions
from feed_assets.settings import settings

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
START = datetime(2019, 10, 25, 3, 30, tzinfo=UTC)
"""A time two days before clocks change in Berlin."""

FEED = Feed.parse("web/raw/v1.0")
DAYS = dg.DailyPartitionsDefinition("2019-10-20", timezone="Europe/Berlin")
HOURS = dg.HourlyPartitionsDefinition("2019-10-20-00:00")
BY_KEY = dg.MultiPartitionsDefinition({"date": DAYS, "k": dg.StaticPartitionsDefinition(["a", "b"])})
SOURCE = EventSource("shop", (SqlTable("sqlite://", "events", "id"),))


def of(kind, partitions_def, cadence):
    if kind == "table":
        return event_table(str(FEED), source=SOURCE, partitions_def=partitions_def, cadence=cadence)
    appendable = kind == "appendable"
    return foreign_feed(
        str(FEED), partitions_def=partitions_def, schema="n int", cadence=cadence, appendable=appendable
    )


def windows(partitions_def):
    """Return start and end of each key of the definition, by plain counting."""
    if partitions_def is HOURS:
        starts = [datetime(2019, 10, 20, tzinfo=UTC) + number * HOUR for number in range(20 * 24)]
        return {f"{start:%Y-%m-%d-%H:%M}": (start, start + HOUR) for start in starts}
    days = [date(2019, 10, 20) + number * DAY for number in range(200)]
    midnights = [datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("Europe/Berlin")) for day in days]
    times = [each.astimezone(UTC) for each in midnights]
    keys = {f"{day}": (start, end) for day, start, end in zip(days, times, times[1:], strict=False)}
    return keys if partitions_def is DAYS else {f"{key}/{k}": time for key, time in keys.items() for k in "ab"}


class Life:
    """A feed with random acts, and everything that ever happened to it."""

    def __init__(self, seed, kind, partitions_def, cadence):
        self.random, self.kind, self.cadence = random.Random(seed), kind, cadence  # noqa: S311
        self.graph = Graph(
            with_automation(dg.Definitions(assets=[of(kind, partitions_def, cadence)])).resolve_asset_graph()
        )
        self.ledger, self.windows, self.now, self.number = (
            open_ledger(settings().ledger),
            windows(partitions_def),
            START,
            0,
        )
        self.declared, self.valid, self.closed = None, {}, set()
        self.unheard, self.heard = [], []
        self.pace = 1 if partitions_def is HOURS else 16

    def near(self):
        """Return a partition near now, mostly one that has ended."""
        near = [
            key for key, (start, end) in self.windows.items() if self.now - 4 * DAY < end and start < self.now + HOUR
        ]
        return self.random.choice(near)

    def arrive(self):
        key, self.number = self.near(), self.number + 1
        self.unheard.append(self.windows[key])
        with self.ledger.change() as connection:
            if self.kind == "table":
                event = WriteEvent(str(FEED), self.number, self.now, f"c{self.number}", Operation.UPSERT, key)
                assert not event_store.record(connection, "shop", [event], self.now, refuse_out_of_order=False)
                self.valid.setdefault(key, set()).add(None)
                return
            held = f"{key}/e{self.random.randrange(2)}" if self.kind == "appendable" else key
            at, name = Partition(FEED, held), update_id(START + timedelta(seconds=self.number))
            if self.kind == "appendable":
                batch_partitions.join(connection, at)
            update_changes.insert(connection, at, name, updates.REBUILT, updates.PUBLISHED, self.now)
            self.valid.setdefault(key, set()).add((held, name))

    def lose(self):
        some = [(key, each) for key, mine in self.valid.items() for each in mine if each]
        if not some:
            return
        key, gone = self.random.choice(sorted(some))
        with self.ledger.change() as connection:
            update_changes.change(
                connection, Partition(FEED, gone[0]), gone[1], updates.INVALIDATED, self.now, reason="gone"
            )
        self.valid[key].discard(gone)

    def close(self):
        key = self.near()
        closures.close(self.ledger, [Partition(FEED, key)], "it never comes", "ann", self.now)
        self.closed.add(key)

    def reopen(self):
        if self.closed:
            key = self.random.choice(sorted(self.closed))
            closures.reopen(self.ledger, [Partition(FEED, key)], "it does", "ann", self.now)
            self.closed.discard(key)

    def wait(self):
        self.now += timedelta(minutes=self.random.choice([1, 10, 30, 60, 180])) * self.pace

    def look(self):
        self.declared = self.declared or self.now
        self.heard += [(*each, self.now) for each in self.unheard] if self.heard_from else []
        self.unheard, self.heard_from = [], True
        told = late_partitions(self.graph, self.ledger, self.now)
        with self.ledger.read() as connection:
            known = expected_cursor.last_results(connection, [FEED])[FEED].missing
        missing = self.by_the_whole_history()
        assert known.keys() == missing.keys(), self.now
        assert self.cadence.cron is None or dict(known) == missing, self.now
        assert bool(told) == bool(missing)
        return bool(missing)

    heard_from = False
    """Mark of a first look. Arrivals before it do not count."""

    def by_the_whole_history(self):
        rule = self.by_ticks if self.cadence.cron else self.by_later_ones
        due = {key: since for key, time in self.windows.items() if (since := rule(*time))}
        return {key: since for key, since in due.items() if not self.valid.get(key) and key not in self.closed}

    def by_ticks(self, _, end):
        tick = tick_after(self.cadence.cron, self.cadence.timezone, end - timedelta(microseconds=1))
        return tick if self.declared <= tick <= self.now - self.cadence.tolerance else None

    def by_later_ones(self, start, end):
        mine = [each for each in self.heard if each[1] > self.declared]
        if not mine or start < mine[0][0]:
            return None
        later = [heard for first, _, heard in mine if first >= end and heard <= self.now - self.cadence.tolerance]
        return later[0] if later else None


SIX_IN_BERLIN = Cadence("0 6 * * *", 2 * HOUR, "Europe/Berlin")
WORLDS = {
    "days of Berlin, at six": (DAYS, SIX_IN_BERLIN),
    "days of Berlin and a key, at half past two": (BY_KEY, Cadence("30 2 * * *", HOUR, "Europe/Berlin")),
    "days of Berlin, by UTC": (DAYS, Cadence("30 22 * * *", timedelta())),
    "hours, at six": (HOURS, SIX_IN_BERLIN),
    "hours, at each": (HOURS, Cadence("0 * * * *", timedelta(minutes=90))),
    "days on weekdays": (DAYS, Cadence("0 6 * * 1-5")),
    "hours, none left out": (HOURS, Cadence(tolerance=2 * HOUR)),
    "days and a key, none left out": (BY_KEY, Cadence(tolerance=timedelta())),
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", ["feed", "appendable", "table"])
@pytest.mark.parametrize("named", WORLDS)
def test_missing_partitions_found_tick_by_tick_equal_those_of_the_whole_history(named, kind):
    acts, found = ["arrive"] * 6 + ["lose", "close", "reopen"] + ["wait"] * 5 + ["look"] * 5, 0
    life = Life(f"{named}|{kind}", kind, *WORLDS[named])
    life.look()
    for _ in range(250):
        found += bool(getattr(life, life.random.choice(acts))())
    assert found > 10
