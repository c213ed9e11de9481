"""The two topics beside each one that is read: they have as many partitions as it, and get more when it gets more."""

from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource  # pyright: ignore[reportPrivateImportUsage] - where it is documented
from confluent_kafka.cimpl import NewPartitions, NewTopic

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.kafka import log
from feed_assets.kafka.clients import SECONDS, translated

_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1"}
_HEADERS = 64 << 10
"""Bytes by which a dead letter may be longer than the message that it is."""

_DONE = frozenset({"TOPIC_ALREADY_EXISTS", "INVALID_PARTITIONS"})
"""What is said where another process was faster."""


def prepare(admin: Any, topic: str) -> str:
    """Make the topics of signals and dead letters, or add partitions; the id of the topic. Raises KafkaUnavailable."""
    with translated(f"prepare the topics of {topic}"):
        wanted = partitions(admin, topic)
        if not wanted:
            raise KafkaUnavailable(f"the broker has no topic {topic}. Create it, or correct the name.")
        for name in (signals_of(topic), dead_letters_of(topic)):
            _grow(admin, topic, name, wanted)
        return id_of(admin, topic)


def id_of(admin: Any, topic: str) -> str:
    """The broker's own id of a topic: one that is made anew under its name has another. Raises KafkaException."""
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).topic_id)


def partitions(admin: Any, topic: str) -> int:
    """How many partitions a topic has; 0 if there is no such topic."""
    return len(log.listed(admin, topic))


def config_of(admin: Any, topic: str) -> Mapping[str, Any]:
    """The configuration of a topic, each of its entries with a `value`. Raises KafkaException."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(SECONDS)


def _grow(admin: Any, topic: str, name: str, wanted: int) -> None:
    there = partitions(admin, name)
    if there >= wanted:
        return
    if there:
        _done(admin.create_partitions([NewPartitions(name, wanted)])[name])
    else:
        longest = _longest(admin, topic) + _HEADERS
        config = {**_FOR_EVER, "max.message.bytes": str(longest)}
        _done(admin.create_topics([NewTopic(name, wanted, config=config)])[name])
    until = monotonic() + SECONDS
    while partitions(admin, name) < wanted:
        if monotonic() > until:
            raise KafkaUnavailable(f"{name} has no {wanted} partitions after {SECONDS:g} s. Check the broker.")
        sleep(0.02)


def _longest(admin: Any, topic: str) -> int:
    """The bytes of a message that a topic takes."""
    return int(config_of(admin, topic)["max.message.bytes"].value)


def _done(made: Future[Any]) -> None:
    try:
        made.result(SECONDS)
    except KafkaException as error:
        if error.args[0].name() not in _DONE:
            raise
