"""Feeds and events on a blackboard of others: read there under its name, never written or removed there."""

import json
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import EventFiles, EventSource, Pull, Retention, event_table, foreign_feed
from feed_assets.cli.feed import open_board as named_board
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.ledger import alerts, event_store, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services, utc_now
from feed_assets.runs.verify import verify_all
from feed_assets.settings import settings
from feed_assets.sources.event_rows import Columns
from feed_assets.testing import Harness, PlainMaker, rows_of
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, RAW, SCHEMA, SUMS, harness, rows, sums_of

THEIRS = "t/theirs/v1.0"


@pytest.fixture
def partner(world: Path, setting) -> Path:
    """Return the folder of the partner's blackboard, which the settings name."""
    (folder := world / "partner").mkdir()
    setting(blackboards=json.dumps({"partner": {"url": folder.as_uri()}}))
    return folder


def partner_feed(**options) -> dg.AssetSpec:
    return foreign_feed(THEIRS, partitions_def=DAYS, schema=SCHEMA, blackboard="partner", **options)


def harness_of_partner() -> Harness:
    spec = partner_feed()
    return harness(spec, sums_of(spec), give=PlainMaker().give)


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def open_names() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_a_partner_feed_is_read_on_its_blackboard_and_its_dataset_is_on_ours(partner):
    world = harness_of_partner()
    update_id = world.drop(THEIRS, DAY, rows(1))
    before = files_in(partner)
    assert [run.succeeded for run in world.run_until_idle()] == [True]
    assert files_in(partner) == before
    assert made_of(world, DAY)["raw"] == [f"{THEIRS}/{DAY}/{update_id}"]
    assert named_board("partner").url == partner.as_uri()
    with pytest.raises(Exception, match=r"there is no blackboard 'partne': FEED_ASSETS_BLACKBOARDS has partner"):
        named_board("partne")


def made_of(world: Harness, day: str) -> dict:
    (row,) = rows_of(world.board, read.require(read.latest(world.board, Partition(Feed.parse(SUMS), day))))
    return row


def test_updates_of_a_partner_feed_on_our_blackboard_are_not_read(partner):
    world = harness_of_partner()
    theirs_id = world.drop(THEIRS, DAY, rows(1))
    publish(open_board(settings()), Partition(Feed.parse(THEIRS), NEXT_DAY), {"part-1": b"k,n\n"}, utc_now())
    assert [run.partition for run in world.run_until_idle()] == [DAY]
    assert made_of(world, DAY)["raw"] == [f"{THEIRS}/{DAY}/{theirs_id}"]


def test_an_update_invalidated_on_the_partner_blackboard_is_noticed(partner):
    world = harness_of_partner()
    first = world.drop(THEIRS, DAY, rows(1))
    second = world.drop(THEIRS, DAY, rows(1, 2))
    world.run_until_idle()
    world.invalidate(THEIRS, DAY, second)
    world.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        newest = updates.newest(connection, [Partition(Feed.parse(THEIRS), DAY)])
    assert [row.id for row in newest.values()] == [first]


def test_an_unreachable_partner_blackboard_is_named_and_stops_no_other_feed(partner):
    spec, raw = partner_feed(), foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA)
    world = harness(spec, raw, sums_of(raw), give=PlainMaker().give)
    world.drop(RAW, DAY, rows(1))
    partner.rename(partner.with_name("gone"))
    assert [run.succeeded for run in world.run_until_idle()] == [True]
    (reason,) = [reason for name, reason in open_names().items() if name == f"failing:feeds:{THEIRS}"]
    assert "(the blackboard 'partner')" in reason


def test_a_tick_goes_on_if_all_foreign_feeds_are_on_an_unreachable_blackboard(partner):
    world = harness_of_partner()
    partner.rename(partner.with_name("gone"))
    world.run_until_idle()
    assert f"failing:feeds:{THEIRS}" in open_names()


def test_a_blackboard_missing_in_the_settings_is_an_alert(setting):
    setting(blackboards=json.dumps({"partner": {"url": "memory://"}}))
    world = harness_of_partner()
    setting(blackboards="{}")
    with pytest.raises(Exception, match="FEED_ASSETS_BLACKBOARDS has none"):
        world.drop(THEIRS, DAY, rows(1))
    world.run_until_idle()
    assert "there is no blackboard 'partner'" in open_names()[f"failing:feeds:{THEIRS}"]


def test_a_partner_feed_with_retention_or_intake_is_refused():
    with pytest.raises(InvalidDefinition, match="has a retention: expected one of the two, because nothing is written"):
        partner_feed(retention=Retention(keep=1))
    with pytest.raises(InvalidDefinition, match="has intake: expected one of the two"):
        partner_feed(intake=Pull("partner", "%Y-%m-%d/*"))


def test_partner_files_do_not_make_our_emptied_blackboard_look_right(partner):
    """Only files on our own blackboard prove that it is the right one."""
    world = harness_of_partner()
    world.drop(THEIRS, DAY, rows(1))
    world.run_until_idle()
    open_board(settings()).sweep(SUMS.split("/")[0])
    graph = Graph(world.definitions.resolve_asset_graph())
    services = Services.of(settings(), elsewhere=graph.elsewhere)
    assert verify_all(services, graph.own(), graph.by_feed).is_other_blackboard


def test_event_files_are_read_on_the_partner_blackboard(partner):
    columns = Columns()
    source = EventSource("shop", (EventFiles("events/shop", "csv", columns, blackboard="partner"),))
    world = harness(event_table("shop/orders", source=source, table_name="ORDERS"))
    (partner / "events" / "shop").mkdir(parents=True)
    names = "table_name,partition_key,marker,event_marker,correlation_id,write_operation,context\n"
    line = "ORDERS,,1,2024-01-01T00:00:00Z,c-1,UPSERT,{}\n"
    (partner / "events" / "shop" / "1.csv").write_text(names + line)
    world.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        assert [each.correlation for each in event_store.newest(connection, 10, None)] == ["c-1"]
