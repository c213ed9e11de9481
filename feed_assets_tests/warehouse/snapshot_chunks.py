"""Chunks of a topic with marked snapshots, and oracles in plain Python for its table and for the versions of keys."""

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import Topic
from feed_assets.kafka import dialect
from feed_assets.kafka.cutter import Cutter
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import Message
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.message_history import view_of, with_history
from feed_assets.warehouse.shapes import Shape
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

STATEMENTS = 45


class Sent(NamedTuple):
    """A message: a row, a tombstone (`operation` None), a dead letter, or a marker alone (without a key)."""

    key: int | None
    operation: str | None = "update"
    marker: str = ""
    is_dead: bool = False


class SnapshotStream(Stream):
    """A topic whose messages mark snapshots by a header. With `is_history`, its messages are the rows of a history."""

    is_history = False

    def __init__(self, *place: Any, **options: Any) -> None:
        super().__init__(*place, **options)
        self.topic = Topic(key=("id",), operation="header:op", snapshot_markers="header:snapshot")
        self.sent: dict[int, list[Sent]] = defaultdict(list)

    def shape(self, schema_id: int | None) -> Shape | None:
        shape = super().shape(schema_id)
        return with_history(shape, has_snapshots=True) if shape and self.is_history else shape

    def produce(self, schema_id: int, *messages: Sent, partition: int = 0) -> None:
        """Send messages, and signal their chunks."""
        start, decoder = self.ends.get(partition, 0), Decoder(self.topic, self.schemas)  # type: ignore[arg-type]
        cutter = Cutter(start, Topic(key=("id",), messages=1_000_000))
        chunks = []
        for offset, each in enumerate(messages, start):
            chunks += cutter.add(decoder(self._sent(offset, schema_id, each)), 0)
        last = cutter.due(1e9)
        for chunk in [*chunks, *([last] if last else [])]:
            self._signal(partition, chunk)
        self.sent[partition] += messages
        assert self.ends[partition] == len(self.sent[partition])

    def _sent(self, offset: int, schema_id: int, sent: Sent) -> Message:
        headers = [("op", str(sent.operation).encode())]
        headers += [("snapshot", sent.marker.encode())] if sent.marker else []
        if sent.is_dead or sent.key is None:
            return Message(offset, None, b"no Avro" if sent.is_dead else None, headers)
        names = [each["name"] for each in self.schemas.get(schema_id).declared["fields"]][2:]
        value = {"id": sent.key, "text": f"{offset}", **dict.fromkeys(names, 7)}
        return self._message(offset, schema_id, (sent.operation, value))._replace(headers=headers)

    def _signal(self, partition: int, chunk: Any) -> Signalled:
        marks = {"snapshot_begins": "begin" in chunk.markers, "snapshot_ends": "end" in chunk.markers}
        if not chunk.content:
            (start, end), dead = chunk.offsets, len(chunk.dead)
            self.ends[partition] = end
            facts = (0, dead, dialect.NAME, None, 0, None, None)
            return self._keep(Signal(self.name, partition, start, end - 1, *facts, **marks))
        signalled = super()._signal(partition, chunk)
        marked = Signal(**{**vars(signalled.signal), **marks})
        self.signals[-1] = signalled._replace(signal=marked)
        return self.signals[-1]


def produce_snapshots(stream: SnapshotStream, chance: Random) -> None:
    """Produce changes and snapshots of two partitions. Some snapshots break off, or have dead letters or new schemas.

    Markers are on rows or on messages of their own, and a snapshot may go on in a later call.
    """
    made = [each for each in stream.schemas.known if each != stream.key_id]
    for _ in range(chance.randint(2, 5)):
        if not made or chance.random() < 0.15:
            extra = [{"name": f"x{number}", "type": "int", "default": number} for number in range(len(made))]
            made.append(stream.schemas.add(ID, TEXT, *extra))
        partition = chance.randint(0, 1)
        keys = [2 * chance.randint(0, 7) + partition for _ in range(chance.randint(1, 5))]
        messages = [Sent(key, chance.choice(["update", "create", "refresh", "delete", None])) for key in keys]
        if chance.random() < 0.05:
            messages.append(Sent(None, is_dead=True, marker=chance.choice(["", "begin", "end"])))
        for marker, likelihood in (("begin", 0.4), ("end", 0.4)):
            if chance.random() < likelihood:
                at = chance.randint(0, len(messages))
                if at < len(messages) and chance.random() < 0.5 and not messages[at].marker:
                    messages[at] = messages[at]._replace(marker=marker)
                else:
                    messages.insert(at, Sent(None, None, marker))
        stream.produce(chance.choice(made[-2:]), *messages, partition=partition)


class Ended(NamedTuple):
    """A snapshot that was loaded whole and has no dead letters."""

    partition: int
    begin: int
    end: int


def messages_before(stream: SnapshotStream, nexts: dict[int, int]) -> Iterator[tuple[int, int, Sent]]:
    for partition, messages in sorted(stream.sent.items()):
        for offset, sent in enumerate(messages[: nexts.get(partition, 0)]):
            yield partition, offset, sent


def ended_before(stream: SnapshotStream, nexts: dict[int, int]) -> list[Ended]:
    """Return the whole snapshots among the messages before these offsets."""
    found, begins = list[Ended](), dict[int, int]()
    for partition, offset, sent in messages_before(stream, nexts):
        if sent.is_dead:
            begins.pop(partition, None)
        elif sent.marker == "begin":
            begins[partition] = offset
        elif sent.marker == "end" and partition in begins:
            found.append(Ended(partition, begins.pop(partition), offset))
    return found


def rows_before(stream: SnapshotStream, nexts: dict[int, int]) -> list[tuple[int, str, int, int]]:
    """Return the rows that the table must have, each with id, text, partition and offset."""
    rows = dict[int, tuple[int, str, int, int]]()
    ends = {(each.partition, each.end): each.begin for each in ended_before(stream, nexts)}
    for partition, offset, sent in messages_before(stream, nexts):
        if sent.key is not None and not sent.is_dead:
            rows.pop(sent.key, None)
            if sent.operation not in (None, "delete"):
                rows[sent.key] = (sent.key, f"{offset}", partition, offset)
        if (begin := ends.get((partition, offset))) is not None:
            rows = {key: row for key, row in rows.items() if row[2] != partition or row[3] >= begin}
    return sorted(rows.values())


def versions_before(stream: SnapshotStream, nexts: dict[int, int]) -> list[tuple[Any, ...]]:
    """Return the versions of all keys, each with id, partition, valid_from, valid_to, and whether it is current."""
    messages_of, snapshots = defaultdict[int, list[Any]](list), ended_before(stream, nexts)
    for partition, offset, sent in messages_before(stream, nexts):
        if sent.key is not None and not sent.is_dead:
            messages_of[sent.key].append((partition, offset, sent.operation))
    found = list[tuple[Any, ...]]()
    for key, messages in messages_of.items():
        for number, (partition, offset, operation) in enumerate(messages):
            ends = [each[1] for each in messages[number + 1 : number + 2]]
            ends += [
                each.begin
                for each in snapshots
                if each.partition == partition
                and each.begin > offset
                and not any(each.begin <= other[1] <= each.end for other in messages)
            ]
            if operation not in (None, "delete"):
                found.append((key, partition, offset, min(ends, default=None), not ends))
    return sorted(found)


def check_snapshots(loader: Loader, stream: SnapshotStream) -> None:
    """Check that the table, or the view of a history, is what the messages before its positions say."""
    known = loader.known(stream)
    if known.shape is None:
        return
    nexts = {number: each.next_offset for number, each in known.positions.items()}
    if stream.is_history:
        columns = "id, _partition, valid_from, valid_to, is_current"
        rows = loader.ask(f"SELECT {columns} FROM {quoted(view_of(stream.name))} ORDER BY 1, 2, 3")
        assert rows == versions_before(stream, nexts), "the versions are not those of the messages"
    else:
        rows = loader.ask(f"SELECT id, text, _partition, _offset FROM {quoted(stream.name)} ORDER BY id")
        assert rows == rows_before(stream, nexts), "the table is not what its positions say"
