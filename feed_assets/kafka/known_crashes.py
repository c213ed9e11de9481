"""Offsets at which topic partitions crash their reader. The home folder keeps them, so no process reads them again.

Each offset has a small file. A file is written completely or not at all. It is removed once the broker no longer has
the offset.
"""

import json
from contextlib import suppress
from hashlib import sha256
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from feed_assets.home import OWNED, home
from feed_assets.kafka.child_process import Place, Starts
from feed_assets.kafka.clients import SECONDS

FOLDER = "reads"
"""The folder in the home with these files and with the notes of reads."""

_PREFIX = "crash-"


def remember(place: Place, offset: int) -> None:
    """Record that a partition crashes its reader from an offset on. Do nothing if the home folder cannot be written."""
    content = json.dumps([*place, offset])
    with suppress(OSError):
        (folder := home() / FOLDER).mkdir(0o700, exist_ok=True)
        new = folder / f"new-{uuid4().hex}"
        new.touch(OWNED)
        new.write_text(content)
        new.rename(folder / f"{_PREFIX}{sha256(content.encode()).hexdigest()[:32]}")


def among(reader: Consumer, starts: Starts) -> dict[Place, int]:
    """Return the partitions of `starts` that would crash their reader, and from which offset on. Raise KafkaException.

    Forget offsets that the broker no longer has, because messages were deleted or the topic was recreated.
    """
    crashing = dict[Place, int]()
    for path in (home() / FOLDER).glob(f"{_PREFIX}*"):
        try:
            topic, number, offset = json.loads(path.read_text())
        except (OSError, ValueError):  # Another process has removed the file, or the machine has lost its content.
            continue
        if (place := (topic, number)) not in starts:
            continue
        low, high = reader.get_watermark_offsets(TopicPartition(topic, number), timeout=SECONDS)
        if not low <= offset < high:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        elif starts[place] <= offset:
            crashing[place] = min(offset, crashing.get(place, offset))
    return crashing
