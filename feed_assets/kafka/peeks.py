"""The next message of topic partitions, read by a child process, so that no message can crash a sensor."""

import json
import sys
from collections.abc import Mapping

from confluent_kafka import Consumer

from feed_assets.core.errors import FeedAssetsError, KafkaUnavailable
from feed_assets.kafka import child_process, known_crashes, topic_reader, unreadable
from feed_assets.kafka.clients import SECONDS, Clients
from feed_assets.kafka.messages import Message

_NO_MESSAGE = -1


def first(clients: Clients, reader: Consumer, topic: str, begins: Mapping[int, int]) -> dict[int, Message]:
    """Return each partition's first message at or after its offset in `begins`, without its content.

    Leave out partitions without such a message. Raise KafkaUnavailable, also if a message crashes the child. The home
    folder then keeps the offset, so that this message is never read again.
    """
    if not begins:
        return {}
    if crashing := known_crashes.among(reader, {(topic, number): offset for number, offset in begins.items()}):
        raise unreadable.refused(topic, crashing)
    job = {"conf": clients.properties, "topic": topic, "begins": [*begins.items()]}
    progress = [_NO_MESSAGE] * (1 + 2 * len(begins))
    ended = child_process.run("feed_assets.kafka.peeks", job, progress, SECONDS * len(begins))
    at, *values = ended.progress
    if ended.is_crash and at != _NO_MESSAGE:
        number, offset = [*begins.items()][at]
        known_crashes.remember((topic, number), offset)
        raise unreadable.refused(topic, {(topic, number): offset})
    if not ended.is_success:
        raise KafkaUnavailable(ended.text or f"cannot read {topic}: the process that reads it has ended. Try again.")
    return {
        number: Message(offset, None, None, (), moment)
        for number, offset, moment in zip(begins, values[::2], values[1::2], strict=True)
        if offset != _NO_MESSAGE
    }


def main() -> None:
    """Run as the child process: read the first message of each partition that the standard input lists."""
    job = json.load(sys.stdin)
    reader = Clients(job["conf"]).peeker()
    try:
        for at, (number, offset) in enumerate(job["begins"]):
            child_process.report(0, at)
            if message := topic_reader.first(reader, job["topic"], number, offset):
                child_process.report(2 * at + 1, message.offset)
                child_process.report(2 * at + 2, message.moment)
    except FeedAssetsError as error:
        sys.exit(str(error))
    finally:
        reader.close()


if __name__ == "__main__":
    main()
