"""Dead letters: messages of a topic that are not valid records, and how they are settled: produced again, or dropped.

A receipt is a message of the same topic partition as the letters. It settles the open letters before an offset. One
transaction contains the receipt and the messages that are produced again, so each message appears once. If a kill
interrupts the transaction, readers see neither the receipt nor these messages. The next process begins after the last
receipt. All processes use the same transactional id, so a second process fences off the first.
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
from feed_assets.kafka import sealed_letters, topic_reader
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.companion_topics import config_of
from feed_assets.kafka.masks import DIGEST
from feed_assets.kafka.message_counts import moment_of
from feed_assets.kafka.messages import Headers, Message
from feed_assets.kafka.sealed_letters import Originals
from feed_assets.kafka.signals import CUT, OFFSET, OWN, TIMESTAMP
from feed_assets.kafka.snapshot_markers import REPLAYED
from feed_assets.kafka.topic_reader import Placed

OURS = "feed_assets."
"""Prefix of the header names that the connector adds."""

LETTERS_PER_READ, BYTES_PER_READ = 1000, 8 << 20
"""The most messages and bytes of one read. One transaction settles the letters of a read."""

_UPTO, _COUNT = f"{OURS}upto", f"{OURS}count"
_TRANSACTION_SECONDS = 60
_DIGITS = 20

Header = tuple[str, str | bytes | None]

_REPLAYED: Sequence[Header] = ((REPLAYED, b"1"),)


@dataclass(frozen=True)
class Letter:
    """A dead letter: a message that is not a valid record.

    `partition` and `offset` are its place in the upstream topic. `reason` says why it is not valid. `at` is its
    timestamp (UTC).
    """

    partition: int
    offset: int
    reason: str
    at: datetime
    is_open: bool
    """True until the letter is settled."""


@dataclass(frozen=True)
class Receipt:
    """A message that settles `count` dead letters: all open letters of its partition before the offset `upto`."""

    upto: int
    count: int


def receipt_of(message: Message) -> Receipt | None:
    """Return the receipt in a message; None for a dead letter, whatever headers its producer has set.

    Also return None for a message that is neither, because somebody else has written it.
    """
    headers = dict(message.headers)
    if OFFSET in headers or not _are_numbers(headers, _UPTO, _COUNT):
        return None
    return Receipt(int(headers[_UPTO] or 0), int(headers[_COUNT] or 0))


def _is_letter(message: Message) -> bool:
    """Return whether a message is a dead letter, and not a receipt or a message of somebody else."""
    headers = dict(message.headers)
    return f"{OURS}reason" in headers and _are_numbers(headers, OFFSET, TIMESTAMP)


def _are_numbers(headers: Mapping[str, bytes | None], *names: str) -> bool:
    """Return whether all these headers have numbers that fit into 64 bits."""
    values = [headers.get(name) or b"" for name in names]
    return all(each.isdigit() and len(each) < _DIGITS and int(each) < 1 << 63 for each in values)


def letters(clients: Clients, topic: str, limit: int) -> list[Letter]:
    """Return the last dead letters (messages that are not valid records) of each partition, newest first.

    Raise KafkaUnavailable.
    """
    with closing(clients.reader()) as reader:
        return [each for number in _partitions(reader, topic) for each in _letters(reader, topic, number, limit)]


def _letters(reader: Consumer, topic: str, partition: int, limit: int) -> list[Letter]:
    def is_enough(messages: Sequence[Message]) -> bool:
        return sum(map(_is_letter, messages)) >= limit

    messages = topic_reader.tail(reader, dead_letters_of(topic), partition, is_enough)
    receipts = [each.upto for each in map(receipt_of, messages) if each]
    done = max(receipts) if receipts else _done(reader, topic, partition)
    unread = [each for each in messages if _is_letter(each)]
    return [_letter(partition, each, is_open=each.offset >= done) for each in reversed(unread[-limit:])]


def _letter(partition: int, message: Message, *, is_open: bool) -> Letter:
    headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers}
    at = moment_of(message._replace(timestamp=int(headers[TIMESTAMP])))
    return Letter(partition, int(headers[OFFSET]), headers[f"{OURS}reason"], at, is_open)


def _partitions(reader: Consumer, topic: str) -> list[int]:
    try:
        return sorted(topic_reader.partitions(reader, dead_letters_of(topic)))
    except NoTopic:  # The connector has never read the topic.
        return []


def _done(reader: Consumer, topic: str, partition: int) -> int:
    """Return the offset up to which all dead letters are settled: produced again, or dropped."""
    messages = topic_reader.tail(
        reader, dead_letters_of(topic), partition, bool, lambda each: receipt_of(each) is not None
    )
    receipts = [each for each in map(receipt_of, messages) if each]
    return max((each.upto for each in receipts), default=0)


def settle(clients: Clients, topic: str, *, produces: bool, mask_key: bytes = b"", has_markers: bool = False) -> int:
    """Settle all open dead letters (messages that are not valid records), and return their number.

    With `produces`, their messages are produced again to the same partitions, unchanged. Otherwise they are dropped. A
    message is not produced again if its letter was cut, or if the topic would remove the message at once because of its
    age. Such letters stay open, and at the end LetterLeft is raised. After FencedOff or KafkaUnavailable, the next call
    settles the letters that are still open.

    The message of a letter without content is read from the topic again. `mask_key` proves that it is the same one.
    `has_markers` is True if messages of the topic mark snapshots. A message that is produced again then gets a header,
    because it marks nothing.
    """
    producer = clients.producer(f"feed_assets-settle/{topic}", _TRANSACTION_SECONDS)
    with closing(clients.reader()) as reader, translated(f"settle the dead letters of {topic}", producer):
        # Do this first: an earlier process must not add a receipt after this process has read the last receipt.
        producer.init_transactions(SECONDS)
        originals = Originals(reader, topic, mask_key)
        first_kept = _first_kept(clients, topic) if produces else None
        settling = _Settling(producer, topic, first_kept, originals, added=_REPLAYED if has_markers else ())
        count = _settle(clients, settling, topic, _open_ranges(clients, topic))
    settling.check()
    return count


def _first_kept(clients: Clients, topic: str) -> int:
    """Return the earliest timestamp that the topic still keeps, in milliseconds since 1970; -1 if it keeps all."""
    config = config_of(clients.admin(), topic)
    kept = int(config["retention.ms"].value)
    is_removed = "delete" in config["cleanup.policy"].value and config["message.timestamp.type"].value == "CreateTime"
    return int(time() * 1000) - kept if is_removed and kept >= 0 else -1


def _open_ranges(clients: Clients, topic: str) -> dict[int, OffsetRange]:
    """Return the range of offsets with open letters, by partition.

    The range ends at the partition's present end. Later letters are excluded, because they may come from messages that
    this process produces again.
    """
    with closing(clients.reader()) as reader:
        bounds = topic_reader.bounds(reader, dead_letters_of(topic)) if _partitions(reader, topic) else {}
        return {each: OffsetRange(max(low, _done(reader, topic, each)), high) for each, (low, high) in bounds.items()}


def _settle(clients: Clients, settling: "_Settling", topic: str, ranges: Mapping[int, OffsetRange]) -> int:
    count, after = 0, {each: start for each, (start, _) in ranges.items()}
    while any(after[each] < end for each, (_, end) in ranges.items()):
        read_messages = topic_reader.read(
            clients,
            dead_letters_of(topic),
            after,
            limit=LETTERS_PER_READ,
            size=BYTES_PER_READ,
            seconds=SECONDS,
            kept=topic_reader.unchanged,
        )
        in_ranges = [each for each in read_messages.messages if each.partition in ranges]
        unsettled = [each for each in in_ranges if each.message.offset < ranges[each.partition].end]
        if open_ := [each for each in unsettled if _is_letter(each.message)]:
            for each in sealed_letters.parts(open_, BYTES_PER_READ):
                settling.write(each)
            count += len(open_)
        if read_messages.is_complete:
            break
        after = read_messages.after
    return count


class _Settling:
    """Settlement of dead letters: each is produced again or dropped. One transaction settles the letters of one read.

    `first_kept` is the earliest timestamp that the topic keeps. None means that all letters are dropped.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        first_kept: int | None,
        originals: Originals,
        *,
        added: Sequence[Header] = (),
    ) -> None:
        self._producer, self._topic, self._first_kept, self._originals = producer, topic, first_kept, originals
        self._added = added
        self._left: list[str] = []

    def write(self, letters: Sequence[Placed]) -> None:
        """Produce the messages of letters again, or drop them, and write a receipt.

        The receipt settles every letter up to the last of `letters`. So write a copy, which has a later offset, of each
        letter that stays open.
        """
        # Read messages before the transaction begins, because the broker aborts a long one.
        contents = [self._content(each) for each in letters] if self._first_kept is not None else []
        self._producer.begin_transaction()
        for each, content in zip(letters if contents else (), contents, strict=True):
            self._produce(each, content, self._first_kept or 0)
        for number in sorted({each.partition for each in letters}):
            offsets = [each.message.offset for each in letters if each.partition == number]
            receipt: list[Header] = [(_UPTO, str(max(offsets) + 1).encode()), (_COUNT, str(len(offsets)).encode())]
            self._producer.produce(dead_letters_of(self._topic), None, partition=number, headers=receipt)
        self._producer.commit_transaction(SECONDS)

    def check(self) -> None:
        """Raise LetterLeft if some dead letters could not be produced again."""
        if self._left:
            raise LetterLeft(
                f"{len(self._left):,} dead letters stay open, and the others were produced again. The first: "
                f"{self._left[0]} Correct what you can and replay again, then drop the rest with --drop."
            )

    def _content(self, placed: Placed) -> Message | None:
        """Return a letter's message with its own headers; None if the letter has no content, and the topic neither."""
        own, added = _parted(placed.message)
        if DIGEST not in added:
            return placed.message._replace(headers=own)
        return self._originals.of(placed.partition, int(added[OFFSET] or 0), added[DIGEST])

    def _produce(self, placed: Placed, content: Message | None, first_kept: int) -> None:
        number, message = placed
        place = f"{self._topic}/{number} offset {_letter(number, message, is_open=True).offset}"
        _, added = _parted(message)
        timestamp = int(added[TIMESTAMP] or 0)
        if content is None:
            self._keep(
                placed,
                f"{place} has a letter without content, for masked columns, and {self._topic} has its message no "
                "longer, or FEED_ASSETS_MASK_KEY is another one: produce the message by hand.",
            )
        elif CUT in added:
            self._keep(placed, f"{place} has only the beginning of its message: produce the whole message by hand.")
        elif timestamp < first_kept:
            self._keep(
                placed,
                f"{place} is older than {self._topic} keeps messages, so the topic would remove it at once: raise its "
                "retention.ms for a while, and replay again.",
            )
        else:
            own: list[Header] = [*content.headers, *self._added]
            self._producer.produce(self._topic, content.value, content.key, number, headers=own, timestamp=timestamp)

    def _keep(self, placed: Placed, why: str) -> None:
        """Keep a dead letter open by writing a copy of it, and keep the reason `why` for `check`.

        The transaction's receipt settles the letters before an offset. The copy comes after it, so it stays open.
        """
        number, message = placed
        self._left.append(why)
        self._producer.produce(
            dead_letters_of(self._topic), message.value, message.key, number, headers=[*message.headers]
        )


def _parted(message: Message) -> tuple[Headers, Mapping[str, bytes | None]]:
    """Return the headers of a letter's original message, and the headers that the connector added after them.

    Letters of earlier versions do not have the number of original headers. For these, each header with our prefix
    counts as added.
    """
    if message.headers and message.headers[-1][0] == OWN and _are_numbers(dict(message.headers[-1:]), OWN):
        count = int(message.headers[-1][1] or 0)
        return message.headers[:count], dict(message.headers[count:])
    own = [each for each in message.headers if not each[0].startswith(OURS)]
    return own, dict(message.headers)


@dataclass(frozen=True)
class Open:
    """Numbers of a topic's open dead letters, counted up to the offset that `after` has for each partition."""

    after: Mapping[int, int]
    counts: Mapping[int, int] = field(default_factory=dict[int, int])
    """Open letters by partition."""
    last: str = ""
    """The place of the last letter, and its reason."""

    @property
    def count(self) -> int:
        """Return the number of open dead letters in all partitions."""
        return sum(self.counts.values())


def opened(clients: Clients, topic: str, before: Open, limit: int, seconds: float) -> Open:
    """Return a topic's numbers of open dead letters: `before`, changed by up to `limit` messages that came later.

    Raise KafkaUnavailable.
    """
    try:
        read_messages = topic_reader.read(
            clients,
            dead_letters_of(topic),
            before.after,
            limit=limit,
            size=BYTES_PER_READ,
            seconds=seconds,
            kept=topic_reader.unchanged,
        )
    except NoTopic:
        return before
    except LogTrimmed:  # The topic was recreated: its earlier letters are gone.
        return Open({})
    counts = _counted(before.counts, read_messages.messages)
    return Open(read_messages.after, counts, _last(topic, read_messages.messages) or before.last)


def _counted(before: Mapping[int, int], placed: Iterable[Placed]) -> dict[int, int]:
    """Return the number of open dead letters by partition, after more messages of the dead letters' topic.

    A receipt settles letters that were produced again or dropped. It may also settle letters that the broker removed
    before they were counted, so a count never falls below 0.
    """
    counts = {**before}
    for number, message in placed:
        receipt, count = receipt_of(message), counts.get(number, 0)
        counts[number] = max(0, count - receipt.count) if receipt else count + _is_letter(message)
    return counts


def _last(topic: str, placed: Sequence[Placed]) -> str:
    placed_letters = [each for each in placed if _is_letter(each.message)]
    if not placed_letters:
        return ""
    letter = _letter(*placed_letters[-1], is_open=True)
    return f"{topic}/{letter.partition} offset {letter.offset}: {letter.reason}"
