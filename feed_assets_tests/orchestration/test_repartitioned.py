"""Partitions that a declaration adds or moves are decided about, although what they are made of was there before."""

import dagster as dg

from feed_assets.core.feeds import Feed
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, harness, outcomes, raw_feed, rows, sums_of

ONE = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-02")
TWO = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-03")
HOURS = dg.HourlyPartitionsDefinition("2020-01-01-00:00", end_date="2020-01-02-00:00")


def world(of_feed, of_dataset):
    raw = raw_feed(partitions_def=of_feed)
    return harness(raw, sums_of(raw, partitions_def=of_dataset))


def listed():
    with open_ledger(settings().ledger).read() as connection:
        return [each.partition.key for each in due.listed(connection, Feed.parse(SUMS))]


def test_a_dataset_with_more_partitions_than_before_builds_them():
    before = world(TWO, ONE)
    before.drop(RAW, DAY, rows(1))
    before.drop(RAW, NEXT_DAY, rows(2))
    assert outcomes(before.run_until_idle()) == [("sums", DAY, True)]
    assert outcomes(world(TWO, TWO).run_until_idle()) == [("sums", NEXT_DAY, True)]
    assert world(TWO, TWO).run_until_idle() == []


def test_a_feed_and_its_dataset_with_more_partitions_than_before_build_what_lay_there_unread():
    before = world(ONE, ONE)
    before.drop(RAW, DAY, rows(1))
    before.drop(RAW, NEXT_DAY, rows(2))
    assert outcomes(before.run_until_idle()) == [("sums", DAY, True)]
    assert outcomes(world(TWO, TWO).run_until_idle()) == [("sums", NEXT_DAY, True)]


def test_what_was_partitioned_otherwise_leaves_the_list():
    before = world(TWO, HOURS)
    before.drop(RAW, DAY, rows(1))
    before.ask()
    assert len(listed()) == 24
    after = world(TWO, TWO)
    assert outcomes(after.run_until_idle()) == [("sums", DAY, True)]
    assert listed() == []


def test_the_same_partitions_are_decided_about_once():
    before = world(TWO, TWO)
    before.drop(RAW, DAY, rows(1))
    before.run_until_idle()
    world(TWO, TWO).ask()
    assert listed() == []
