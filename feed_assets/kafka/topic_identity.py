"""The broker's own id of a topic. A recreated topic has another id, and its offsets begin again."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from feed_assets.core.errors import LogTrimmed
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.topic_reader import no_topic


def id_of(admin: Any, topic: str, seconds: float = SECONDS) -> str:
    """Return the broker's own id of a topic. Raise NoTopic, and KafkaException."""
    described = admin.describe_topics(TopicCollection([topic]), request_timeout=seconds)[topic]
    try:
        return str(described.result(seconds + 1).topic_id)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise no_topic(topic) from error
        raise


@contextmanager
def one_topic(
    clients: Clients, topic: str, known_id: str | None, *, advice: str, seconds: float = SECONDS
) -> Generator[str]:
    """Yield the id of the topic that the block reads. Compare the id before and after, to detect a recreation.

    Raise LogTrimmed with `advice` if the topic has another id than `known_id`. Raise NoTopic and KafkaUnavailable.
    """
    with translated(f"read {topic}", admin := clients.admin()):
        topic_id = id_of(admin, topic, seconds)
        _refuse_another(topic, known_id or topic_id, topic_id, advice)
    yield topic_id
    with translated(f"read {topic}", admin):
        _refuse_another(topic, topic_id, id_of(admin, topic, seconds), advice)


def _refuse_another(topic: str, known_id: str, present_id: str, advice: str) -> None:
    if known_id != present_id:
        raise LogTrimmed(
            f"{topic} was deleted and recreated, so its offsets begin again: expected the topic with the id "
            f"{known_id}, but the broker has {present_id}. {advice}"
        )
