"""Errors for messages that nobody can read: they cannot be unpacked, or they crash the process that reads them."""

from collections.abc import Mapping

from confluent_kafka import KafkaError

from feed_assets.core.errors import KafkaUnavailable, MessageUnreadable

CODES = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
"""Errors for messages that cannot be unpacked, for example because of their size. A retry would not help."""

_CURE = "None is signalled. Stop their producer, delete them (kafka-delete-records), then restart the connector."


def not_unpacked(offset: int, error: KafkaError) -> MessageUnreadable:
    """Return the error for a partition whose messages at and after `offset` cannot be unpacked."""
    return MessageUnreadable(f"its messages from offset {offset} on cannot be unpacked: {error.str()}. {_CURE}")


class CrashesReader(MessageUnreadable):
    """Messages of a topic partition crash the process that reads them."""


def crashing(offset: int) -> CrashesReader:
    """Return the error for a partition with messages at or after `offset` that crash their reader."""
    return CrashesReader(
        f"some of its messages from offset {offset} on crash the process that reads them (librdkafka). {_CURE}"
    )


def refused(topic: str, crashing: Mapping[tuple[str, int], int]) -> KafkaUnavailable:
    """Return the error for a topic with messages that crash their reader. `crashing` has the first offset of these."""
    places = ", ".join(f"{number} from offset {offset} on" for (_, number), offset in sorted(crashing.items()))
    return KafkaUnavailable(
        f"cannot read {topic}: some messages of partition {places} crash the process that reads them. "
        "Stop their producer, and delete them (kafka-delete-records)."
    )
