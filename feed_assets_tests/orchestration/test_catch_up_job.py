"""Days of hours arrive at once: few runs build them, each hour has its own update, and bad ones are retried alone."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

import dagster as dg
import pytest

from feed_assets import Input, Within, feed_asset
from feed_assets.core import attempts
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import RAW, SUMS, UNLUCKY, harness, raw_feed, sums_of

NO_TIME = timedelta(0)
BROKEN, REFUSED, TOO_MUCH = "2020-01-02-06:00", "2020-01-04-10:00", 101
"""An hour whose function fails, and one that its audit refuses."""


def daily(sums, days):
    @feed_asset("t/daily/v1.0", partitions_def=days, inputs={"sums": Input(sums, mapping=Within())})
    def made(sums):
        """Return the hours of a day."""
        return sums.drop("_partition")

    return made


class World:
    """Hourly sums of a raw feed, and a daily dataset made of them."""

    def __init__(self, end: str) -> None:
        hours = dg.HourlyPartitionsDefinition("2020-01-01-00:00", end_date=f"{end}-00:00")
        days = dg.DailyPartitionsDefinition("2020-01-01", end_date=end)
        self.hours, self.all_days = hours.get_partition_keys(), days.get_partition_keys()
        raw = raw_feed(partitions_def=hours)
        sums = sums_of(raw, partitions_def=hours)
        self.harness, self.seen = harness(raw, sums, daily(sums, days)), set[str]()

    def arrive(self, numbers: Mapping[str, int]) -> None:
        """Drop an update of each of these hours, and record it in the ledger at once."""
        ledger = open_ledger(settings().ledger)
        for hour, number in numbers.items():
            self.harness.drop(RAW, hour, f"k,n\n{hour},{number}\n")
            sync(self.harness.board, ledger, Partition(Feed.parse(RAW), hour), self.harness.now())

    def tick(self, after: timedelta = NO_TIME) -> tuple[dict[str, int], set[str | None]]:
        """Tick, and return the number of Dagster runs for each dataset and the partitions that failed."""
        self.harness.now = lambda: utc_now() + after
        ended = self.harness.tick()
        runs = {each.run_id: each for each in self.harness.instance.get_runs() if each.run_id not in self.seen}
        self.seen |= {*runs}
        names = Counter(min(each.asset_selection).to_user_string() for each in runs.values())
        return dict(names), {each.partition for each in ended if not each.succeeded}

    def newest(self) -> dict[str, str]:
        """Return the newest updates of the built hours."""
        found = {hour: self.harness.newest(SUMS, hour) for hour in self.hours}
        return {hour: update for hour, update in found.items() if update}

    def days(self) -> Counter[str]:
        """Return how often each day was built."""
        return Counter(each.partition or "" for each in self.harness.reported("t/daily"))


def each_hour_is_its_own(world: World, updates: Mapping[str, str]) -> None:
    """Assert that Dagster has for each hour its update, a data version of its own, and its check results."""
    told = {each.partition: each for each in reversed(world.harness.reported("t/sums"))}
    assert {hour: each.update_id for hour, each in told.items()} == updates
    assert len({each.version for each in told.values()}) == len(updates)
    for hour in updates:
        assert world.harness.checks("t/sums", hour) == {"not_empty": True, "within_n": True}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {hour for hour, update in after.items() if update != before.get(hour)}


@pytest.fixture
def paused(monkeypatch):
    """Have each next attempt wait for the longest pause, however slow this machine is."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", attempts.LONGEST_PAUSE)


@pytest.mark.parametrize(("end", "count"), [("2020-01-06", 6), pytest.param("2020-01-08", 9, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("paused")
def test_days_of_hours_need_few_runs_and_bad_hours_are_retried_alone(end, count):
    world = World(end)
    for number, is_late in ((1, False), (2, True)):
        before, days = world.newest(), world.days()
        world.arrive({**dict.fromkeys(world.hours, number), BROKEN: UNLUCKY, REFUSED: TOO_MUCH})
        assert world.tick() == ({"t/sums": count}, {BROKEN, REFUSED})
        taken = world.newest()
        assert changed(before, taken) == {*world.hours} - {BROKEN, REFUSED}
        assert world.harness.checks("t/sums", REFUSED)["within_n"] is False

        # A day waits for the refused hour and for an absent one; once it has them, it is built once more.
        waits = {REFUSED[:10], *([] if is_late else [BROKEN[:10]])}
        assert world.tick() == ({"t/daily": 2 if is_late else 3}, set())
        assert world.days() - days == Counter({*world.all_days} - waits)
        assert world.tick() == ({}, set())
        assert world.tick(attempts.LONGEST_PAUSE) == ({"t/sums": 1}, {BROKEN})
        assert world.newest() == taken

        world.arrive({BROKEN: number, REFUSED: number})
        assert world.tick() == ({"t/sums": 2}, set())
        assert changed(taken, world.newest()) == {BROKEN, REFUSED}
        each_hour_is_its_own(world, world.newest())
        assert world.tick() == ({"t/daily": 2}, set())
        assert world.days() - days == Counter([*world.all_days, *([BROKEN[:10]] if is_late else [])])
        assert world.tick() == ({}, set())
