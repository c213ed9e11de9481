"""Hours of a Kafka topic in the state store: complete once every produced message is in a chunk."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, Input, TopicCounts, feed_asset, state_table
from feed_assets.core.feeds import Feed
from feed_assets.kafka import dead_letters
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import state_views
from feed_assets.settings import settings
from feed_assets.sources.topic_events import clients_for
from feed_assets.testing import Given
from feed_assets.warehouse import loader
from feed_assets_tests.support.kafka_topics import POISON
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.sum_projects import harness
from feed_assets_tests.support.topic_projects import chunk, declared, kafka_world
from feed_assets_tests.support.warehouse_topics import check, loading_of, rows

HOUR_15 = datetime(2026, 1, 1, 15, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
CLICK_HOURS = state_table("ads/click_hours", partitions_def=HOURS, completeness=Completeness(tiers=("reader",)))


@feed_asset("ads/clicked/v1.0", partitions_def=HOURS, inputs={"hours": Input(CLICK_HOURS)})
def clicked(hours):
    """Read the clicks of a complete hour."""


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        made.create(**{"retention.ms": "-1"})
        yield made


def send(topic, *minutes):
    """Produce a message for each of these minutes after 15:00."""
    for minute in minutes:
        stamp = int((HOUR_15 + timedelta(minutes=minute)).timestamp() * 1000)
        value, key = topic.value(minute), topic.key(minute)
        topic.producer.produce(topic.name, value, key, 0, headers=[("op", b"create")], timestamp=stamp)
    assert topic.producer.flush(30) == 0


def state_of(window):
    with open_ledger(settings().ledger).read() as connection:
        (found,) = state_views.explained(connection, Feed.parse("ads/click_hours"), window, 1)
    return found.state, found.records, dict(found.sources)


def test_an_hour_is_complete_once_all_messages_are_chunked_and_loaded(topic, tmp_path):
    """Once every produced message is in a chunk, the hour is built, and the topic's warehouse table has each row."""
    counted = declared(topic, counts=TopicCounts("ads/click_hours"))
    loop = harness(counted, CLICK_HOURS, clicked, give=lambda _: Given([{"n": "1"}]))
    send(topic, *range(0, 55, 5))
    chunk(topic)
    send(topic, 55, 59, 61)
    assert loop.run_until_idle() == []
    assert state_of("5min@2026-01-01-15:50") == ("complete", 1, {"reader": 1})
    assert state_of("5min@2026-01-01-15:55") == ("open", 0, {"reader": 2})
    assert state_of("hour@2026-01-01-15:00")[0] == "open"
    chunk(topic)
    (run,) = loop.run_until_idle()
    assert (run.partition, run.succeeded) == ("2026-01-01-15:00", True)
    assert state_of("5min@2026-01-01-15:55") == ("complete", 2, {"reader": 2})
    assert state_of("hour@2026-01-01-15:00")[0] == "complete"
    loading = loading_of(topic.place, f"duckdb://{tmp_path / 'warehouse.db'}")
    with closing(loading.schemas):
        assert loader.once(loading, {topic.name: topic.settings}) == 1
    check(topic, loading.engine)
    newest = {61, 59, 55, 50, 35, 30, 25}
    assert {n for _, n, *_ in rows(loading.engine, topic.name).values()} == newest, "of each of seven keys"


def test_a_dead_letter_and_its_replay_both_count_as_records(topic):
    loop = harness(declared(topic, counts=TopicCounts("ads/click_hours")), CLICK_HOURS)
    send(topic, 50)
    stamp = int((HOUR_15 + timedelta(minutes=50)).timestamp() * 1000)
    topic.producer.produce(topic.name, POISON, topic.key(1), 0, timestamp=stamp)
    assert topic.producer.flush(30) == 0
    send(topic, 61)
    chunk(topic)
    loop.run_until_idle()
    assert state_of("5min@2026-01-01-15:50") == ("complete", 2, {"reader": 2})
    assert dead_letters.settle(clients_for(topic.name), topic.name, produces=True) == 1
    wait_until(lambda: len(topic.messages()) == 4, "the end of the transaction to be there")
    chunk(topic)
    assert [each.records for each in topic.signals()] == [2, 0]
    loop.run_until_idle()
    assert state_of("5min@2026-01-01-15:50") == ("complete", 3, {"reader": 3})
