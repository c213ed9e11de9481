"""Expected partitions that are missing, tick by tick: a later partition hides none of them."""

import json
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Cadence, event_table, feed_asset, foreign_feed, with_automation
from feed_assets.cli import app
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.expected_partitions import MISSING_AT_MOST
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import Slots
from feed_assets.ledger import alerts, expected_cursor, update_changes, updates
from feed_assets.ledger.database import open_ledger, put_cursors
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.orchestration.ticks.overdue import late_partitions
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.harness_queries import check_results
from feed_assets_tests.support.statement_counter import counted_statements
from feed_assets_tests.support.sum_projects import SCHEMA, harness, rows

RAW, MADE = "web/raw/v1.0", "web/made/v1.0"
FEED = Feed.parse(RAW)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAYS, HOURS = dg.DailyPartitionsDefinition("2026-01-01"), dg.HourlyPartitionsDefinition("2016-01-01-00:00")
SIX, NO_HOLES = Cadence("0 6 * * *", HOUR), Cadence(tolerance=HOUR)
NOON = datetime(2026, 1, 3, 12, tzinfo=UTC)
"""Declaration time of the feeds in these tests: the first expected day is the third."""


def raw(partitions_def=DAYS, cadence=SIX, **options) -> dg.AssetSpec:
    return foreign_feed(RAW, partitions_def=partitions_def, schema=SCHEMA, cadence=cadence, **options)


def made(read, **options) -> dg.AssetsDefinition:
    @feed_asset(MADE, partitions_def=read.partitions_def, inputs={"raw": read}, **options)
    def made(raw):
        """Read one input."""
        return raw

    return made


feed = raw()
defs = with_automation(dg.Definitions(assets=[feed, made(feed, cadence=SIX)]))
"""Definitions that the commands of these tests load."""


def world(*assets, now=NOON):
    tested = harness(*(assets or (raw(),)), give=lambda _: Given([{"n": 1}]), now=lambda: now)
    tested.tick()
    return tested


def tick_at(tested, day: int, hour: float = 7) -> dict[str, str]:
    """Tick at an hour of a day of January 2026, and return the open alerts."""
    moment = datetime(2026, 1, day, tzinfo=UTC) + hour * HOUR
    tested.now = lambda: moment
    tested.tick()
    return opened()


def opened() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def missing(feed: Feed = FEED) -> list[str]:
    with open_ledger(settings().ledger).read() as connection:
        return sorted(expected_cursor.last_results(connection, [feed])[feed].missing)


def drop(tested, *days: int, more: str = "") -> list[str]:
    return [tested.drop(RAW, f"2026-01-{day:02}{more}", rows(1)) for day in days]


def invoke(*args: str):
    return CliRunner().invoke(app, [*args, "-m", __name__])


def test_a_missing_day_is_late_although_later_days_arrive():
    tested = world()
    drop(tested, 3)
    assert tick_at(tested, 4) == tick_at(tested, 5, 6.9) == {}
    drop(tested, 5)
    assert opened() == {}
    (reason,) = tick_at(tested, 5).values()
    assert reason.startswith(
        f"1 partition of {RAW} is not there: 2026-01-04 (expected since 2026-01-05 06:00 UTC). Ask"
    )
    drop(tested, 6, 7)
    assert tick_at(tested, 6, 12) == tick_at(tested, 8) == {f"late:{RAW}": reason}
    assert check_results(tested, "web/raw", "on_time")[0] == "FAILED"
    drop(tested, 4)
    assert tick_at(tested, 8, 8) == {}
    assert check_results(tested, "web/raw", "on_time")[0] == "SUCCEEDED"


def test_partitions_before_the_declaration_are_not_late():
    tested = world(raw(), now=NOON - 6.5 * HOUR)
    assert tick_at(tested, 3, 6.9) == {}
    assert missing() == []
    tick_at(tested, 4)
    assert missing() == ["2026-01-02", "2026-01-03"]


def test_partitions_before_their_first_cadence_are_not_late_in_an_older_ledger():
    with open_ledger(settings().ledger).write() as connection:
        put_cursors(connection, {f"watched since {RAW}": (NOON - 300 * DAY).isoformat()})
    tested = world()
    tick_at(tested, 5)
    assert missing() == ["2026-01-03", "2026-01-04"]


def test_an_invalidated_day_is_late_again_unless_an_earlier_update_is_valid():
    tested = world()
    (id_of_3,), (first_of_4,) = drop(tested, 3), drop(tested, 4)
    (second_of_4,) = drop(tested, 4)
    assert tick_at(tested, 8) != {}
    drop(tested, 5, 6, 7)
    assert tick_at(tested, 8) == {}
    tested.invalidate(RAW, "2026-01-03", id_of_3)
    tested.invalidate(RAW, "2026-01-04", second_of_4)
    tested.run_until_idle()
    assert missing() == ["2026-01-03"]
    tested.invalidate(RAW, "2026-01-04", first_of_4)
    tested.run_until_idle()
    assert missing() == ["2026-01-03", "2026-01-04"]
    drop(tested, 3, 4)
    tested.run_until_idle()
    assert opened() == {}


def test_closing_a_day_ends_its_lateness_and_reopening_restores_it():
    tested = world()
    tick_at(tested, 5)
    assert missing() == ["2026-01-03", "2026-01-04"]
    assert invoke("state", "close", RAW, "2026-01-03...2026-01-04", "--why", "a holiday", "--who", "ann").exit_code == 0
    tested.tick()
    assert opened() == {}
    assert invoke("state", "open", RAW, "2026-01-04", "--why", "it was none", "--who", "ann").exit_code == 0
    tested.tick()
    assert missing() == ["2026-01-04"]


def test_a_day_closed_in_advance_is_never_late_and_its_data_are_still_read():
    read = raw()
    tested = world(read, made(read))
    invoke("state", "close", RAW, "2026-01-03", "--why", "a holiday", "--who", "ann")
    assert tick_at(tested, 4, 12) == {}
    drop(tested, 3)
    assert [(run.partition, run.succeeded) for run in tested.run_until_idle()] == [("2026-01-03", True)]


def test_every_static_key_and_every_existing_dynamic_key_is_expected():
    kinds = {"k": dg.StaticPartitionsDefinition(["a", "b"]), "partner": dg.DynamicPartitionsDefinition(name="partner")}
    for name, keys in kinds.items():
        parts = dg.MultiPartitionsDefinition({"date": DAYS, name: keys})
        tested = world(foreign_feed(f"web/{name}", partitions_def=parts, schema=SCHEMA, cadence=SIX))
        if name == "partner":
            tested.instance.add_dynamic_partitions("partner", ["a", "b"])
        tested.drop(f"web/{name}", "2026-01-03/a", rows(1))
        tick_at(tested, 4)
        assert missing(Feed.parse(f"web/{name}")) == ["2026-01-03/b"]
    tested.instance.delete_dynamic_partition("partner", "b")
    tested.instance.add_dynamic_partitions("partner", ["c"])
    tick_at(tested, 4, 8)
    assert missing(Feed.parse("web/partner")) == []
    tick_at(tested, 5)
    assert missing(Feed.parse("web/partner")) == ["2026-01-04/a", "2026-01-04/c"]


def test_one_valid_batch_of_an_appendable_feed_is_enough():
    tested = world(raw(appendable=True))
    drop(tested, 3, more="/b1")
    (second,) = drop(tested, 3, more="/b2")
    assert tick_at(tested, 4) == {}
    tested.invalidate(RAW, "2026-01-03/b2", second)
    tested.run_until_idle()
    assert opened() == {}
    drop(tested, 4, more="/b1")
    (only,) = [tested.newest(RAW, "2026-01-04/b1")]
    assert tick_at(tested, 5) == {}
    tested.invalidate(RAW, "2026-01-04/b1", only)
    tested.run_until_idle()
    assert missing() == ["2026-01-04"]


def test_a_late_dataset_is_shown_by_explain_and_the_status_page_until_built():
    read = raw()
    tested = world(read, made(read, cadence=SIX))
    drop(tested, 4)
    tick_at(tested, 5)
    said = "expected since 2026-01-04 06:00 UTC"
    assert {*opened()} == {f"late:{RAW}", f"late:{MADE}"}
    for reason in opened().values():
        assert f"2026-01-03 ({said})" in reason
    for shown in (shown_of(tested, RAW), shown_of(tested, MADE)):
        assert shown["2026-01-03"].why.endswith(f"; {said}, and late")
        assert "expected since" not in shown["2026-01-04"].why
    explained = invoke("explain", MADE, "2026-01-03", "--json").stdout
    assert json.loads(explained)["reason"].endswith(f"; {said}, and late")
    drop(tested, 3)
    tested.run_until_idle()
    assert opened() == {}
    assert "late" not in shown_of(tested, MADE)["2026-01-03"].why
    assert "expected since" not in invoke("explain", MADE, "2026-01-03", "--json").stdout


def shown_of(tested, name: str):
    graph = Graph(tested.definitions.resolve_asset_graph())
    with dg.partition_loading_context(tested.now()), open_ledger(settings().ledger).read() as connection:
        nodes = nodes_shown(graph, [Feed.parse(name)])
        found = status_of(graph, connection, nodes, Slots.of(date(2026, 1, 5), 3), tested.now())
    return {each.partition.key: each for row in found.rows for each in row.shown}


def test_an_event_is_expected_for_each_partition_of_an_event_table(shop):
    table = event_table("shop/orders", source=shop.source, table_name="orders", partitions_def=DAYS, cadence=SIX)
    tested = world(table)
    for day in (3, 5):
        shop.sink.publish([(0, event_of(day))])
    tick_at(tested, 6)
    assert missing(Feed.parse("shop/orders")) == ["2026-01-04"]
    shop.sink.publish([(0, event_of(4, marker=7))])
    assert tick_at(tested, 6, 8) == {}


def event_of(day: int, marker: int | None = None):
    from feed_assets.core.events import Operation, WriteEvent

    return WriteEvent("orders", marker or day, NOON, f"c{marker or day}", Operation.UPSERT, f"2026-01-{day:02}")


def test_a_cron_with_more_ticks_than_partitions_expects_an_event_at_each(shop):
    hourly = Cadence("0 * * * *", timedelta(minutes=10))
    tested = world(raw(), foreign_feed("web/often", partitions_def=DAYS, schema=SCHEMA, cadence=hourly))
    drop(tested, 3)
    (reason,) = tick_at(tested, 4, 6.5).values()
    assert reason.startswith("no event of web/often for 2026-01-03 ")


# Without a cron


def test_without_a_cron_a_later_day_makes_earlier_missing_days_late():
    tested = world(raw(cadence=NO_HOLES))
    drop(tested, 1)
    assert tick_at(tested, 9) == {}
    drop(tested, 5)
    assert tick_at(tested, 12) == tick_at(tested, 20) == {}
    drop(tested, 8)
    assert tick_at(tested, 20, 12) == tick_at(tested, 20, 12.9) == {}
    (reason,) = tick_at(tested, 20, 13).values()
    assert reason.startswith(f"2 partitions of {RAW} are not there: 2026-01-06 (expected since 2026-01-20 12:00 UTC), ")
    drop(tested, 6, 7)
    assert tick_at(tested, 21) == {}


@pytest.mark.parametrize("parts", [None, dg.StaticPartitionsDefinition(["a"])])
def test_a_cadence_without_time_partitions_needs_a_cron(parts):
    with pytest.raises(InvalidDefinition, match=r"no partitions of time, .* expected a cron, such as Cadence\('0 6"):
        raw(parts, Cadence())


def test_yaml_declares_the_cadence_of_foreign_feeds_and_event_tables(project):
    feeds = """
        type: feed_assets.ForeignFeedsComponent
        attributes:
          start_date: "2026-01-01"
          feeds:
            - {feed: web/raw/v1.0, schema: "n int", cadence: {cron: "0 6 * * *", tolerance: PT2H}}
            - {feed: web/other/v1.0, schema: "n int", cadence: {}}
        """
    tables = """
        type: feed_assets.EventTableComponent
        attributes:
          source: {name: shop, parts: [{url: "env:SHOP_URL", table: events, order_by: id}]}
          tables:
            - {table: shop/orders, start_date: "2026-01-01", cadence: {tolerance: PT2H}}
        """
    loaded = project({"foreign/defs.yaml": feeds, "tables/defs.yaml": tables})
    found = {spec.key.to_user_string(): declaration_of(spec).cadence for spec in loaded.resolve_all_asset_specs()}
    two_hours = timedelta(hours=2)
    assert found == {
        "web/raw": Cadence("0 6 * * *", two_hours),
        "web/other": Cadence(),
        "shop/orders": Cadence(tolerance=two_hours),
    }


def test_an_invalid_tolerance_in_yaml_is_refused(project):
    feeds = """
        type: feed_assets.ForeignFeedsComponent
        attributes:
          start_date: "2026-01-01"
          feeds: [{feed: web/raw/v1.0, schema: "n int", cadence: {tolerance: soon}}]
        """
    with pytest.raises(Exception) as raised:  # noqa: PT011 (Dagster's own, around ours)
        project({"foreign/defs.yaml": feeds})
    chain = [raised.value]
    while chain[-1].__cause__:
        chain.append(chain[-1].__cause__)
    assert any("the tolerance of the cadence is 'soon': expected a duration" in str(each) for each in chain)


# Cost does not grow with history


def look(graph: Graph, now: datetime) -> tuple[dict[str, str], int]:
    ledger = open_ledger(settings().ledger)
    with counted_statements(ledger.engine) as statements:
        found = late_partitions(graph, ledger, now)
    return found, len(statements)


def publish(start: datetime, count: int) -> None:
    with open_ledger(settings().ledger).change() as connection:
        for number in range(count):
            at = Partition(FEED, f"{start + number * HOUR:%Y-%m-%d-%H:%M}")
            update_changes.insert(connection, at, "20260101.000000", updates.REBUILT, updates.PUBLISHED, start)


def graph_of(*assets) -> Graph:
    return Graph(with_automation(dg.Definitions(assets=[*assets])).resolve_asset_graph())


@pytest.mark.parametrize("cadence", [Cadence("5 * * * *"), NO_HOLES])
def test_an_old_hole_costs_no_more_statements_than_one_of_yesterday(cadence):
    graph, start = graph_of(raw(HOURS, cadence)), datetime(2025, 1, 1, tzinfo=UTC)
    look(graph, start + HOUR / 2)
    publish(start, 2)
    publish(start + 3 * HOUR, 20)
    look(graph, start + 24 * HOUR)
    publish(start + 23 * HOUR, 1)
    told, few = look(graph, start + 25.5 * HOUR)
    assert missing() == ["2025-01-01-02:00"]
    for day in range(1, 40):
        publish(start + day * DAY, 24)
        look(graph, start + (day + 1) * DAY + HOUR / 2)
    publish(start + 40 * DAY, 1)
    found, many = look(graph, start + 40 * DAY + 2.5 * HOUR)
    assert missing() == ["2025-01-01-02:00"]
    assert (found, many) == (told, few)


def test_a_feed_that_nobody_writes_for_years_keeps_cost_and_alert_bounded():
    graph, start = graph_of(raw(HOURS, Cadence("5 * * * *"))), datetime(2016, 1, 1, tzinfo=UTC)
    look(graph, start)
    counts = []
    for year in range(2017, 2027):
        for _ in range(3):
            found, count = look(graph, datetime(year, 1, 1, tzinfo=UTC))
            counts.append(count)
    (reason,) = found.values()
    assert len(missing()) == MISSING_AT_MOST
    assert reason.startswith(f"{MISSING_AT_MOST} or more partitions of {RAW} are not there: 2016-01-01-00:00 (expected")
    assert (len(reason) < 600, max(counts) <= 8) == (True, True)
    publish(start, MISSING_AT_MOST - 10)
    for _ in range(2):
        found, _ = look(graph, datetime(2027, 1, 1, tzinfo=UTC))
    assert len(missing()) == MISSING_AT_MOST
    assert "2016-01-21-10:00 (expected since 2016-01-21 11:05 UTC), " in found[RAW]


def test_after_a_pause_every_partition_is_checked_over_several_ticks():
    graph, start = graph_of(raw(HOURS, Cadence("5 * * * *"))), datetime(2025, 1, 1, tzinfo=UTC)
    look(graph, start)
    publish(start - HOUR, 1998)
    now = start + 2000 * HOUR
    looks = 0
    while look(graph, now)[0] == {}:
        looks += 1
    assert looks == 2000 // MISSING_AT_MOST - 1
    assert missing() == [f"{start + 1997 * HOUR:%Y-%m-%d-%H:%M}"]


def test_a_tick_without_new_late_partitions_writes_nothing():
    graph = graph_of(raw(HOURS, Cadence("5 * * * *")))
    look(graph, NOON)
    look(graph, NOON + 5 * HOUR)
    ledger = open_ledger(settings().ledger)
    with counted_statements(ledger.engine) as statements:
        late_partitions(graph, ledger, NOON + 5 * HOUR)
    assert [each for each in statements if not each.startswith(("BEGIN", "SELECT", "WITH"))] == []
