"""Warehouse tables as assets, over a real broker: loads are events, and problems are checks and alerts."""

import json
from contextlib import closing

import dagster as dg
import pytest

from feed_assets import kafka_topic, warehouse_table
from feed_assets.core.errors import ChunkBroken, InvalidDefinition
from feed_assets.core.grid import CellState
from feed_assets.core.topic_unions import TopicUnion
from feed_assets.core.topics import TopicHistory, history_of
from feed_assets.core.warehouses import Warehouse
from feed_assets.kafka import avro
from feed_assets.ledger import event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.declare.warehouse_tables import declared_tables
from feed_assets.settings import settings
from feed_assets.warehouse import loader
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.harness_queries import check_results, status
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.kafka_topics import MORE, World
from feed_assets_tests.support.sum_projects import harness
from feed_assets_tests.support.topic_projects import chunk, declared, kafka_world
from feed_assets_tests.support.warehouse_topics import loading_of

TABLE = "main/clicks"


@pytest.fixture(params=["duckdb", "postgresql"])
def topic(broker, registry, setting, tmp_path, request):
    is_file = request.param == "duckdb"
    url = f"duckdb://{tmp_path}/main.db" if is_file else request.getfixturevalue("postgresql").database()
    setting(warehouses=json.dumps({"main": {"url": url}}))
    with kafka_world(broker, registry, setting) as made:
        made.create()
        yield made


def warehouse() -> Warehouse:
    return settings().warehouse("main")


def engine() -> Engine:
    return engine_of(warehouse().url.get_secret_value())


def load(topic):
    """Cut chunks of all messages, and load their rows."""
    chunk(topic)
    loading = loading_of(topic.place, warehouse().url.get_secret_value())
    with closing(loading.schemas):
        loader.once(loading, {topic.name: topic.settings})


def loop(topic, **options):
    upstream = declared(topic)
    return harness(upstream, warehouse_table(TABLE, topic=upstream, warehouse="main", **options))


def recorded():
    with open_ledger(settings().ledger).read() as connection:
        found = [each for each in event_store.newest(connection, 100) if str(each.partition.feed) == TABLE]
    return sorted(found, key=lambda each: int(each.marker))


def materialized(loop_):
    wanted = dg.AssetRecordsFilter(dg.AssetKey(TABLE.split("/")))
    return [each.asset_materialization for each in loop_.instance.fetch_materializations(wanted, 100).records]


def test_each_load_is_an_event_with_marker_lag_and_columns(topic):
    loop_ = loop(topic)
    loop_.run_until_idle()
    assert recorded() == []
    topic.produce(12)
    load(topic)
    loop_.run_until_idle()
    topic.produce(3, fields=MORE)
    chunk(topic)
    topic.produce(5)
    load(topic)
    loop_.run_until_idle()
    loop_.run_until_idle()
    assert [(int(each.marker), each.previous and int(each.previous)) for each in recorded()] == [(12, None), (20, 12)]
    newest, first = materialized(loop_)
    assert (first.partition, newest.metadata["marker"].value) == ("0", "20")
    assert newest.metadata["lag"].value == 0
    assert newest.metadata["schema_id"].value > first.metadata["schema_id"].value
    columns = [{each.name for each in told.metadata["dagster/column_schema"].value.columns} for told in (first, newest)]
    assert columns[1] - columns[0] == {each["name"] for each in MORE} - columns[0] != set()


@pytest.mark.parametrize("topic", ["duckdb"], indirect=True)
def test_owners_of_a_schema_are_reported_only_when_the_schema_changes(topic):
    """The registry is real, and keeps keys that Avro does not know."""
    fields = [{**MORE[0], "doc": "![seen](http://stranger.example)"}, MORE[1]]
    said = {"type": "record", "name": "value", "fields": fields, "owners": ["team:ads", "me@example.com"]}
    schema_id, loop_ = topic.schemas.register(f"{topic.name}-owned", said), loop(topic)
    for number in range(2):
        datum = avro.encoded({"id": f"k{number}", "n": number}, topic.schemas.get(schema_id), schema_id)
        topic.send(datum, number)
        load(topic)
        loop_.run_until_idle()
    newest, first = materialized(loop_)
    assert first.metadata["owners"].value == "team:ads, me@example.com"
    assert "owners" not in newest.metadata
    descriptions = {each.description for each in first.metadata["dagster/column_schema"].value.columns}
    assert r"!\[seen](http://stranger.example)" in descriptions, "the page of the table must load no image"


@pytest.mark.parametrize("topic", ["duckdb"], indirect=True)
def test_a_union_is_below_its_topics_and_has_their_partitions(topic, broker, registry):
    with World.of(broker, registry, settings().blackboard) as other:
        other.create(2)
        upstreams = declared(topic), kafka_topic("ads/views", topic=other.name, key=["id"], operation="header:op")
        table = warehouse_table(
            "main/both", topics=upstreams, union="ads.both", topic_in_key=True, warehouse="main", lag=3
        )
        assert {each.asset_key for each in table.deps} == {each.key for each in upstreams}
        loop_ = harness(*upstreams, table)
        topic.produce(2)
        other.produce(5, partition=1)
        chunk(topic)
        chunk(other)
        loop_.run_until_idle()
        behind = open_reasons()
        assert behind.keys() == {"behind:main/both", "not_loaded:main/both"}
        assert f"messages without a row: {other.name}/1 5. Expected at most 3" in behind["behind:main/both"]
        loading = loading_of(topic.place, warehouse().url.get_secret_value())
        rules = {topic.name: topic.settings, other.name: other.settings}
        with closing(loading.schemas):
            loader.once(loading, {"ads.both": TopicUnion(rules, topic_in_key=True)})
        loop_.run_until_idle()
        loop_.run_until_idle()
        assert open_reasons() == {}
        wanted = dg.AssetRecordsFilter(dg.AssetKey(["main", "both"]))
        events = [each.asset_materialization for each in loop_.instance.fetch_materializations(wanted, 100).records]
        values = {each.partition: (each.metadata["marker"].value, each.metadata["lag"].value) for each in events}
        assert values == {f"{topic.name}-0": ("2", 0), f"{other.name}-1": ("5", 0)}


@pytest.mark.parametrize("topic", ["duckdb"], indirect=True)
def test_a_history_has_events_checks_and_a_lag_of_its_own(topic):
    upstream, table = declared(topic), history_of(topic.name)
    history = warehouse_table("main/history", topic=upstream, warehouse="main", history=True, lag=5)
    loop_ = harness(upstream, warehouse_table(TABLE, topic=upstream, warehouse="main", lag=5), history)
    topic.produce(6)
    load(topic)
    loop_.run_until_idle()
    assert open_reasons().keys() == {"behind:main/history", "not_loaded:main/history"}
    loading = loading_of(topic.place, warehouse().url.get_secret_value())
    with closing(loading.schemas):
        loader.once(loading, {table: TopicHistory(topic.name, topic.settings)})
    loop_.run_until_idle()
    assert open_reasons() == {}
    wanted = dg.AssetRecordsFilter(dg.AssetKey(["main", "history"]))
    (event,) = [each.asset_materialization for each in loop_.instance.fetch_materializations(wanted, 100).records]
    assert (event.partition, event.metadata["marker"].value, event.metadata["lag"].value) == ("0", "6", 0)


def test_columns_are_reported_only_once(topic):
    loop_ = loop(topic)
    for _ in range(2):
        topic.produce(10)
        load(topic)
        loop_.run_until_idle()
    assert ["dagster/column_schema" in each.metadata for each in materialized(loop_)] == [False, True]


def test_a_stopped_table_or_refused_rows_are_an_alert_until_repaired(topic):
    topic.produce(5)
    load(topic)
    loop_ = loop(topic)
    loop_.run_until_idle()
    assert check_results(loop_, TABLE, "loaded") == ["SUCCEEDED"]
    topic.produce(1)
    chunk(topic)
    path, content = topic.signals()[-1].path, topic.file(topic.signals()[-1])
    topic.board.delete([key := path.removeprefix(f"{topic.board.url}/")])
    with pytest.raises(ChunkBroken):
        load(topic)
    loop_.run_until_idle()
    said = f"{topic.name} is not loaded into main any more: {path} is missing: expected {len(content)} bytes"
    assert open_reasons()[f"not_loaded:{TABLE}"].startswith(said)
    notes, shown = status(loop_, TABLE)
    assert [each for each in notes if each.startswith(f"{TABLE}: {said}")]
    assert {each.state for each in shown} == {CellState.ISSUE}
    topic.board.put(key, content)
    load(topic)
    with engine().open() as connection:
        connection.execute(
            "INSERT INTO feed_assets.refused SELECT topic, 0, 3, 'too large', now(), NULL FROM feed_assets.tables"
        )
    loop_.run_until_idle()
    assert open_reasons()[f"not_loaded:{TABLE}"].startswith(f"1 rows of {topic.name} cannot be stored in main.")
    with engine().open() as connection:
        connection.execute("DELETE FROM feed_assets.refused")
    loop_.run_until_idle()
    assert f"not_loaded:{TABLE}" not in open_reasons()
    assert check_results(loop_, TABLE, "loaded")[0] == "SUCCEEDED"


def test_a_table_before_its_first_load_fails_the_check_loaded(topic):
    loop_ = loop(topic)
    loop_.run_until_idle()
    assert check_results(loop_, TABLE, "loaded") == ["FAILED"]
    said = f"not loaded yet: {topic.name} has no signals yet. Check that"
    assert open_reasons()[f"not_loaded:{TABLE}"].startswith(said)
    topic.produce(5)
    load(topic)
    loop_.run_until_idle()
    assert check_results(loop_, TABLE, "loaded")[0] == "SUCCEEDED"


def test_lag_of_a_table_above_its_limit_is_an_alert_until_loaded(topic):
    loop_ = loop(topic, lag=5)
    topic.produce(5)
    loop_.run_until_idle()
    assert f"behind:{TABLE}" not in open_reasons()
    assert {each.state for each in status(loop_, TABLE)[1]} == {CellState.MISSING}
    topic.produce(1)
    loop_.run_until_idle()
    assert {each.state for each in status(loop_, TABLE)[1]} == {CellState.ISSUE}
    assert open_reasons()[f"behind:{TABLE}"].startswith(f"messages without a row: {topic.name}/0 6. Expected at most 5")
    load(topic)
    loop_.run_until_idle()
    assert f"behind:{TABLE}" not in open_reasons()
    assert check_results(loop_, TABLE, "caught_up") == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_an_unreachable_warehouse_is_a_problem_and_keeps_open_alerts(topic, setting):
    loop_ = loop(topic, lag=5)
    topic.produce(6)
    loop_.run_until_idle()
    opened = open_reasons()[f"behind:{TABLE}"]
    setting(warehouses=json.dumps({"main": {"url": "postgresql://nobody@127.0.0.1:1/none"}}))
    loop_.tick()
    assert open_reasons()[f"behind:{TABLE}"] == opened
    assert any("127.0.0.1" in each for each in loop_.runner.failing().values())


@pytest.fixture
def upstream():
    from feed_assets import kafka_topic

    return kafka_topic("ads/clicks", topic="ads.clicks", key=["id"], owners=["team:ads"])


def test_a_table_depends_on_its_topic_and_has_its_owners(upstream):
    spec = warehouse_table(TABLE, topic=upstream, warehouse="main")
    assert [each.asset_key for each in spec.deps] == [upstream.key]
    assert spec.metadata["dagster/table_name"] == "ads.clicks"
    assert (spec.owners, spec.partitions_def) == (["team:ads"], upstream.partitions_def)


def test_a_warehouse_table_of_an_asset_that_is_no_topic_is_refused():
    with pytest.raises(InvalidDefinition, match="main/clicks: topic is other: expected what kafka_topic returns"):
        warehouse_table(TABLE, topic=dg.AssetSpec("other"), warehouse="main")


def test_two_tables_of_a_topic_in_a_warehouse_are_refused(upstream):
    from feed_assets.orchestration.declare.declarations import declaration_of

    def tables(*specs):
        return declared_tables([found for each in specs if (found := declaration_of(each))], "main")

    latest, again = (warehouse_table(name, topic=upstream, warehouse="main") for name in (TABLE, "main/again"))
    history = warehouse_table("main/history", topic=upstream, warehouse="main", history=True)
    twice = warehouse_table("main/twice", topic=upstream, warehouse="main", history=True)
    assert list(tables(latest, history)) == ["ads.clicks", "ads.clicks_history"]
    for name in ("ads.clicks_history", "ads.clicks_versions"):
        same_name = kafka_topic("ads/other", topic=name, key=["id"])
        with pytest.raises(InvalidDefinition, match=f"{name} in main is declared twice, as main/other and main/hist"):
            tables(warehouse_table("main/other", topic=same_name, warehouse="main"), history)
    with pytest.raises(
        InvalidDefinition, match=r"ads\.clicks in main is declared twice, as main/clicks and main/again"
    ):
        tables(latest, again)
    with pytest.raises(InvalidDefinition, match=r"clicks_history in main is declared twice, as main/history and main"):
        tables(history, twice)
