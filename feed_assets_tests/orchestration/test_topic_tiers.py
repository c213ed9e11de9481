"""Who counts the source of a topic, the broker or a reader: from messages of now to what the state store says."""

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
    """Of ticks, and of who counts: so the broker's own hour can be over."""

    def __init__(self):
        self.now = datetime.now(UTC)

    def __call__(self):
        return self.now

    def wait(self, topic):
        """Until the hour of the topic's first message and the next one are told, an hour after their end; these two."""
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
    """The topic counted by a tier, the hours of the state table, and what is built of one once it is complete."""
    hours = state_table("ads/click_hours", partitions_def=HOURS, completeness=Completeness(("hour",), tiers=(tier,)))

    @feed_asset("ads/clicked/v1.0", partitions_def=HOURS, inputs={"hours": Input(hours)})
    def clicked(hours):
        """The clicks of an hour."""

    counted = declared(topic, counts=TopicCounts("ads/click_hours", tier, "hour"))
    return harness(counted, hours, clicked, give=lambda _: Given([{"n": "1"}]), now=clock)


def hour_of(message):
    """As the broker has stamped it."""
    moment = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    return moment.replace(minute=0, second=0, microsecond=0)


def key_of(hour):
    return f"{hour:%Y-%m-%d-%H}:00"


def messages(topic):
    return Counter(key_of(hour_of(each)) for each in topic.messages())


def state_of(hour):
    """As `state show` has it."""
    with open_ledger(settings().ledger).read() as connection:
        (found,) = state_views.explained(connection, Feed.parse("ads/click_hours"), f"hour@{hour}", 1)
    return found.state, found.records, dict(found.sources)


def explained(loop, hour):
    """What `explain` says of the dataset of an hour."""
    graph, output = Graph(loop.definitions.resolve_asset_graph()), Partition(Feed.parse("ads/clicked/v1.0"), hour)
    with dg.partition_loading_context(loop.now()), open_ledger(settings().ledger).read() as connection:
        (found,) = verdicts(graph, connection, [output], loop.now())
    return found.reason


def built(loop):
    return {run.partition for run in loop.run_until_idle() if run.succeeded}


def transact(topic):
    """A message in a transaction, whose end is an offset more."""
    producer = clients_for(topic.name).producer(topic.name, 60)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, topic.value(1), topic.key(1), 0, headers=[("op", b"update")])
    producer.commit_transaction(30)


def problem(loop):
    """What the sensor cannot do."""
    return " ".join(loop.runner.failing().values())


def test_hours_of_a_stamped_topic_are_complete_by_the_brokers_offsets(topic, clock):
    """That of now once all of it is in chunks; and the quiet one behind it, of which no message tells."""
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


def test_the_end_of_a_transaction_keeps_the_brokers_hour_open_and_not_the_readers(topic, clock):
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


def test_where_the_broker_does_not_stamp_a_reader_that_is_declared_instead_counts(topic, clock):
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


def test_a_topic_that_the_broker_stamps_no_longer_is_not_counted_by_it_any_more(topic, clock):
    topic.create(**STAMPED)
    topic.produce(2)
    chunk(topic)
    told = clock.wait(topic)
    loop = counting(topic, clock, "broker")
    assert built(loop) == {*told}
    topic.alter(**{"message.timestamp.type": "CreateTime"})
    clock.now += HOUR
    assert built(loop) == set()
    assert "is CreateTime" in problem(loop)
