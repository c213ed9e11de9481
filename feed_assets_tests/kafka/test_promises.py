"""Promises of the connector for moments that are hard to reproduce."""

from threading import Event
from types import SimpleNamespace

from confluent_kafka import KafkaError, KafkaException

from feed_assets.core.errors import FencedOff, KafkaUnavailable, LogTrimmed
from feed_assets.kafka import service
from feed_assets.kafka.signals import TRANSACTION_SECONDS, Signals
from feed_assets_tests.kafka.topic_steps import trim
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import wait_until


@each_case(("seconds", "expected"), [(1, FencedOff), (TRANSACTION_SECONDS + 1, KafkaUnavailable)])
def test_a_connector_that_overslept_its_transaction_is_not_reported_as_fenced(seconds, expected):
    signals = Signals.__new__(Signals)
    signals.topic, signals.partition = "clicks", 0
    assert type(signals._failed(KafkaException(KafkaError(KafkaError._FENCED)), seconds)) is expected


def test_pauses_get_longer_until_something_was_signalled(monkeypatch):
    pauses, signalled = list[float](), [False, False, False, True, False]

    class Waiting(Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            if len(pauses) == len(signalled):
                self.set()

    class Failing:
        def __init__(self, *_, **__):
            self.has_signalled, self.topics = signalled[len(pauses)], {"t": None}

        def run(self):
            raise KafkaUnavailable("away")

    monkeypatch.setattr(service, "ConnectorSession", Failing)
    service.run(SimpleNamespace(clock=lambda: 0.0), {"t": None}, Waiting(), (1, 60))
    assert pauses == [1, 2, 4, 1, 2]


def test_a_log_that_is_trimmed_while_it_is_read_raises(world, monkeypatch):
    """Read one message ahead, so that the next one is trimmed before it is requested."""
    monkeypatch.setattr("feed_assets_tests.support.kafka_topics.QUICK", LITTLE)
    asleep, awake = Event(), Event()

    def sleep(step):
        if step == "put":
            asleep.set()
            assert awake.wait(60)

    world.settings = world.settings.model_copy(update={"messages": 1})
    world.create()
    for _ in range(30):
        world.produce()
    with world.connector(on_step=sleep) as running:
        assert asleep.wait(60)
        trim(world, world.name, 28)
        awake.set()
        wait_until(lambda: running.error is not None or world.reached() > 28, "an error", 60, 0.1)
        assert isinstance(running.ended_with(), LogTrimmed)


LITTLE = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "queued.min.messages": "1",
    "max.partition.fetch.bytes": "1",
}
