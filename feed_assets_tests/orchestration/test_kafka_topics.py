"""A Kafka topic as an asset, over a real broker: signals are write events, and partitions are those of the topic."""

import re
from dataclasses import replace

import dagster as dg
import pytest

from feed_assets import (
    ByEvents,
    Cadence,
    Completeness,
    EventSource,
    Input,
    Plan,
    Rule,
    TopicCounts,
    event_table,
    feed_asset,
    kafka_topic,
    state_table,
    warehouse_table,
    with_automation,
)
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.topics import signals_of
from feed_assets.kafka import companion_topics
from feed_assets.ledger import event_rejects, event_store
from feed_assets.ledger.database import drop_cursor, open_ledger
from feed_assets.orchestration.declare.declarations import LoadedUnion, declaration_of
from feed_assets.orchestration.declare.warehouse_tables import table_names
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kafka_topics import POISON
from feed_assets_tests.support.sum_projects import harness
from feed_assets_tests.support.topic_projects import TABLE, chunk, declared, kafka_world, loop


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        yield made


def recorded():
    with open_ledger(settings().ledger).read() as connection:
        return sorted(event_store.newest(connection, 100), key=lambda each: (each.partition.key, each.marker))


def partitions(loop_, topic):
    return loop_.instance.get_dynamic_partitions(f"kafka/{topic.name}")


def test_a_signal_is_a_write_event_of_the_topics_table(topic):
    topic.create()
    topic.produce(25)
    chunk(topic)
    loop(topic).run_until_idle()
    found = recorded()
    assert [int(each.marker) for each in found] == [10, 20, 25]
    assert [each.previous and int(each.previous) for each in found] == [None, 10, 20]
    topic_id = companion_topics.id_of(topic.admin, topic.name)
    assert [each.correlation for each in found] == [f"{topic.name}/0/{start}@{topic_id}" for start in (0, 10, 20)]
    assert {(str(each.partition.feed), each.partition.key, each.operation) for each in found} == {
        (TABLE, "0", "INSERT")
    }
    signal = topic.signals()[0]
    assert found[0].context == {
        "first_offset": 0,
        "last_offset": 9,
        "records": 10,
        "dead_letters": 0,
        "dialect": signal.dialect,
        "path": signal.path,
        "bytes": signal.size,
        "sha256": signal.sha256,
        "schema_id": topic.schema_id(),
        "topic_id": topic_id,
        "lag": 15,
        "partitions": 1,
    }


def test_chunks_of_a_recreated_topic_are_separate_events(topic):
    """No event is taken for one of the old topic, even if the new topic keeps the old table against the advice."""
    topic.create()
    topic.produce(25)
    chunk(topic)
    loop_ = loop(topic)
    loop_.run_until_idle()
    old = {each.correlation for each in recorded()}
    for name in (topic.name, signals_of(topic.name)):
        topic.delete(name)
    topic.create()
    topic.produce(12)
    topic.board.delete(topic.files())
    chunk(topic)
    with open_ledger(settings().ledger).write() as connection:  # `feed-assets reconcile` does the same.
        assert drop_cursor(connection, f"read topic_{re.sub('[.-]', '_', topic.name)}/0")
    loop_.run_until_idle()
    new = {each.correlation: int(each.marker) for each in recorded() if each.correlation not in old}
    topic_id = companion_topics.id_of(topic.admin, topic.name)
    assert new == {f"{topic.name}/0/0@{topic_id}": 10, f"{topic.name}/0/10@{topic_id}": 12}


def test_dagster_has_each_topic_partition_and_a_materialization_for_each_chunk(topic):
    topic.create(partitions=2)
    topic.produce(3)
    chunk(topic)
    loop_ = loop(topic)
    loop_.tick()
    assert (sorted(partitions(loop_, topic)), recorded()) == (["0", "1"], []), "added by the tick itself, events wait"
    loop_.run_until_idle()
    topic.produce(2, partition=1)
    chunk(topic)
    loop_.run_until_idle()
    reported = {each.partition: each for each in loop_.reported(TABLE)}
    assert {key: int(each.version) for key, each in reported.items()} == {"0": 3, "1": 2}
    assert reported["1"].metadata["last_offset"] == 1
    assert reported["1"].metadata["schema_id"] == topic.schema_id()
    assert reported["1"].metadata["partitions"] == 2
    assert len(loop_.reported(TABLE)) == 2, "each once"


def test_added_partitions_of_a_topic_need_no_code_change(topic):
    topic.create()
    topic.produce(1)
    chunk(topic)
    loop_ = loop(topic)
    loop_.run_until_idle()
    topic.grow(3)
    topic.produce(4, partition=2)
    chunk(topic)
    loop_.run_until_idle()
    assert sorted(partitions(loop_, topic)) == ["0", "1", "2"]
    assert {each.partition: int(each.version) for each in loop_.reported(TABLE)} == {"0": 1, "2": 4}


def test_a_dataset_by_events_reads_on_from_its_last_offset(topic):
    topic.create()
    topic.produce(12)
    chunk(topic)
    seen = []
    clicks = declared(topic)

    def give(task):
        seen.append(task.run_spec)
        return Given([{"k": "a"}])

    by_events = ByEvents(pipelines={"p": [TABLE]})
    loaded = feed_asset(
        "ads/loaded/v1.0", inputs={"clicks": clicks}, partitions_def=clicks.partitions_def, by_events=by_events
    )(lambda clicks: None)
    loop_ = harness(clicks, loaded, give=give)
    loop_.run_until_idle()
    topic.produce(1)
    chunk(topic)
    loop_.run_until_idle()
    ranges = [(each.start and int(each.start), int(each.end)) for spec in seen for each in spec.slices.values()]
    assert ranges == [(None, 12), (12, 13)]


@pytest.mark.parametrize(("more", "plan"), [(0, "reload"), (1, "incremental")])
def test_a_plan_rule_counts_the_bytes_of_chunks(topic, more, plan):
    topic.create()
    topic.produce(12)
    size, seen, clicks = sum(each.size for each in chunk(topic)), [], declared(topic)

    def give(task):
        seen.append(task.run_spec.plan.kind)
        return Given([{"k": "a"}])

    rule = Rule(Plan("reload"), at_least=size + more)
    by_events = ByEvents(pipelines={"p": [TABLE]}, plans=[rule])
    loaded = feed_asset(
        "ads/loaded/v1.0", inputs={"clicks": clicks}, partitions_def=clicks.partitions_def, by_events=by_events
    )(lambda clicks: None)
    harness(clicks, loaded, give=give).run_until_idle()
    assert seen == [plan]


@pytest.mark.parametrize("mapping", [None, dg.AllPartitionMapping()])
def test_a_dataset_over_several_topic_partitions_needs_a_mapping_to_all(topic, mapping):
    topic.create(partitions=2)
    topic.produce(3)
    topic.produce(4, partition=1)
    chunk(topic)
    seen, clicks = [], declared(topic)

    def give(task):
        seen.append([each.partition.key for each in task.slices["clicks"]])
        return Given([{"k": "a"}])

    inputs = {"clicks": Input(clicks, mapping=mapping) if mapping else clicks}
    by_events = ByEvents(pipelines={"p": [TABLE]})
    loaded = feed_asset("ads/loaded/v1.0", inputs=inputs, by_events=by_events)(lambda clicks: None)
    (ran,) = harness(clicks, loaded, give=give).run_until_idle()
    assert (ran.succeeded, sorted(map(sorted, seen))) == ((True, [["0", "1"]]) if mapping else (False, []))
    if not mapping:
        assert "clicks has new rows in 2 partitions (0, 1): expected one" in ran.error


def test_a_topic_without_signals_has_no_event_and_no_error(topic):
    topic.create()
    loop_ = loop(topic)
    loop_.run_until_idle()
    assert (loop_.runner.failing(), recorded()) == ({}, [])


def test_a_missing_topic_fails_with_the_remedy(topic):
    loop_ = loop(topic)
    loop_.run_until_idle()
    (problem,) = loop_.runner.failing().values()
    assert problem.startswith(f"there is no topic {topic.name}: expected it at the broker. Create it")


def test_an_invalid_signal_is_rejected_with_its_offset(topic):
    topic.create()
    topic.produce(1)
    chunk(topic)
    topic.producer.produce(signals_of(topic.name), POISON, partition=0)
    topic.producer.flush(30)
    loop(topic).run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        ((_, rejected, _),) = event_rejects.rejects(connection, 10)
    assert re.match(rf"{signals_of(topic.name)}/0 offset \d: b'no Avro at all' is not a signal ", rejected.reason)
    assert [int(each.marker) for each in recorded()] == [1]


def test_a_chunk_without_records_moves_the_marker_and_has_no_new_data(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    loop(topic).run_until_idle()
    (found,) = recorded()
    assert (int(found.marker), found.context["dead_letters"]) == (1, 1)
    assert found.context["no_new_data"] is True


def test_limits_and_key_travel_with_the_asset():
    spec = kafka_topic(
        "ads/clicks", topic="ads.clicks", key=["id"], messages=5, seconds=2, lag=7, cadence=Cadence("0 * * * *")
    )
    found = declaration_of(spec)
    assert (found.table_name, found.lag, found.topic.key, found.topic.messages, found.topic.seconds) == (
        "ads.clicks",
        7,
        ("id",),
        5,
        2,
    )
    assert found.source.name == "topic_ads_clicks"
    assert found.source.parts[0].upstream == "ads.clicks"
    assert isinstance(spec.freshness_policy, dg.FreshnessPolicy)
    assert spec.freshness_policy.fail_window.to_timedelta().total_seconds() == 3 * 3600


@each_case(
    ("values", "said"),
    [
        ({"topic": "no topic"}, "topic 'no topic': expected up to 200 letters"),
        ({"key": []}, "topic ads.clicks: key is"),
        ({"messages": 0}, "messages is 0"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"key": ["id", "id"]}, "expected different names of fields"),
        ({"key": ["_offset"]}, "without _operation and _offset"),
        ({"key": [""]}, "expected different names of fields"),
        ({"operation": "column:x"}, "expected header:NAME or field:NAME"),
        ({"lag": 0}, "lag"),
    ],
)
def test_a_topic_with_invalid_arguments_is_refused(values, said):
    with pytest.raises(InvalidDefinition, match=said):
        kafka_topic("ads/clicks", **{"topic": "ads.clicks", "key": ["id"], **values})


def test_a_topic_that_is_declared_twice_is_refused():
    twice = [kafka_topic(name, topic="ads.clicks", key=["id"]) for name in ("ads/clicks", "web/clicks")]
    with pytest.raises(InvalidDefinition, match="declared twice, as ads/clicks and web/clicks: expected one"):
        with_automation(dg.Definitions(assets=twice))


@pytest.mark.parametrize("written", ["ads.clicks-signals", "ads.clicks-dead-letters"])
def test_a_companion_topic_of_another_topic_is_refused(written):
    both = [kafka_topic(f"ads/{name}", topic=name, key=["id"]) for name in (written, "ads.clicks")]
    with pytest.raises(InvalidDefinition, match=f"is the topic {written}, which the connector writes for ads.clicks"):
        with_automation(dg.Definitions(assets=both))


@pytest.mark.parametrize("other", ["ads-clicks", "ads_clicks"])
def test_topics_with_colliding_names_are_refused_and_both_named(other):
    alike = [kafka_topic(f"t/{each}", topic=each, key=["id"]) for each in ("ads.clicks", other)]
    said = rf"the topics ads.clicks \(t/ads.clicks\) and {other} \(t/{other}\) .* Rename one of the topics"
    with pytest.raises(InvalidDefinition, match=said):
        with_automation(dg.Definitions(assets=alike))


def test_a_source_declared_in_two_ways_is_refused_and_names_both_tables():
    topic = kafka_topic("ads/clicks", topic="ads.clicks", key=["id"])
    theirs = event_table("web/clicks", source=EventSource("topic_ads_clicks", ()), table_name="clicks")
    with pytest.raises(
        InvalidDefinition, match="declared differently with ads/clicks and with web/clicks: expected one"
    ):
        with_automation(dg.Definitions(assets=[topic, theirs]))


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            {"dataset": "ads/hours"},
            "is counted for ads/hours, which is not declared in this code location: expected .*ads/click_hours",
        ),
        ({"tier": "broker"}, "by the tier 'broker', which its completeness lacks: expected one of reader"),
        ({"grain": "hour"}, "in windows of hour: expected its smallest grain, 5min"),
    ],
)
def test_topic_counts_that_no_window_uses_are_refused(counts, said):
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    table = state_table("ads/click_hours", partitions_def=hours, completeness=Completeness(tiers=("reader",)))
    counted = TopicCounts(**{"dataset": "ads/click_hours", **counts})
    clicks = kafka_topic("ads/clicks", topic="ads.clicks", key=["id"], counts=counted)
    with pytest.raises(InvalidDefinition, match=said):
        with_automation(dg.Definitions(assets=[table, clicks]))


def test_topic_counts_with_an_unknown_tier_are_refused():
    with pytest.raises(InvalidDefinition, match="tier"):
        TopicCounts("ads/click_hours", tier="kafka")  # pyright: ignore[reportArgumentType]


def test_a_new_topic_is_a_few_lines_of_yaml(project):
    lines = """
type: feed_assets.TopicsComponent
attributes:
  topics:
    - {table: ads/clicks, topic: ads.clicks, key: [id], messages: 50, lag: 1000, cadence: {cron: "0 * * * *"},
       warehouses: [main], histories: [main]}
    - {table: ads/views, topic: ads.views, key: [id], operation: "header:op"}
"""
    found = project({"topics/defs.yaml": lines})
    specs = {spec.key.to_user_string(): spec for asset in found.assets for spec in [asset]}
    clicks, views = (declaration_of(specs[name]) for name in ("ads/clicks", "ads/views"))
    assert (clicks.topic.messages, clicks.lag, clicks.cadence.cron) == (50, 1000, "0 * * * *")
    assert (views.topic.operation, views.topic.messages) == ("header:op", 10_000)
    table = declaration_of(specs["main/ads/clicks"])
    assert (table.loaded.topic, table.loaded.warehouse, table.lag, table.cadence) == (
        "ads.clicks", "main", 1000, clicks.cadence,
    )  # fmt: skip
    history = declaration_of(specs["main/ads/clicks_history"])
    assert (history.loaded.name, history.table_name) == ("ads.clicks_history", "main/ads.clicks_history")
    assert (history.lag, history.cadence) == (1000, clicks.cadence)
    sensors = {"events_topic_ads_clicks", "events_topic_ads_views", "events_warehouse_main"}
    assert sensors <= {each.name for each in found.sensors}


def test_an_event_table_keeps_the_topic_of_its_source():
    spec = event_table("ads/clicks", source=declaration_of(kafka_topic("a", topic="a", key=["k"])).source)
    assert declaration_of(spec).source.parts[0].upstream == "a"


def test_a_union_is_a_few_lines_of_yaml(project):
    lines = """
type: feed_assets.TopicsComponent
attributes:
  topics:
    - {table: shop/orders_eu, topic: shop.orders_eu, key: [id], owners: ["team:shop"]}
    - {table: shop/orders_us, topic: shop.orders_us, key: [id]}
  unions:
    - {table: shop/orders, union: shop.orders, topics: [shop/orders_us, shop/orders_eu], topic_in_key: true,
       lag: 9, warehouses: [main], histories: [main]}
"""
    specs = {spec.key.to_user_string(): spec for spec in project({"topics/defs.yaml": lines}).assets}
    table, history = specs["main/shop/orders"], specs["main/shop/orders_history"]
    loaded = LoadedUnion("shop.orders", ("shop.orders_us", "shop.orders_eu"), "main", topic_in_key=True)
    assert [declaration_of(each).loaded for each in (table, history)] == [loaded, replace(loaded, is_history=True)]
    assert (declaration_of(history).table_name, declaration_of(table).lag) == ("main/shop.orders_history", 9)
    assert table_names(declaration_of(history).loaded) == ["shop.orders_history", "shop.orders_versions"]
    assert (table.owners, table.partitions_def.name) == (["team:shop"], "kafka_union/shop.orders")


UNION = {"union": "shop.orders", "warehouse": "main"}


@each_case(
    "other,changed,said",
    [
        ({}, {"union": None}, "union is None: expected the table's name in the warehouse"),
        ({}, {"union": "shop.eu"}, "union is 'shop.eu', which is one of its topics"),
        (
            {"key": ["no"]},
            {},
            r"key of shop.eu is \('id',\), and of shop.us \('no',\): expected the same",
        ),
        ({"mask": {"id": "hash"}}, {}, "mask of shop.eu is {}, and of shop.us {'id': 'hash'}"),
        ({"newest_by": "at"}, {}, "newest_by of shop.eu is None, and of shop.us 'at'"),
        ({"conflicts": "refuse"}, {}, "conflicts of shop.eu is 'stop', and of shop.us 'refuse'"),
        ({"topic": "shop.eu"}, {}, "topics has shop.eu more than once"),
        ({}, {"topics": []}, "has 0 topics"),
        (
            {},
            {"topics": None, "topic_in_key": True},
            "has union or topic_in_key: expected `topics`",
        ),
    ],
)
def test_topics_that_are_no_union_are_refused(other, changed, said):
    eu = kafka_topic("shop/eu", topic="shop.eu", key=["id"])
    us = kafka_topic("shop/us", **{"topic": "shop.us", "key": ["id"], **other})
    with pytest.raises(InvalidDefinition, match=said):
        warehouse_table("main/orders", **{"topics": [eu, us], **UNION, **changed})
