"""Kafka topics with lag and dead letters: checks and alerts, tick by tick, over a real broker."""

import json
from contextlib import suppress
from datetime import timedelta
from itertools import count

import dagster as dg
import pytest
from confluent_kafka import TopicPartition

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.grid import Slots
from feed_assets.core.topics import dead_letters_of
from feed_assets.kafka import dead_letters
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.dead_letters import Open
from feed_assets.kafka.lag import lag
from feed_assets.ledger.database import get_cursor, open_ledger, put_cursors
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
from feed_assets.settings import settings
from feed_assets.sources.topic_events import clients_for
from feed_assets_tests.support.harness_queries import check_results
from feed_assets_tests.support.home_alerts import open_reasons
from feed_assets_tests.support.kafka_topics import POISON, header
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.topic_projects import TABLE, chunk, kafka_world, loop

BEHIND, DEAD = f"behind:{TABLE}", f"dead_letters:{TABLE}"


@pytest.fixture
def topic(broker, registry, setting):
    with kafka_world(broker, registry, setting) as made:
        yield made


def lags(topic):
    """Wait until the broker leads the new topic's partitions, and return their lag."""
    found = []

    def is_told():
        try:
            found[:] = lag(clients_for(topic.name), topic.name)
        except KafkaUnavailable:
            return False
        return True

    wait_until(is_told, "the broker to lead the topic")
    return [(each.partition, each.end, each.signalled, each.behind) for each in found]


def test_lag_counts_unsignalled_messages_by_partition_since_the_first(topic):
    topic.create(partitions=2)
    assert lags(topic) == [(0, 0, 0, 0), (1, 0, 0, 0)]
    topic.produce(12)
    assert lags(topic) == [(0, 12, 0, 12), (1, 0, 0, 0)]
    chunk(topic)
    assert lags(topic) == [(0, 12, 12, 0), (1, 0, 0, 0)]
    topic.produce(3, partition=1)
    found = lag(clients_for(topic.name), topic.name)
    assert [each.since is not None for each in found] == [False, True]
    (first, *_) = [each for each in topic.messages() if each.partition() == 1]
    assert found[1].since.timestamp() * 1000 == pytest.approx(first.timestamp()[1])


def test_transaction_ends_do_not_count_as_lag_after_a_chunk(topic, broker):
    topic.create()
    producer = Clients({"bootstrap.servers": broker.servers}).producer(topic.name, 60)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic.name, topic.value(1), topic.key(1), 0)
    producer.commit_transaction(30)
    assert [behind for *_, behind in lags(topic)] == [2], "an upper bound"
    chunk(topic)
    assert lags(topic) == [(0, 2, 1, 0)], "nothing is behind what is signalled but the end of the transaction"


def test_lag_above_the_limit_is_an_alert_until_the_topic_has_caught_up(topic):
    topic.create()
    topic.produce(5)
    loop_ = loop(topic, lag=5)
    loop_.run_until_idle()
    assert BEHIND not in open_reasons()
    topic.produce(1)
    loop_.run_until_idle()
    why = open_reasons()[BEHIND]
    assert why.startswith(f"messages without a chunk: {topic.name}/0 6 since ")
    assert f"`feed-assets kafka lag {topic.name}` shows its progress" in why
    assert check_results(loop_, TABLE, "caught_up")[0] == "FAILED"
    topic.produce(1)
    loop_.run_until_idle()
    assert open_reasons()[BEHIND] == why, "its numbers are those of when it began"
    chunk(topic)
    loop_.run_until_idle()
    assert BEHIND not in open_reasons()
    assert check_results(loop_, TABLE, "caught_up") == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_removing_the_lag_limit_resolves_its_alert(topic):
    topic.create()
    topic.produce(6)
    loop(topic, lag=5).run_until_idle()
    assert BEHIND in open_reasons()
    loop(topic).run_until_idle()
    assert BEHIND not in open_reasons()


def test_a_recreated_topic_gets_one_advice(topic):
    topic.create()
    topic.produce(12)
    chunk(topic)
    loop_ = loop(topic, lag=5)
    loop_.run_until_idle()
    topic.delete(topic.name)
    topic.create()
    topic.produce(1)
    loop_.tick()
    why = loop_.runner.failing()[f"watch:{TABLE}"]
    assert "declare it as another table" in why
    assert "reconcile" not in why, "the old signals would be read again, and the connector would not go on"


def test_an_unreachable_broker_keeps_the_lag_alert_and_is_a_problem(topic, setting):
    topic.create()
    topic.produce(6)
    loop_ = loop(topic, lag=5)
    loop_.run_until_idle()
    opened = open_reasons()[BEHIND]
    setting(kafka="{}")
    loop_.tick()
    assert open_reasons()[BEHIND] == opened
    assert "FEED_ASSETS_KAFKA names no broker" in loop_.runner.failing()[f"watch:{TABLE}"]


def test_dead_letters_are_counted_once_and_alert_until_they_are_settled(topic):
    topic.create()
    topic.produce(1)
    topic.send(POISON)
    chunk(topic)
    loop_ = loop(topic)
    loop_.run_until_idle()
    said = f"messages of {topic.name} are no records. The last of them is {topic.name}/0 offset"
    assert open_reasons()[DEAD].startswith(f"1 {said} 1: the value begins with byte 110")
    assert check_results(loop_, TABLE, "no_dead_letters") == ["FAILED"]
    assert status_notes(loop_) == (f"{TABLE}: {open_reasons()[DEAD]}",)
    with open_ledger(settings().ledger).read() as connection:
        position = json.loads(get_cursor(connection, f"dead letters of {topic.name}") or "")
    assert position["after"]["0"] >= 1, "the next tick reads on from there"
    topic.send(POISON)
    chunk(topic)
    loop_.run_until_idle()
    assert open_reasons()[DEAD].startswith(f"2 {said} 2: ")
    assert dead_letters.settle(clients_for(topic.name), topic.name, produces=False) == 2
    loop_.run_until_idle()
    assert DEAD not in open_reasons()
    assert check_results(loop_, TABLE, "no_dead_letters") == ["SUCCEEDED", "FAILED", "FAILED"]
    assert status_notes(loop_) == ()
    assert [each.metadata["dead_letters"] for each in loop_.reported(TABLE)] == [1, 1]


def status_notes(loop_):
    """Return the notes beside the status page's grid."""
    graph = Graph(loop_.definitions.resolve_asset_graph())
    slots, known = Slots.of(loop_.now().date(), 1), dg.partition_loading_context(loop_.now(), loop_.instance)
    with known, open_ledger(settings().ledger).read() as connection:
        return status_of(graph, connection, nodes_shown(graph), slots, loop_.now()).notes


def test_dead_letters_are_produced_again_unchanged_and_once(topic):
    topic.create(partitions=2)
    topic.produce(1)
    topic.send(POISON, 5, op="create")
    topic.send(POISON, 6, partition=1)
    chunk(topic)
    clients = clients_for(topic.name)
    found = dead_letters.letters(clients, topic.name, 10)
    assert [(each.partition, each.offset, each.is_open) for each in found] == [(0, 1, True), (1, 0, True)]
    before = topic.messages()
    assert dead_letters.settle(clients, topic.name, produces=True) == 2
    assert dead_letters.settle(clients, topic.name, produces=True) == 0, "once each"
    again = [each for each in topic.messages() if (each.partition(), each.offset()) not in places(before)]
    assert [(each.partition(), each.key(), each.value(), each.headers()) for each in again] == [
        (0, topic.key(5), POISON, [("op", b"create")]),
        (1, topic.key(6), POISON, [("op", b"update")]),
    ]
    stamps = {each.key(): each.timestamp() for each in before}
    buried = [each for each in topic.dead_letters() if each.key()]
    assert [each.timestamp() for each in again] == [stamps[each.key()] for each in again]
    assert [int(header(each, "timestamp")) for each in buried] == [stamps[each.key()][1] for each in buried]
    assert [each.is_open for each in dead_letters.letters(clients, topic.name, 10)] == [False, False]


def places(messages):
    return {(each.partition(), each.offset()) for each in messages}


def test_a_kill_before_the_commit_produces_no_dead_letter_again(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    clients = clients_for(topic.name)
    killed = Killed(clients)
    with pytest.raises(KeyboardInterrupt):
        dead_letters.settle(killed, topic.name, produces=True)
    assert len(topic.messages()) == 1
    assert dead_letters.settle(clients, topic.name, produces=True) == 1
    assert len(topic.messages()) == 2
    assert dead_letters.settle(clients, topic.name, produces=True) == 0


class Spied:
    """Clients whose one producer does something else in its transactions."""

    def __init__(self, clients):
        self._clients = clients

    def __getattr__(self, name):
        return getattr(self._clients, name)

    def producer(self, *args):
        self._producer = self._clients.producer(*args)
        return self

    def init_transactions(self, seconds):
        self._producer.init_transactions(seconds)

    def begin_transaction(self):
        self._producer.begin_transaction()

    def produce(self, *args, **options):
        self._producer.produce(*args, **options)

    def commit_transaction(self, seconds):
        self._producer.commit_transaction(seconds)


class Killed(Spied):
    """Clients of a process that is killed just before its commit."""

    def commit_transaction(self, _):
        assert self._producer.flush(30) == 0, "all of it is at the broker"
        raise KeyboardInterrupt


class KilledLater(Spied):
    """Clients of a process that is killed at its second commit."""

    commits = 0

    def commit_transaction(self, seconds):
        self.commits += 1
        if self.commits > 1:
            raise KeyboardInterrupt
        super().commit_transaction(seconds)


def test_a_dead_letter_and_its_receipt_are_one_transaction(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    clients = clients_for(topic.name)
    with suppress(KeyboardInterrupt):
        dead_letters.settle(KilledLater(clients), topic.name, produces=True)
    assert dead_letters.settle(clients, topic.name, produces=True) == 0
    assert len(topic.messages()) == 2


class Beside(Spied):
    """Clients of a process during which another one acts: before its transactions, and after each commit."""

    def __init__(self, clients, before, after):
        super().__init__(clients)
        self._before, self._after = before, after

    def init_transactions(self, seconds):
        self._before()
        super().init_transactions(seconds)

    def commit_transaction(self, seconds):
        super().commit_transaction(seconds)
        self._after()


def nothing():
    pass


def test_messages_that_become_dead_letters_again_wait_for_the_next_call(topic):
    topic.create(partitions=2)
    topic.send(POISON)
    topic.send(POISON, partition=1)
    chunk(topic)
    rounds = count()

    def again():
        assert next(rounds) < 3, "it has no end"
        topic.grow(2 + next(rounds))
        topic.send(POISON)
        chunk(topic)

    clients = clients_for(topic.name)
    assert dead_letters.settle(Beside(clients, nothing, again), topic.name, produces=True) == 2
    assert dead_letters.settle(clients, topic.name, produces=False) == 3


def test_dead_letters_settled_by_another_process_are_not_settled_again(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    clients = clients_for(topic.name)

    def settle():
        assert dead_letters.settle(clients, topic.name, produces=True) == 1

    assert dead_letters.settle(Beside(clients, settle, nothing), topic.name, produces=True) == 0
    assert len(topic.messages()) == 2


def test_dead_letters_removed_by_the_broker_do_not_make_a_negative_count(topic):
    topic.create()
    for each in (POISON, POISON):
        topic.send(each)
    chunk(topic)
    clients = clients_for(topic.name)
    assert dead_letters.settle(clients, topic.name, produces=False) == 2
    topic.send(POISON)
    chunk(topic)
    place = TopicPartition(dead_letters_of(topic.name), 0, 3)
    topic.admin.delete_records([place])[place].result(120)
    found = dead_letters.opened(clients, topic.name, Open({}), 1000, 10)
    assert (found.count, found.last.split(":")[0]) == (1, f"{topic.name}/0 offset 2")
    loop_ = loop(topic)
    loop_.run_until_idle()
    assert open_reasons()[DEAD].startswith("1 messages of")
    assert dead_letters.settle(clients, topic.name, produces=False) == 1


def test_dead_letters_of_a_recreated_topic_are_counted_from_its_beginning(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    old = Open({0: 100}, {0: 7}, "one that is gone")
    assert dead_letters.opened(clients_for(topic.name), topic.name, old, 1000, 10) == Open({})


def test_a_concurrent_count_of_dead_letters_is_not_overwritten(topic, monkeypatch):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    ledger, name = open_ledger(settings().ledger), f"dead letters of {topic.name}"
    opened = dead_letters.opened

    def beside(*args):
        with ledger.write() as connection:
            put_cursors(connection, {name: "theirs"})
        return opened(*args)

    monkeypatch.setattr(dead_letters, "opened", beside)
    loop(topic).tick()
    with ledger.read() as connection:
        assert get_cursor(connection, name) == "theirs"


def test_a_second_settler_of_dead_letters_fences_the_first(topic):
    topic.create()
    topic.send(POISON)
    chunk(topic)
    clients = clients_for(topic.name)
    first = Killed(clients)
    with pytest.raises(KeyboardInterrupt):
        dead_letters.settle(first, topic.name, produces=True)
    assert dead_letters.settle(clients, topic.name, produces=True) == 1
    with pytest.raises(Exception, match=r"[Ff]enced"):
        first._producer.commit_transaction(10)
    assert len(topic.messages()) == 2


def test_dead_letters_are_listed_newest_first_up_to_a_limit(topic):
    topic.create()
    for _ in range(5):
        topic.send(POISON)
    chunk(topic)
    found = dead_letters.letters(clients_for(topic.name), topic.name, 3)
    assert [each.offset for each in found] == [4, 3, 2]
    assert all(each.reason.startswith("the value begins with byte 110") for each in found)
    assert found[0].at - found[-1].at < timedelta(minutes=1)
