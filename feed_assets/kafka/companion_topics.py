"""The two topics beside each upstream topic: for its signals, and for its dead letters.

Both have at least as many partitions as the upstream topic.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage] - where they are documented
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.home import say
from feed_assets.kafka import topic_reader
from feed_assets.kafka.clients import SECONDS, translated
from feed_assets.kafka.topic_identity import id_of

_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
LEAST = 8 << 20
"""The smallest message limit of the two topics, in bytes.

The limit of the upstream topic may be too small here, because it applies to messages as their producer compressed them.
"""

_HEADERS = 64 << 10
"""Number of bytes by which a dead letter may be larger than its message, because of its headers."""

_GREATEST = 2**31 - 1
"""The greatest message limit that a broker accepts, in bytes."""

_LONGEST, _USUAL = "max.message.bytes", 1 << 20
"""The name of the setting for a topic's message limit, and the setting's default in bytes."""

_REFUSALS = frozenset(
    {"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "POLICY_VIOLATION", "INVALID_CONFIG"}
)

_DONE = frozenset({"TOPIC_ALREADY_EXISTS", "INVALID_PARTITIONS"})
"""Error codes that mean that another process has already made the same change."""


NO_TOPIC = "the broker has no topic {}. Create it, or correct the name."


class About(NamedTuple):
    """The broker's id of a topic, and the most bytes that the broker accepts for a dead letter."""

    topic_id: str
    longest: int


def prepare(admin: Any, topic: str) -> About:
    """Create the topics of signals and of dead letters that belong to a topic.

    If they exist, add missing partitions and raise their message limit. Raise KafkaUnavailable.
    """
    with translated(f"prepare the topics of {topic}", admin):
        count = partitions(admin, topic)
        if not count:
            raise KafkaUnavailable(NO_TOPIC.format(topic))
        longest = min(max(LEAST, int(config_of(admin, topic)[_LONGEST].value) + _HEADERS), _GREATEST)
        limit = longest
        for name in (signals_of(topic), dead_letters_of(topic)):
            limit = _widen(admin, name, longest)
            _grow(admin, name, count, longest)
        return About(id_of(admin, topic), limit)


def foreign(admin: Any, topic: str) -> str | None:
    """Return a topic of somebody else with the name of one that `prepare` would make. Return None if there is none.

    Ours are never removed by age or size. Raise KafkaUnavailable.
    """
    with translated(f"look for the topics of {topic}", admin):
        for name in (signals_of(topic), dead_letters_of(topic)):
            if partitions(admin, name):
                config = config_of(admin, name)
                if any(config[setting].value != value for setting, value in _FOR_EVER.items()):
                    return name
    return None


def partitions(admin: Any, topic: str) -> int:
    """Return how many partitions a topic has; 0 if there is no such topic."""
    return len(topic_reader.listed(admin, topic))


def config_of(admin: Any, topic: str) -> Mapping[str, Any]:
    """Return the configuration of a topic; each entry has a `value`. Raise KafkaException."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return admin.describe_configs([resource])[resource].result(SECONDS)


def _widen(admin: Any, name: str, longest: int) -> int:
    """Increase the message limit of an existing topic to `longest`. If the broker refuses, print a line.

    Return the limit that the topic has then.
    """
    limit = _USUAL if partitions(admin, name) else longest
    try:
        if limit < longest and (limit := int(config_of(admin, name)[_LONGEST].value)) < longest:
            entry = ConfigEntry(_LONGEST, str(longest), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(SECONDS)
            limit = longest
    except KafkaException as error:
        if error.args[0].name() not in _REFUSALS:
            raise
        problem = f"{name} has too small a message limit, which cannot be changed: {error.args[0].str()}"
        say(f"connector: {problem}. Set its {_LONGEST} to {longest}: otherwise longer dead letters are cut.")
    return limit


def _grow(admin: Any, name: str, count: int, longest: int) -> None:
    current = partitions(admin, name)
    if current >= count:
        return
    if current:
        _done(admin.create_partitions([NewPartitions(name, count)])[name])
    else:
        config = {**_FOR_EVER, _LONGEST: str(longest)}
        _done(admin.create_topics([NewTopic(name, count, config=config)])[name])
    until = monotonic() + SECONDS
    while partitions(admin, name) < count:
        if monotonic() > until:
            raise KafkaUnavailable(f"{name} does not have {count} partitions after {SECONDS:g} s. Check the broker.")
        sleep(0.02)


def _done(future: Future[Any]) -> None:
    try:
        future.result(SECONDS)
    except KafkaException as error:
        if error.args[0].name() not in _DONE:
            raise
