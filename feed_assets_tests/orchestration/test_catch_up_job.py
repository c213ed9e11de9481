"""Days of hours arrive at once: few runs take them, each hour is its own, and a bad one is tried again alone."""

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
"""An hour that the function fails for, and one that its audit refuses."""


def daily(sums, days):
    @feed_asset("t/daily/v1.0", partitions_def=days, inputs={"sums": Input(sums, mapping=Within())})
    def made(sums):
        """The hours of a day."""
        return sums.drop("_partition")

    return made


class World:
    """What the hours of a raw feed are summed to, and what is made of these by the day."""

    def __init__(self, end: str) -> None:
        hours = dg.HourlyPartitionsDefinition("2020-01-01-00:00", end_date=f"{end}-00:00")
        days = dg.DailyPartitionsDefinition("2020-01-01", end_date=end)
        self.hours, self.all_days = hours.get_partition_keys(), days.get_partition_keys()
        raw = raw_feed(partitions_def=hours)
        sums = sums_of(raw, partitions_def=hours)
        self.harness, self.seen = harness(raw, sums, daily(sums, days)), set[str]()

    def arrive(self, numbers: Mapping[str, int]) -> None:
        """An update of each of these hours comes by intake: the ledger knows of it at once."""
        ledger = open_ledger(settings().ledger)
        for hour, number in numbers.items():
            self.harness.drop(RAW, hour, f"k,n\n{hour},{number}\n")
            sync(self.harness.board, ledger, Partition(Feed.parse(RAW), hour), self.harness.now())

    def tick(self, after: timedelta = NO_TIME) -> tuple[dict[str, int], set[str | None]]:
        """How many runs of Dagster each dataset has in a tick, and which of their partitions were not built."""
        self.harness.now = lambda: utc_now() + after
        ended = self.harness.tick()
        runs = {each.run_id: each for each in self.harness.instance.get_runs() if each.run_id not in self.seen}
        self.seen |= {*runs}
        names = Counter(min(each.asset_selection).to_user_string() for each in runs.values())
        return dict(names), {each.partition for each in ended if not each.succeeded}

    def newest(self) -> dict[str, str]:
        """The updates of the hours that are built."""
        found = {hour: self.harness.newest(SUMS, hour) for hour in self.hours}
        return {hour: update for hour, update in found.items() if update}

    def days(self) -> Counter[str]:
        """How often each day was built."""
        return Counter(each.partition or "" for each in self.harness.reported("t/daily"))


def each_hour_is_its_own(world: World, updates: Mapping[str, str]) -> None:
    """Dagster knows of each the update, a data version that no other one has, and the results of its checks."""
    told = {each.partition: each for each in reversed(world.harness.reported("t/sums"))}
    assert {hour: each.update_id for hour, each in told.items()} == updates
    assert len({each.version for each in told.values()}) == len(updates)
    for hour in updates:
        assert world.harness.checks("t/sums", hour) == {"not_empty": True, "within_n": True}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {hour for hour, update in after.items() if update != before.get(hour)}


@pytest.fixture
def paused(monkeypatch):
    """The next attempt comes after the longest of pauses, however long this machine takes."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE", attempts.LONGEST_PAUSE)


@pytest.mark.parametrize(("end", "count"), [("2020-01-06", 6), pytest.param("2020-01-08", 9, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("paused")
def test_days_of_hours_are_taken_by_few_runs_and_what_is_bad_in_them_is_tried_again_alone(end, count):
    world = World(end)
    for number, is_late in ((1, False), (2, True)):
        before, days = world.newest(), world.days()
        world.arrive({**dict.fromkeys(world.hours, number), BROKEN: UNLUCKY, REFUSED: TOO_MUCH})
        assert world.tick() == ({"t/sums": count}, {BROKEN, REFUSED})
        taken = world.newest()
        assert changed(before, taken) == {*world.hours} - {BROKEN, REFUSED}
        assert world.harness.checks("t/sums", REFUSED)["within_n"] is False

        # A day waits for what was refused, and for what is not there; if it is, it is made of that once more.
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
