"""Messages of a topic, and what they are decoded to: a row, a tombstone, or a dead letter with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OPERATION, OFFSET = "_operation", "_offset"
"""The columns of a chunk that come before those of the value: the type of the message, and its offset upstream."""

Headers = Sequence[tuple[str, bytes | None]]

_LATEST = 253_370_764_800_000
"""The year 9999, in milliseconds since 1970: dates end with it."""


class Message(NamedTuple):
    """A message as it was read; `timestamp` in milliseconds since 1970."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = 0

    @property
    def moment(self) -> int:
        """Return the timestamp within the range of dates: one in microseconds instead would be after the last."""
        return min(max(self.timestamp, 0), _LATEST)


class ChunkRow(NamedTuple):
    """A message that has a value, as a line of a chunk with these columns."""

    offset: int
    schema_id: int
    columns: tuple[str, ...]
    line: bytes
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A message without a value: the row of this key is deleted. It fits into a chunk of any schema."""

    offset: int
    key: Mapping[str, object]
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is no record, and why."""

    message: Message
    reason: str

    @property
    def offset(self) -> int:
        """Return the message's offset."""
        return self.message.offset

    @property
    def timestamp(self) -> int:
        """Return the message's moment."""
        return self.message.moment


Decoded = ChunkRow | Tombstone | DeadLetter
