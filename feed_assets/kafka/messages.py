"""Messages of a topic, and the results of decoding: a row, a tombstone, or a dead letter with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from feed_assets.core.windows import LAST_YEAR

OPERATION, OFFSET = "_operation", "_offset"
"""The first columns of a chunk: the message's operation, and its offset in the upstream topic."""

Headers = Sequence[tuple[str, bytes | None]]

Marker = Literal["", "begin", "end"]
"""The mark of a message as the first or the last one of a snapshot in its partition; empty for all others."""

LATEST = datetime(LAST_YEAR, 12, 31, 23, 59, tzinfo=UTC)
"""The last minute that windows cover. Later timestamps count as this minute."""

_LATEST_MS = int(LATEST.timestamp()) * 1000


_HEADER_BYTES = 10
"""The most bytes that a header takes besides its name and value."""


class Message(NamedTuple):
    """A message as read. `timestamp` is in milliseconds since 1970."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = 0

    @property
    def size(self) -> int:
        """Return the bytes of the message before compression."""
        headers = sum(_HEADER_BYTES + len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    @property
    def moment(self) -> int:
        """Return the timestamp, limited to times that windows cover. Some producers send microseconds by mistake."""
        return min(max(self.timestamp, 0), _LATEST_MS)


class ChunkRow(NamedTuple):
    """A message with a value, as a line of a chunk with these columns. `record` is the Avro type of the row."""

    offset: int
    schema_id: int
    columns: tuple[str, ...]
    line: bytes
    timestamp: int = 0
    record: Mapping[str, Any] | None = None
    marker: Marker = ""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A message without a value, which deletes the row with its key. It fits into a chunk of any schema."""

    offset: int
    key: Mapping[str, object]
    timestamp: int = 0
    length: int = field(default=0, compare=False)
    """Bytes of the key as a CSV line. In the message, one byte may stand for an enum's symbol of 1,000 letters."""
    marker: Marker = ""


@dataclass(frozen=True, slots=True)
class SnapshotMarker:
    """A message that only marks the begin or the end of a snapshot. It has neither a key nor a value."""

    offset: int
    marker: Marker
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is not a valid record, and the reason."""

    message: Message
    reason: str
    seal: Headers = ()
    """Headers instead of the content, which the message then lacks, because its topic has masked columns."""

    @property
    def offset(self) -> int:
        """Return the message's offset."""
        return self.message.offset

    @property
    def timestamp(self) -> int:
        """Return the message's timestamp."""
        return self.message.moment


Decoded = ChunkRow | Tombstone | SnapshotMarker | DeadLetter
