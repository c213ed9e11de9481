"""Clients of a real broker whose calls and polls are steps that a test counts, with a clock that only waiting moves."""

from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer

from feed_assets.kafka.clients import Clients

TRANSACTIONAL = frozenset(
    {
        "init_transactions",
        "begin_transaction",
        "produce",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
    }
)
"""Calls of a producer that change the state of the broker."""


class StepClock:
    """Seconds that pass by `wait` alone. Call it for the time, as `monotonic`."""

    def __init__(self) -> None:
        self._now = 1000.0

    def __call__(self) -> float:
        return self._now

    def wait(self, seconds: float) -> None:
        self._now = round(self._now + seconds, 6)


class CalledClients:
    """Clients that run `after(producer, call)` after each call in TRANSACTIONAL of any of their producers."""

    def __init__(self, clients: Clients, after: Callable[[Producer, str], None]) -> None:
        self._clients, self._after = clients, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clients, name)

    def producer(self, *arguments: Any) -> "_CalledProducer":
        return _CalledProducer(self._clients.producer(*arguments), self._after)


class _CalledProducer:
    def __init__(self, producer: Producer, after: Callable[[Producer, str], None]) -> None:
        self._producer, self._after = producer, after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._producer, name)
        return partial(self._call, name, method) if name in TRANSACTIONAL else method

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        self._after(self._producer, name)
        return result


class PolledConsumer:
    """A consumer whose `poll` calls `poll(consumer, seconds)` of a test."""

    def __init__(self, consumer: Consumer, poll: Callable[[Consumer, float], Any]) -> None:
        self._consumer, self._poll = consumer, poll

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def poll(self, seconds: float) -> Any:
        return self._poll(self._consumer, seconds)
