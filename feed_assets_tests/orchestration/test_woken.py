"""Partitions that are woken late, by an old change or for a later time are still decided."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import ByEvents, event_table, feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import inbox, update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.pruned_updates import is_ours
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SCHEMA,
    SUMS,
    THIRD_DAY,
    given,
    harness,
    opened,
    raw_feed,
    rows,
)

pytestmark = pytest.mark.usefixtures("home")
OTHER = "t/other/v1.0"


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


def all_of(raw):
    @feed_asset(SUMS, inputs={"raw": raw})
    def sums(raw):
        """Read all partitions."""
        return raw

    return sums


def test_an_input_added_to_a_built_dataset_rebuilds_it():
    raw, other = raw_feed(), raw_feed(OTHER)

    def definitions(**inputs):
        made = feed_asset(SUMS, partitions_def=DAYS, inputs=inputs)
        function = (lambda raw, other: raw) if "other" in inputs else (lambda raw: raw)
        return [raw, other, made(function)]

    world = harness(*definitions(raw=raw))
    world.drop(OTHER, DAY, rows(5))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1))
    assert len(world.run_until_idle()) == 1
    more = with_automation(dg.Definitions(assets=definitions(raw=raw, other=other)))
    later = opened.enter_context(Harness(more, instance=world.instance, maker=PlainMaker(given)))
    assert len(later.run_until_idle()) == 1


def test_a_dynamic_partition_added_late_rebuilds_its_reader():
    regions = dg.DynamicPartitionsDefinition(name="regions")
    clock = [utc_now()]
    raw = raw_feed(partitions_def=regions)
    world = harness(raw, all_of(raw), now=lambda: clock[0])
    world.instance.add_dynamic_partitions("regions", ["a"])
    world.drop(RAW, "b", rows(2))
    world.run_until_idle()
    world.drop(RAW, "a", rows(1))
    assert len(world.run_until_idle()) == 1
    world.instance.add_dynamic_partitions("regions", ["b"])
    clock[0] += timedelta(minutes=11)
    assert len(world.run_until_idle()) == 1


def test_a_new_partition_reaches_readers_of_every_sensor(team):
    regions = dg.DynamicPartitionsDefinition(name="regions")
    raw = foreign_feed(RAW, partitions_def=regions, schema=SCHEMA)
    a = event_table("team/a", source=team.source, table_name="a")
    plain = feed_asset("t/plain/v1.0", inputs={"raw": raw})(lambda raw: raw)
    byev = feed_asset("t/byev/v1.0", inputs={"raw": raw, "a": a}, by_events=ByEvents())(lambda raw, a: raw)
    clock = [utc_now()]
    world = harness(raw, a, byev, plain, give=lambda _: Given([{"k": "1"}]), now=lambda: clock[0])
    team.publish(("a", "X", 1))
    world.drop(RAW, "b", rows(1))
    for _ in range(2):
        world.ask(name="feeds")
        world.ask(name="events_team")
        world.instance.add_dynamic_partitions("regions", ["b"])
        clock[0] += timedelta(minutes=11)
    with open_ledger(settings().ledger).read() as connection:
        waiting = inbox.waiting(connection, [Partition(Feed.parse("t/byev/v1.0"), "")])
    assert {str(event.partition.feed) for events in waiting.values() for event in events} == {"team/a", RAW}


def test_an_unfinished_partition_delays_no_due_one_and_is_built_at_its_end():
    clock = [datetime(2020, 1, 3, 12, tzinfo=UTC)]
    raw = foreign_feed(RAW, partitions_def=dg.DailyPartitionsDefinition("2020-01-01"), schema=SCHEMA)
    world = harness(raw, all_of(raw), now=lambda: clock[0])
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.ask()
    world.drop(RAW, THIRD_DAY, rows(1))
    assert len(world.run_until_idle()) == 1
    clock[0] += timedelta(days=1)
    assert len(world.run_until_idle()) == 1


def test_a_feed_of_a_rebuilt_ledger_counts_as_our_own():
    partition, ledger = Partition(Feed.parse(SUMS), ""), open_ledger(settings().ledger)
    with ledger.change() as connection:
        update_changes.insert(connection, partition, "20200101.000000", updates.REBUILT, updates.PUBLISHED, utc_now())
    with ledger.read() as connection:
        assert is_ours(connection, partition.feed)
