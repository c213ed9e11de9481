"""Feeds and partitions on the blackboard without a declaration: an alert with the expected names."""

import dagster as dg
import pytest

from feed_assets import foreign_feed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, subscriptions
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.undeclared import unknown_partitions
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.harness_queries import evaluate_orphans, unread_feeds
from feed_assets_tests.support.sum_projects import DAY, DAYS, RAW, SCHEMA, harness, raw_feed, rows, short, sums_of

pytestmark = pytest.mark.usefixtures("home")

TYPO = "t/rwa/v1.0"


def opened() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_a_mistyped_feed_is_an_alert_with_the_nearest_name_until_it_is_gone():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.drop(TYPO, DAY, rows(1))
    world.run_until_idle()
    assert opened() == {f"unknown:{TYPO}": f"{TYPO}: nobody declares this feed: is {RAW} meant?"}
    world.board.sweep("t/rwa")
    evaluate_orphans(world, hours=2)
    assert opened() == {}


def test_a_feed_that_another_code_location_reads_is_not_undeclared():
    world = short()
    world.drop(TYPO, DAY, rows(1))
    with open_ledger(settings().ledger).change() as connection:
        subscriptions.subscribe(connection, [("other/made/v1.0", TYPO)])
    assert unread_feeds(world) == {}


def test_an_invalid_partition_is_an_alert_and_one_before_the_start_is_not():
    campaigns = dg.MultiPartitionsDefinition(
        {"date": DAYS, "campaign": dg.StaticPartitionsDefinition(["men", "women"])}
    )
    raw = raw_feed(partitions_def=campaigns)
    world = harness(raw, sums_of(raw, partitions_def=campaigns))
    for key in (f"{DAY}/men", f"{DAY}/mne", "2019-12-31/men"):
        world.drop(RAW, key, rows(1))
    world.run_until_idle()
    expected = f"'{DAY}/mne' is no partition of {RAW}: expected men in place of 'mne'."
    assert unread_feeds(world) == {RAW: f"nobody reads {RAW} {DAY}/mne: {expected}"}


def test_unfinished_partitions_and_batches_of_known_ones_are_not_undeclared():
    days = dg.DailyPartitionsDefinition("2020-01-01")
    world = harness(foreign_feed(RAW, partitions_def=days, schema=SCHEMA, appendable=True))
    node = Graph(world.definitions.resolve_asset_graph()).node(Feed.parse(RAW))
    keys = [f"{DAY}/b1", f"{utc_now():%Y-%m-%d}/b1", "yesterday/b1", "yesterday/b2"]
    with dg.partition_loading_context(utc_now()):
        assert [*unknown_partitions(node, keys, utc_now())] == [Partition(Feed.parse(RAW), "yesterday")]
