"""Dead letters: the messages of a topic that are no records, and what became of them.

A receipt is a message of the same topic and partition: so many letters before an offset are dealt with. It is in one
transaction with the messages that were produced again, so that each of them is there once: a kill undoes both, and who
comes next begins behind the last receipt. Two at once share a transactional id: the first one is put out.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from time import time

from confluent_kafka import Consumer, Producer

from feed_assets.core.chunks import OffsetRange
from feed_assets.core.errors import LetterLeft, LogTrimmed, NoTopic
from feed_assets.core.topics import dead_letters_of
from feed_assets.kafka import log
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.counts import moment_of
from feed_assets.kafka.log import Placed
from feed_assets.kafka.messages import Message
from feed_assets.kafka.signals import CUT, OFFSET, TIMESTAMP
from feed_assets.kafka.topics import config_of

OURS = "feed_assets."
"""What the names of the headers begin with that the service adds."""

LETTERS_PER_READ, BYTES_PER_READ = 1000, 8 << 20
"""Messages and bytes of a read: what one transaction produces again."""

_UPTO, _COUNT = f"{OURS}upto", f"{OURS}count"
_TRANSACTION_SECONDS = 60

Header = tuple[str, str | bytes | None]


@dataclass(frozen=True)
class Letter:
    """A dead letter: the place of its message upstream, why it is no record, and when it was produced (UTC)."""

    partition: int
    offset: int
    reason: str
    at: datetime
    is_open: bool
    """Whether nobody has dealt with it yet."""


@dataclass(frozen=True)
class Receipt:
    """So many letters before an offset of the dead letters' partition are dealt with."""

    upto: int
    count: int


def receipt_of(message: Message) -> Receipt | None:
    """The receipt that a message is; None of a dead letter, whatever its producer has put into its headers."""
    found = dict(message.headers)
    if _UPTO not in found or OFFSET in found:
        return None
    return Receipt(int(found[_UPTO] or 0), int(found[_COUNT] or 0))


def letters(clients: Clients, topic: str, limit: int) -> list[Letter]:
    """The last letters of each partition, newest first. Raises KafkaUnavailable."""
    with closing(clients.reader()) as reader:
        return [each for number in _partitions(reader, topic) for each in _letters(reader, topic, number, limit)]


def _letters(reader: Consumer, topic: str, partition: int, limit: int) -> list[Letter]:
    def is_enough(found: Sequence[Message]) -> bool:
        return sum(receipt_of(each) is None for each in found) >= limit

    found = log.tail(reader, dead_letters_of(topic), partition, is_enough)
    receipts = [each.upto for each in map(receipt_of, found) if each]
    done = max(receipts) if receipts else _done(reader, topic, partition)
    mine = [each for each in found if receipt_of(each) is None]
    return [_letter(partition, each, is_open=each.offset >= done) for each in reversed(mine[-limit:])]


def _letter(partition: int, message: Message, *, is_open: bool) -> Letter:
    said = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    at = moment_of(message._replace(timestamp=int(said[TIMESTAMP])))
    return Letter(partition, int(said[OFFSET]), said[f"{OURS}reason"], at, is_open)


def _partitions(reader: Consumer, topic: str) -> list[int]:
    try:
        return sorted(log.partitions(reader, dead_letters_of(topic)))
    except NoTopic:  # Nothing of it was ever read.
        return []


def _done(reader: Consumer, topic: str, partition: int) -> int:
    """The offset up to which letters are dealt with."""
    found = log.tail(reader, dead_letters_of(topic), partition, bool, lambda each: receipt_of(each) is not None)
    receipts = [each for each in map(receipt_of, found) if each]
    return max((each.upto for each in receipts), default=0)


def settle(clients: Clients, topic: str, *, produces: bool) -> int:
    """Deal with all open letters; how many they were.

    `produces`: their messages go to the topic again, as they were, to their partitions. Of a letter that is only the
    beginning of its message, or that the topic would remove at once, a copy stays open behind the others: then
    LetterLeft is raised at the end. Raises KafkaUnavailable, and then what was not dealt with is so the next time;
    FencedOff.
    """
    producer = clients.producer(f"feed_assets-settle/{topic}", _TRANSACTION_SECONDS)
    with translated(f"deal with the dead letters of {topic}", producer):
        producer.init_transactions(SECONDS)  # First: who was before can write no more, so what is read stays the last.
        settling = _Settling(producer, topic, _first_kept(clients, topic) if produces else None)
        count = _settle(clients, settling, topic, _open_ranges(clients, topic))
    settling.check()
    return count


def _first_kept(clients: Clients, topic: str) -> int:
    """The first moment, in milliseconds since 1970, of which the topic keeps messages as they are produced."""
    config = config_of(clients.admin(), topic)
    kept = int(config["retention.ms"].value)
    is_removed = "delete" in config["cleanup.policy"].value and config["message.timestamp.type"].value == "CreateTime"
    return int(time() * 1000) - kept if is_removed and kept >= 0 else -1


def _open_ranges(clients: Clients, topic: str) -> dict[int, OffsetRange]:
    """Where the open letters of each partition begin, and end as it is now: what is replayed may be a letter again."""
    with closing(clients.reader()) as reader:
        bounds = log.bounds(reader, dead_letters_of(topic)) if _partitions(reader, topic) else {}
        return {each: OffsetRange(max(low, _done(reader, topic, each)), high) for each, (low, high) in bounds.items()}


def _settle(clients: Clients, settling: "_Settling", topic: str, ranges: Mapping[int, OffsetRange]) -> int:
    count, after = 0, {each: start for each, (start, _) in ranges.items()}
    while any(after[each] < end for each, (_, end) in ranges.items()):
        found = log.read(clients, dead_letters_of(topic), after, LETTERS_PER_READ, BYTES_PER_READ, SECONDS)
        mine = [each for each in found.messages if each.partition in ranges]
        left = [each for each in mine if each.message.offset < ranges[each.partition].end]
        if open_ := [each for each in left if receipt_of(each.message) is None]:
            settling.write(open_)
            count += len(open_)
        if found.is_complete:
            break
        after = found.after
    return count


class _Settling:
    """Deals with letters, those of one read in one transaction; without `first_kept` they are dropped."""

    def __init__(self, producer: Producer, topic: str, first_kept: int | None) -> None:
        self._producer, self._topic, self._first_kept = producer, topic, first_kept
        self._left: list[str] = []

    def write(self, letters: Sequence[Placed]) -> None:
        """Produce letters again, or put them behind the others, and a receipt of all of them."""
        self._producer.begin_transaction()
        if self._first_kept is not None:
            for each in letters:
                self._produce(each, self._first_kept)
        for number in sorted({each.partition for each in letters}):
            mine = [each.message.offset for each in letters if each.partition == number]
            receipt: list[Header] = [(_UPTO, str(max(mine) + 1).encode()), (_COUNT, str(len(mine)).encode())]
            self._producer.produce(dead_letters_of(self._topic), None, partition=number, headers=receipt)
        self._producer.commit_transaction(SECONDS)

    def check(self) -> None:
        """Raise LetterLeft if not all were produced."""
        if self._left:
            raise LetterLeft(
                f"{len(self._left):,} dead letters stay open, the others were produced again. The first: "
                f"{self._left[0]} Then --drop what is left."
            )

    def _produce(self, placed: Placed, first_kept: int) -> None:
        number, message = placed
        place = f"{self._topic}/{number} offset {_letter(number, message, is_open=True).offset}"
        timestamp = int(dict(message.headers)[TIMESTAMP] or 0)
        if CUT in dict(message.headers):
            self._keep(placed, f"{place} is only the beginning of its message: produce the message from that place.")
        elif timestamp < first_kept:
            self._keep(
                placed,
                f"{place} is older than {self._topic} keeps messages, which would remove it at once: set its "
                "retention.ms higher for the while, and replay again.",
            )
        else:
            _produce(self._producer, self._topic, number, message, timestamp)

    def _keep(self, placed: Placed, why: str) -> None:
        """Put a letter behind the others, open: a receipt is of all letters before an offset."""
        number, message = placed
        self._left.append(why)
        self._producer.produce(
            dead_letters_of(self._topic), message.value, message.key, number, headers=[*message.headers]
        )


def _produce(producer: Producer, topic: str, partition: int, message: Message, timestamp: int) -> None:
    """The original message: without the headers of ours, with its own time."""
    headers: list[Header] = [each for each in message.headers if not each[0].startswith(OURS)]
    producer.produce(topic, message.value, message.key, partition, headers=headers, timestamp=timestamp)


@dataclass(frozen=True)
class Open:
    """How many letters of a topic are open, as far as it was read: `after` has the offset of each partition."""

    after: Mapping[int, int]
    counts: Mapping[int, int] = field(default_factory=dict[int, int])
    """By partition."""
    last: str = ""
    """The place of the last one, and its reason."""

    @property
    def count(self) -> int:
        """Of all partitions."""
        return sum(self.counts.values())


def opened(clients: Clients, topic: str, known: Open, limit: int, seconds: float) -> Open:
    """What is known after up to `limit` more messages. Raises KafkaUnavailable."""
    try:
        found = log.read(clients, dead_letters_of(topic), known.after, limit, BYTES_PER_READ, seconds)
    except NoTopic:
        return known
    except LogTrimmed:  # The topic was made anew: those of before are nowhere.
        return Open({})
    counts = _counted(known.counts, found.messages)
    return Open(found.after, counts, _last(topic, found.messages) or known.last)


def _counted(known: Mapping[int, int], placed: Iterable[Placed]) -> dict[int, int]:
    """A receipt may be there of letters that the broker has removed before they were counted."""
    counts = {**known}
    for number, message in placed:
        receipt, count = receipt_of(message), counts.get(number, 0)
        counts[number] = count + 1 if receipt is None else max(0, count - receipt.count)
    return counts


def _last(topic: str, placed: Sequence[Placed]) -> str:
    found = [each for each in placed if receipt_of(each.message) is None]
    if not found:
        return ""
    letter = _letter(*found[-1], is_open=True)
    return f"{topic}/{letter.partition} offset {letter.offset}: {letter.reason}"
