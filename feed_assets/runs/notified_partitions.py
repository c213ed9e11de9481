"""Visit the partitions for which a store reports a write or removal, and record their updates, as a listing would.

A message is deleted only when the ledger has the result. If the process is killed before that, the message is delivered
again. Messages may arrive twice, late, never, or in another order. So a visit does not trust the message, but records
what the store has at that moment.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Self
from urllib.parse import urlsplit

from feed_assets.core.errors import InvalidNotification, InvalidSetting
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.core.s3_events import ObjectAddress, parse_objects, partition_of
from feed_assets.feeds.queues import Queue, QueueMessage
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.settings import Settings

MESSAGES_PER_LOOK = 500
"""Maximum number of messages that are received before their partitions are visited.

A large update sends many messages, but its partition is then visited only once.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Bucket:
    """A blackboard that is a bucket or a prefix in a bucket, and the feeds on it by name."""

    bucket: str
    prefix: str
    feeds: Mapping[str, Feed]

    def partition(self, event: ObjectAddress) -> Partition | None:
        """Return the partition that an object belongs to; None if it belongs to no feed on this blackboard."""
        is_below = event.bucket == self.bucket and event.key.startswith(self.prefix)
        return partition_of(event.key.removeprefix(self.prefix), self.feeds) if is_below else None


@dataclass(frozen=True)
class Notified:
    """The queues and buckets of some feeds' blackboards.

    Problems of a queue are reported under the first of its feeds.
    """

    services: Services
    queues: Mapping[Queue, Feed]
    buckets: Sequence[_Bucket]
    appendable: Collection[Feed]

    @classmethod
    def of(cls, services: Services, settings: Settings, feeds: Iterable[Feed], appendable: Collection[Feed]) -> Self:
        """Return the configured queues and buckets for the blackboards of these feeds. Skip missing settings."""
        queues, buckets = dict[Queue, Feed](), list[_Bucket]()
        for name, board_feeds in groupby(sorted(feeds, key=_board_of(services)), key=_board_of(services)):
            by_name = {str(feed): feed for feed in board_feeds}
            with suppress(InvalidSetting):
                place = settings.place(name or None)
                parts = urlsplit(place.url)
                prefix = parts.path.strip("/")
                buckets.append(_Bucket(parts.netloc, f"{prefix}/" if prefix else "", by_name))
                if place.queue:
                    queues.setdefault(Queue(place.queue, place.profile), min(by_name.values()))
        return cls(services, queues, buckets, appendable)

    def hear(self, queue: Queue, out_of_time: Callable[[], bool]) -> bool:
        """Visit all partitions that a queue's messages name. Return False if the time was over first.

        May raise QueueUnavailable.
        """
        messages, is_all = received(queue, out_of_time)
        self.look(queue, messages, out_of_time)
        return is_all and not out_of_time()

    def look(self, queue: Queue, messages: Sequence[QueueMessage], out_of_time: Callable[[], bool]) -> None:
        """Visit the partitions named in messages, each once, and delete the messages. May raise QueueUnavailable.

        Messages about a feed that cannot be read, or for which there was no time, stay and are delivered again.
        """
        concerned = dict[QueueMessage, set[Partition]]()
        for each in messages:
            if (of := self._concerned(queue, each)) is not None:
                concerned[each] = of
            if out_of_time():  # A sender may fill 500 messages with thousands of objects each.
                break
        looked = self._sync({partition for of in concerned.values() for partition in of}, out_of_time)
        queue.delete([each for each, of in concerned.items() if of <= looked])

    def _concerned(self, queue: Queue, message: QueueMessage) -> set[Partition] | None:
        """Return the partitions of our feeds that a message names. Return None if no store has written the message.

        Such a message stays on the queue. If the queue's URL is mistyped, the message may belong to another team.
        """
        try:
            objects = parse_objects(message.body)
        except InvalidNotification as error:
            _log.warning("%s: the message %s stays on the queue: %s", queue.url, message.id, error)
            return None
        partitions = {bucket.partition(each) for each in objects for bucket in self.buckets}
        return {partition for partition in partitions if partition}

    def _sync(self, partitions: Collection[Partition], out_of_time: Callable[[], bool]) -> set[Partition]:
        """Visit at least one partition, and more until the time is over. Return the partitions that could be read."""
        looked, failed = set[Partition](), dict[str, str]()
        for partition in sorted(partitions):
            feed = partition.feed
            if str(feed) in failed:
                continue
            if looked and out_of_time():
                break
            with failing_alone(failed, str(feed)):
                board, now = self.services.board_of(feed), self.services.now()
                sync(board, self.services.ledger, partition, now, is_batch=feed in self.appendable)
                looked.add(partition)
        for feed, why in failed.items():
            _log.warning("%s could not be read after its store reported a change: %s", feed, why)
        return looked


def _board_of(services: Services) -> Callable[[Feed], str]:
    return lambda feed: services.elsewhere.get(feed) or ""


def received(queue: Queue, out_of_time: Callable[[], bool], seconds: int = 0) -> tuple[list[QueueMessage], bool]:
    """Return a queue's messages, waiting up to `seconds` for the first, and whether the queue is now empty."""
    messages = new_messages = queue.receive(seconds)
    while new_messages:
        if len(messages) >= MESSAGES_PER_LOOK or out_of_time():
            return messages, False
        new_messages = queue.receive()
        messages = [*messages, *new_messages]
    return messages, True
