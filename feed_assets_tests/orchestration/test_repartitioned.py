"""Partitions that a changed declaration adds or moves are decided, although their inputs were there before."""

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


def test_partitions_added_to_a_dataset_are_built():
    before = world(TWO, ONE)
    before.drop(RAW, DAY, rows(1))
    before.drop(RAW, NEXT_DAY, rows(2))
    assert outcomes(before.run_until_idle()) == [("sums", DAY, True)]
    assert outcomes(world(TWO, TWO).run_until_idle()) == [("sums", NEXT_DAY, True)]
    assert world(TWO, TWO).run_until_idle() == []


def test_partitions_added_to_a_feed_and_its_dataset_are_read_and_built():
    before = world(ONE, ONE)
    before.drop(RAW, DAY, rows(1))
    before.drop(RAW, NEXT_DAY, rows(2))
    assert outcomes(before.run_until_idle()) == [("sums", DAY, True)]
    assert outcomes(world(TWO, TWO).run_until_idle()) == [("sums", NEXT_DAY, True)]


def test_partitions_of_an_old_definition_leave_the_list_of_waiting_ones():
    before = world(TWO, HOURS)
    before.drop(RAW, DAY, rows(1))
    before.ask()
    assert len(listed()) == 24
    after = world(TWO, TWO)
    assert outcomes(after.run_until_idle()) == [("sums", DAY, True)]
    assert listed() == []


def test_unchanged_partitions_are_not_decided_again():
    before = world(TWO, TWO)
    before.drop(RAW, DAY, rows(1))
    before.run_until_idle()
    world(TWO, TWO).ask()
    assert listed() == []
