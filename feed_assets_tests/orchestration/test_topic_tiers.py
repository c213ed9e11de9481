"""The tier that counts a topic's source, the broker or a reader: from new messages to the state store."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, Input, TopicCounts, feed_asset, state_table
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import state_views
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.settings import settings
from feed_assets.sources.declared import CountedTopic
from feed_assets.sources.topic_events import clients_for
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness
from feed_assets_tests.support.topic_projects import chunk, declared, kafka_world

HOUR = timedelta(hours=1)
HOURS = dg.HourlyPartitionsDefinition(f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}-00:00")
STAMPED = {"message.timestamp.type": "LogAppendTime"}


class Clock:
    """A clock for ticks and counters, which can pass the end of the broker's own hour."""

    def __init__(self):
        self.now = datetime.now(UTC)

    def __call__(self):
        return self.now

    def wait(self, topic):
        """Pass an hour after the end of the first message's hour and of the next one, and return both keys."""
        first = min(map(hour_of, topic.messages()))
        self.now = first + 3 * HOUR + timedelta(minutes=1)
        return key_of(first), key_of(first + HOUR)


@pytest.fixture
def clock(monkeypatch):
    made, reader = Clock(), CountedTopic.reader
    monkeypatch.setattr(CountedTopic, "reader", lambda self, board: replace(reader(self, board), now=made))
    return made


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        yield made


def counting(topic, clock, tier):
    """Build a topic counted by a tier, its hours in a state table, and a dataset of complete hours."""
    hours = state_table("ads/click_hours", partitions_def=HOURS, completeness=Completeness(("hour",), tiers=(tier,)))

    @feed_asset("ads/clicked/v1.0", partitions_def=HOURS, inputs={"hours": Input(hours)})
    def clicked(hours):
        """Read the clicks of an hour."""

    counted = declared(topic, counts=TopicCounts("ads/click_hours", tier, "hour"))
    return harness(counted, hours, clicked, give=lambda _: Given([{"n": "1"}]), now=clock)


def hour_of(message):
    """Return the hour that the broker stamped on a message."""
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return moment.replace(minute=0, second=0, microsecond=0)


def key_of(hour):
    return f"{hour:%Y-%m-%d-%H}:00"


def messages(topic):
    return Counter(key_of(hour_of(each)) for each in topic.messages())


def state_of(hour):
    """Return state, records and sources of an hour, as `state show` has them."""
    with open_ledger(settings().ledger).read() as connection:
        (found,) = state_views.explained(connection, Feed.parse("ads/click_hours"), f"hour@{hour}", 1)
    return found.state, found.records, dict(found.sources)


def explained(loop, hour):
    """Return the explanation of the dataset's hour."""
    graph, output = Graph(loop.definitions.resolve_asset_graph()), Partition(Feed.parse("ads/clicked/v1.0"), hour)
    with dg.partition_loading_context(loop.now()), open_ledger(settings().ledger).read() as connection:
        (found,) = verdicts(graph, connection, [output], loop.now())
    return found.reason


def built(loop):
    return {run.partition for run in loop.run_until_idle() if run.succeeded}


def transact(topic):
    """Produce a message in a transaction, whose end takes one more offset."""
    producer = clients_for(topic.name).producer(topic.name, 60)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, topic.value(1), topic.key(1), 0, headers=[("op", b"update")])
    producer.commit_transaction(30)


def problem(loop):
    """Return the problems of the sensor."""
    return " ".join(loop.runner.failing().values())


def test_the_brokers_offsets_complete_the_hours_of_a_stamped_topic(topic, clock):
    """The current hour completes once all of it is in chunks; so does the quiet one after it, which has no message."""
    topic.create(2, **STAMPED)
    topic.produce(12)
    chunk(topic)
    chunked = messages(topic)
    topic.produce(3, partition=1)
    sent, told = messages(topic), clock.wait(topic)
    last, loop = max(sent), counting(topic, clock, "broker")
    before = built(loop)
    for hour in told:
        state = "complete" if chunked[hour] == sent[hour] else "open"
        assert state_of(hour) == (state, chunked[hour], {"broker": sent[hour]})
    assert f"{last} of ads/click_hours is open: {chunked[last]} of {sent[last]} records at broker" in explained(
        loop, last
    )
    chunk(topic)
    assert (last in before, last in (after := built(loop)), before | after) == (False, True, {*told})
    assert {hour: state_of(hour) for hour in told} == {
        hour: ("complete", sent[hour], {"broker": sent[hour]}) for hour in told
    }


def test_a_transactions_end_keeps_an_hour_open_for_the_broker_tier_only(topic, clock):
    topic.create(**STAMPED)
    topic.produce(2)
    transact(topic)
    chunk(topic)
    (hour, _), last = clock.wait(topic), max(messages(topic))
    loop = counting(topic, clock, "broker")
    assert last not in built(loop)
    count = messages(topic)[last]
    assert state_of(last) == ("open", count, {"broker": count + 1})
    assert f"{last} of ads/click_hours is open: {count} of {count + 1} records at broker" in explained(loop, last)
    loop = counting(topic, clock, "reader")
    assert {hour, last} <= built(loop)
    assert state_of(last) == ("complete", count, {"broker": count + 1, "reader": count})


def test_an_unstamped_topic_is_counted_by_a_declared_reader(topic, clock):
    topic.create()
    topic.produce(2)
    chunk(topic)
    clock.wait(topic)
    last, loop = max(messages(topic)), counting(topic, clock, "broker")
    assert built(loop) == set()
    assert re.search("the broker cannot count: .* is CreateTime.*Declare the tier 'reader'", problem(loop))
    assert "records, and no count of broker yet" in explained(loop, last)
    loop = counting(topic, clock, "reader")
    assert built(loop) == {*messages(topic)}
    assert (problem(loop), state_of(last)[::2]) == ("", ("complete", {"reader": messages(topic)[last]}))


def test_the_broker_stops_counting_a_topic_that_it_no_longer_stamps(topic, clock):
    topic.create(**STAMPED)
    topic.produce(2)
    chunk(topic)
    told = clock.wait(topic)
    loop = counting(topic, clock, "broker")
    assert built(loop) == {*told}
    topic.configure(**{"message.timestamp.type": "CreateTime"})
    clock.now += HOUR
    assert built(loop) == set()
    assert "is CreateTime" in problem(loop)
