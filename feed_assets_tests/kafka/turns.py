"""A connector over a real broker that takes the same steps on any machine, so that tests can count them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from feed_assets.kafka import service
from feed_assets.kafka.clients import Clients
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.stepped_clients import CalledClients, PolledConsumer, StepClock

EMPTY = "empty"
"""Step of a poll without a message; with one it is "message of PARTITION"."""

MOST_STEPS = 500
"""Number of steps after which a connector counts as waiting forever."""


class _PolledClients(CalledClients):
    """Clients whose group member polls with `poll(consumer, seconds)`."""

    def __init__(
        self, clients: Clients, after: Callable[[Producer, str], None], poll: Callable[[Consumer, float], Any]
    ) -> None:
        super().__init__(clients, after)
        self._poll = poll

    def consumer(self) -> PolledConsumer:
        return PolledConsumer(self._clients.consumer(), self._poll)


class Turns:
    """A connector that ran until `chunks` were signalled, and its steps: polls, producer calls, `on_step`."""

    def __init__(
        self,
        world: World,
        arrivals: Sequence[Sequence[tuple[int, int]]],
        *,
        chunks: int = 1,
        already: int = 0,
        seconds_each: float = 0,
    ) -> None:
        self.clock, self.steps, self.times = StepClock(), list[str](), list[float]()
        self._world, self._arrivals, self._seconds_each = world, iter(arrivals), seconds_each
        self._chunks, self._coming, self._stopping = chunks, already, Event()
        chunking = world.place.chunking("one", on_step=self._on_step, clock=self.clock)
        clients: Any = _PolledClients(chunking.clients, lambda _, call: self._note(call), self._poll)
        try:
            service.run(replace(chunking, clients=clients), {world.name: world.settings}, self._stopping)
        finally:
            chunking.schemas.close()

    def after(self, step: str) -> list[str]:
        """Return the steps behind the first one of this name."""
        return self.steps[self.steps.index(step) + 1 :]

    def seconds(self, first: str, last: str) -> float:
        """Return the time by the clock from the first step of one name to the first of another."""
        return round(self.times[self.steps.index(last)] - self.times[self.steps.index(first)], 6)

    def _note(self, step: str) -> None:
        self.steps.append(step)
        self.times.append(self.clock())

    def _on_step(self, step: str) -> None:
        self._note(step)
        if self.steps.count("signalled") == self._chunks:
            self._stopping.set()

    def _poll(self, consumer: Consumer, seconds: float) -> Any:
        for partition, count in next(self._arrivals, ()):
            self._world.produce(count, partition)
            self._coming += count
        assert len(self.steps) < MOST_STEPS, f"nothing was signalled: {self.steps[-20:]}"
        if not self._coming:
            self.clock.wait(seconds)
            self._note(EMPTY)
            return consumer.poll(0)
        received = consumer.poll(30)
        while received is not None and received.error() and received.error().code() == KafkaError._PARTITION_EOF:
            received = consumer.poll(30)
        assert received is not None, "the broker did not answer within 30 s"
        assert received.error() is None, received.error()
        self._coming -= 1
        self.clock.wait(self._seconds_each)
        self._note(f"message of {received.partition()}")
        return received
