"""Dead letters without content: their topic has masked columns, so the message is read from the topic again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from feed_assets.kafka import masks, topic_reader
from feed_assets.kafka.clients import SECONDS
from feed_assets.kafka.messages import Message
from feed_assets.kafka.topic_reader import Placed

_DIGITS = 20


@dataclass(frozen=True)
class Originals:
    """Reader of the messages that a topic with masked columns still has. `mask_key` proves that they are the same."""

    reader: Consumer
    topic: str
    mask_key: bytes

    def of(self, number: int, offset: int, digest: bytes | None) -> Message | None:
        """Return the message at an offset. Return None if the topic no longer has it, or has another one there."""
        low, high = self.reader.get_watermark_offsets(TopicPartition(self.topic, number), timeout=SECONDS)
        message = topic_reader.first(self.reader, self.topic, number, offset) if low <= offset < high else None
        if message is None or message.offset != offset or masks.digest(message, self.mask_key) != digest:
            return None
        return message


def parts(letters: Sequence[Placed], size: int) -> Iterator[list[Placed]]:
    """Yield letters in parts. The messages that are read again for a part have at most `size` bytes, or are one."""
    part, length = list[Placed](), 0
    for each in letters:
        text = dict(each.message.headers).get(masks.SIZE) or b""
        own = int(text) if text.isdigit() and len(text) < _DIGITS else 0
        if part and length + own > size:
            yield part
            part, length = [], 0
        part.append(each)
        length += own
    yield part
