"""The cutter makes chunks of the decoded messages of one topic partition. No other code decides where a chunk ends.

A chunk ends at the first of: a grid line (a multiple of the topic's message limit), a message with another schema, the
begin or the end of a snapshot, the byte limit, the time limit. All of these except the time limit depend only on the
messages. The caller passes the time, so the cutter reads no clock. If a chunk ends early, the next chunk still ends at
the next grid line.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, Any

from feed_assets.core.chunks import OffsetRange, line_after, line_before
from feed_assets.core.topics import Topic
from feed_assets.kafka import dialect
from feed_assets.kafka.messages import OFFSET, OPERATION, ChunkRow, DeadLetter, Decoded, Marker, Tombstone

CHUNK_BYTES = 32 << 20
"""Uncompressed bytes after which a chunk ends. The whole content is in memory only when the chunk ends."""

_MINUTE = 60_000
"""A minute in milliseconds."""

HELD_BYTES, HELD = 4 << 20, 10_000
"""Dead letters, and tombstones before the first row, are kept in memory.

A chunk ends when these have this number of bytes, or this number of items.
"""

MINUTES = 10_000
"""The most different minutes in a chunk. Its signal lists them all, and brokers accept messages of up to 1 MB."""

_BUFFERED = 64 << 10
"""Bytes that are written to the file at once. Writing line by line would cost a third of the total time."""


@dataclass(frozen=True)
class Chunk:
    """The messages between two offsets: records as CSV lines, and dead letters. Without records, `content` is empty.

    `record` is the Avro type of the rows; None if all records are tombstones.
    """

    offsets: OffsetRange
    records: int
    schema_id: int | None
    content: bytes
    dead: tuple[DeadLetter, ...] = ()
    minutes: Mapping[int, int] = field(default_factory=dict[int, int])
    """Numbers of messages by the minute of their timestamps, in minutes since 1970."""
    record: Mapping[str, Any] | None = None
    markers: frozenset[Marker] = frozenset()
    """`begin` if a snapshot begins with the first message, and `end` if one ends with the last message."""


class Cutter:
    """Cutter of one topic partition's messages, which are added in order, from an offset on.

    `until` is the end of an existing chunk that begins at `start` and has no signal. The first chunk then also ends at
    `until`, and not at a grid line. `body` creates the file for an open chunk.
    """

    def __init__(self, start: int, topic: Topic, until: int = 0, body: Callable[[], IO[bytes]] = BytesIO) -> None:
        self.next = start
        """The first offset that was not added yet."""
        self.opened: float | None = None
        """The time at which the first message of the open chunk was added; None if no chunk is open."""
        self.changes = 0
        """The number of chunks that ended early, because a message had another schema or began a snapshot."""
        self._topic, self._until, self._new_body = topic, until, body
        self._begin(start)

    def add(self, decoded: Decoded, now: float) -> list[Chunk]:
        """Add a message, and return the chunks that end before or with it. Skip a message that was already added."""
        if decoded.offset < self.next:
            return []
        ended = self.reach(decoded.offset)
        marker: Marker = "" if isinstance(decoded, DeadLetter) else decoded.marker
        is_other = isinstance(decoded, ChunkRow) and self._schema_id not in (None, decoded.schema_id)
        if self.opened is not None and (is_other or marker == "begin"):
            self.changes += 1
            ended.append(self._close(decoded.offset))
        self._take(decoded, now)
        self._markers |= frozenset([marker] if marker else [])
        if self.next == self._end or self._is_full or marker == "end":
            ended.append(self._close(self.next))
        return ended

    def reach(self, offset: int) -> list[Chunk]:
        """Return the chunks that end at or before an offset.

        Call this when no more messages before the offset can arrive. Chunks end at multiples of a fixed number of
        offsets. Such a multiple may lie in a gap of the offsets, where no message could end the chunk.
        """
        ended = list[Chunk]()
        if self.opened is not None and offset >= self._end:
            ended.append(self._close(self._end))
        if self.opened is None and (begins := line_before(offset, self._topic.messages)) > self._start:
            ended.append(self._close(begins))
        return ended

    def due(self, now: float) -> Chunk | None:
        """Return the chunk that is being filled if it has been open for as long as the topic allows; else None.

        Never end the chunk before `until`, the end of an existing chunk that has no signal.
        """
        if self.opened is None or now < self.opened + self._topic.seconds or self.next < self._until:
            return None
        return self._close(self.next)

    def drop(self) -> None:
        """Discard the chunk that is being filled."""
        self._body.close()

    def _take(self, decoded: Decoded, now: float) -> None:
        """Add a message to the open chunk. If no chunk is open, open one, and set where it must end."""
        if self.opened is None:
            self.opened, self._body = now, self._new_body()
            line = line_after(decoded.offset, self._topic.messages)
            self._end = self._until if decoded.offset < self._until else line
        self.next = decoded.offset + 1
        self._minutes[decoded.timestamp // _MINUTE] += 1
        if isinstance(decoded, DeadLetter):
            self._dead.append(decoded)
            self._dead_bytes += decoded.message.size
            return
        if isinstance(decoded, ChunkRow):
            self._write_row(decoded)
        elif isinstance(decoded, Tombstone):
            self._write_tombstone(decoded)

    def _write_row(self, row: ChunkRow) -> None:
        if self._schema_id is None:
            # The registry may lose the schema before the chunk ends, so keep the type.
            self._schema_id, self._record = row.schema_id, row.record
            self._head(row.columns)
        self._write(row.line)

    def _write_tombstone(self, tombstone: Tombstone) -> None:
        """Write a tombstone (a message without a value) to the open chunk.

        Before the chunk's first row, keep the tombstone in memory, because the columns are not known yet.
        """
        if self._columns:
            self._write(self._line(tombstone))
        else:
            self._waiting.append(tombstone)
            self._waiting_bytes += len(self._line(tombstone))

    def _head(self, columns: tuple[str, ...]) -> None:
        self._columns, self._waiting_bytes = columns, 0
        self._lines.append(dialect.line(columns))
        for each in self._waiting:
            self._write(self._line(each))
        self._waiting.clear()

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        self._records += 1
        self._size += len(line)
        if self._size >= self._flushed + _BUFFERED:
            self._flush()

    def _flush(self) -> None:
        self._body.write(b"".join(self._lines))
        self._lines.clear()
        self._flushed = self._size

    def _line(self, tombstone: Tombstone) -> bytes:
        named = {OPERATION: "delete", OFFSET: tombstone.offset, **tombstone.key}
        return dialect.line([named.get(name) for name in self._columns or named])

    @property
    def _is_full(self) -> bool:
        held, size = len(self._dead) + len(self._waiting), self._dead_bytes + self._waiting_bytes
        is_full_of_held = held >= HELD or size >= HELD_BYTES
        return self._size >= CHUNK_BYTES or is_full_of_held or len(self._minutes) >= MINUTES

    def _close(self, end: int) -> Chunk:
        if self._waiting:
            self._head((OPERATION, OFFSET, *self._topic.key))
        self._flush()
        self._body.seek(0)
        content = self._body.read()
        offsets, dead = OffsetRange(self._start, end), tuple(self._dead)
        chunk = Chunk(
            offsets,
            self._records,
            self._schema_id,
            content=content,
            dead=dead,
            minutes=dict(self._minutes),
            record=self._record,
            markers=self._markers,
        )
        self._body.close()
        self._begin(end)
        return chunk

    def _begin(self, start: int) -> None:
        self.next = self._start = self._end = start
        self.opened = None
        # This buffer needs no close. The chunk's first message replaces it by the chunk's file.
        self._body: IO[bytes] = BytesIO()
        self._columns: tuple[str, ...] = ()
        self._schema_id: int | None = None
        self._record: Mapping[str, Any] | None = None
        self._lines: list[bytes] = []
        self._waiting: list[Tombstone] = []
        self._dead: list[DeadLetter] = []
        self._markers: frozenset[Marker] = frozenset()
        self._minutes = Counter[int]()
        self._records = self._size = self._flushed = self._dead_bytes = self._waiting_bytes = 0
