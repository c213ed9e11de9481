"""Warehouse tables of datasets as assets: each load is an event by partition, and these events build datasets."""

import json
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import ByEvents, feed_asset, kafka_topic, warehouse_table
from feed_assets.core.errors import InvalidDefinition, SourceBusy
from feed_assets.core.feeds import Feed
from feed_assets.core.grid import CellState
from feed_assets.ledger import event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.orchestration.declare.warehouse_tables import declared_tables
from feed_assets.orchestration.ticks import ingest, topic_checks
from feed_assets.settings import settings
from feed_assets.sources import warehouse_events
from feed_assets.testing import Given
from feed_assets.warehouse import duck, load_state
from feed_assets_tests.support.duckdb_holder import held_open
from feed_assets_tests.support.harness_queries import check_results, status
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, SUMS, harness, later, raw_feed, sums_of
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, load, target_of

TABLE = "main/sums"


@pytest.fixture(params=["duckdb", "postgresql"])
def target(home, setting, tmp_path, request):
    is_file = request.param == "duckdb"
    url = f"duckdb://{tmp_path}/main.db" if is_file else request.getfixturevalue("postgresql").database()
    setting(warehouses=json.dumps({"main": {"url": url}}))
    return target_of(url)


def loop(*more, **options):
    raw = raw_feed()
    sums = sums_of(raw)
    return harness(raw, sums, warehouse_table(TABLE, dataset=sums, warehouse="main", **options), *more)


def published(loop_) -> Dataset:
    return Dataset(loop_.board, open_ledger(settings().ledger), Feed.parse(SUMS), datetime(2026, 1, 1, tzinfo=UTC))


def recorded():
    with open_ledger(settings().ledger).read() as connection:
        found = [each for each in event_store.newest(connection, 100) if str(each.partition.feed) == TABLE]
    return sorted(found, key=lambda each: each.marker)


def materialized(loop_):
    wanted = dg.AssetRecordsFilter(dg.AssetKey(TABLE.split("/")))
    return [each.asset_materialization for each in loop_.instance.fetch_materializations(wanted, 100).records]


def test_each_load_of_a_partition_is_an_event_with_the_update(target):
    loop_ = loop()
    loop_.tick()
    assert recorded() == []
    dataset = published(loop_)
    first = dataset.publish(DAY, {"k": "a", "n": 1})
    second = dataset.publish(NEXT_DAY, {"k": "b", "n": 2})
    load(target, dataset)
    loop_.tick()
    assert [(each.partition.key, each.context["update_id"]) for each in recorded()] == [
        (DAY, first),
        (NEXT_DAY, second),
    ]
    again = dataset.publish(DAY, {"k": "a", "n": 3, "more": 0.5}, {"k": "c", "n": 4, "more": None})
    load(target, dataset)
    loop_.tick()
    loop_.tick()
    *_, last = found = recorded()
    assert (len(found), last.partition.key, last.context["update_id"]) == (3, DAY, again)
    assert last.previous == found[0].marker
    assert (len(last.context["data_version"]), last.context["records"]) == (32, 2)
    newest, *_, oldest = materialized(loop_)
    assert (newest.partition, newest.metadata["update_id"].value) == (DAY, again)
    schemas = [told.metadata["dagster/column_schema"].value for told in (oldest, newest)]
    columns = [{each.name for each in told.columns} for told in schemas]
    assert columns == [{"k", "n"}, {"k", "n", "more"}]
    lineage = newest.metadata["dagster/column_lineage"].value.deps_by_column
    assert lineage.keys() == {"k", "n", "more"}
    assert {(each.asset_key.to_user_string(), each.column_name) for each in lineage["n"]} == {("t/sums", "n")}


@pytest.mark.parametrize("target", ["postgresql"], indirect=True)
def test_removing_a_partitions_rows_is_a_delete_event_without_an_update(target):
    loop_ = loop()
    dataset = published(loop_)
    only = dataset.publish(DAY, {"k": "a", "n": 1})
    load(target, dataset)
    loop_.tick()
    dataset.invalidate(DAY, only)
    dataset.look(DAY)
    load(target, dataset)
    loop_.tick()
    *_, last = recorded()
    assert (last.operation.value, "update_id" in last.context, last.context["records"]) == ("DELETE", False, 0)


@pytest.mark.parametrize("target", ["duckdb"], indirect=True)
def test_a_busy_warehouse_is_an_alert_only_if_it_stays_busy(target, tmp_path, monkeypatch):
    loop_ = loop()
    dataset = published(loop_)
    dataset.publish(DAY, {"k": "a", "n": 1})
    load(target, dataset)
    loop_.tick()
    monkeypatch.setattr(duck, "BUSY_SECONDS", 0.0)
    later(loop_, timedelta(hours=9))  # No tick for a whole night.
    for _ in range(2):
        with held_open(tmp_path / "main.db"):
            loop_.tick()
            assert open_reasons() == {}
            for _ in range(2):
                later(loop_, ingest.BUSY_FOR + timedelta(seconds=1))
                loop_.tick()
                (reason,) = open_reasons().values()
                assert "Find the other process that has the file open" in reason
        loop_.tick()
        assert open_reasons() == {}


def test_a_busy_warehouse_is_queried_once_for_all_of_its_tables(monkeypatch):
    looks = []

    def busy(warehouse):
        looks.append(warehouse)
        raise SourceBusy("busy")

    monkeypatch.setattr(warehouse_events, "states", busy)
    states_of = topic_checks._states_once()
    for _ in range(2):
        with pytest.raises(SourceBusy):
            states_of("main")
    assert looks == ["main"]


@pytest.mark.parametrize("target", ["duckdb"], indirect=True)
def test_a_reader_of_the_table_is_built_when_its_partition_is_loaded(target):
    specs, raw = [], raw_feed()
    sums = sums_of(raw)
    table = warehouse_table(TABLE, dataset=sums, warehouse="main")
    seen = feed_asset("t/seen/v1.0", partitions_def=DAYS, inputs={"table": table}, by_events=ByEvents())(
        lambda table: None
    )

    def give(task):
        specs.append((task.output.key, task.run_spec.slices))
        return Given([{"k": "a"}])

    loop_ = harness(raw, sums, table, seen, give=give)
    dataset = published(loop_)
    for day in (DAY, NEXT_DAY, DAY):
        dataset.publish(day, {"k": "a", "n": len(specs)})
        load(target, dataset)
        loop_.run_until_idle()
    assert [key for key, _ in specs] == [DAY, NEXT_DAY, DAY]
    ends = [each.end for _, slices in specs for each in slices.values()]
    assert ends == [each.marker for each in recorded()]


@pytest.mark.parametrize("target", ["duckdb"], indirect=True)
def test_a_table_is_missing_before_its_first_load_and_an_issue_after_loads_stop(target):
    loop_ = loop()
    dataset = published(loop_)
    dataset.publish(DAY, {"k": "a", "n": 1})
    loop_.run_until_idle()
    why = f"not loaded yet: `feed-assets warehouse load main` loads {SUMS}. Check whether it runs."
    assert {(each.state, each.why) for each in status(loop_, TABLE)[1]} == {(CellState.MISSING, why)}
    assert open_reasons()[f"not_loaded:{TABLE}"] == why
    load(target, dataset)
    loop_.run_until_idle()
    assert check_results(loop_, TABLE, "loaded")[0] == "SUCCEEDED"
    with opened(target.engine) as connection:
        load_state.note(connection, SUMS, "its schema would lose data")
    loop_.run_until_idle()
    said = f"{SUMS} is not loaded into main any more: its schema would lose data"
    assert open_reasons()[f"not_loaded:{TABLE}"] == said
    assert {(each.state, each.why) for each in status(loop_, TABLE)[1]} == {(CellState.ISSUE, said)}
    dataset.publish(DAY, {"k": "a", "n": 2})
    load(target, dataset)
    loop_.run_until_idle()
    assert f"not_loaded:{TABLE}" not in open_reasons()


def test_a_table_depends_on_its_dataset_and_has_its_partitions():
    sums = sums_of(raw_feed())
    spec = warehouse_table(TABLE, dataset=sums, warehouse="main")
    assert [each.asset_key for each in spec.deps] == [dg.AssetKey(["t", "sums"])]
    assert spec.partitions_def == DAYS
    assert [*declared_tables([declaration_of(spec)], "main")] == [SUMS]


def test_a_warehouse_table_with_wrong_arguments_is_refused():
    topic, sums = kafka_topic("ads/clicks", topic="ads.clicks", key=["id"]), sums_of(raw_feed())
    for given, said in (
        ({}, "expected `topic` or `dataset`, found none"),
        ({"topic": topic, "dataset": sums}, "expected `topic` or `dataset`, found both"),
        ({"dataset": raw_feed()}, "dataset is t/raw: expected what @feed_asset returns"),
        ({"topic": raw_feed()}, "topic is t/raw: expected what kafka_topic returns"),
        ({"dataset": sums, "lag": 3}, f"has a lag, which counts messages: the dataset {SUMS} has no messages"),
        ({"dataset": sums, "history": True}, f"expected a topic, because the dataset {SUMS} has no messages"),
    ):
        with pytest.raises(InvalidDefinition, match=said):
            warehouse_table(TABLE, warehouse="main", **given)
