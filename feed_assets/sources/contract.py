"""Types that all event sources share: batches of new events, and positions from which reads continue."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from feed_assets.core.events import Rejected, WriteEvent

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EventBatch:
    """New events of a source after a position, in the source's order, and the rows that are not valid events.

    The next read continues at `position`, which is saved in the same transaction as these events. `is_complete` is True
    if there were no more events. `waits` explains to a person why more events must wait, for example because a writer
    has not ended or a line is incomplete. `reports` are record counts for the ledger, in the form that `report_state`
    accepts. A later batch may repeat them.
    """

    events: tuple[WriteEvent, ...]
    rejected: tuple[Rejected, ...]
    position: str | None
    is_complete: bool
    waits: str | None = None
    reports: tuple[Mapping[str, Any], ...] = ()


class Reader(Protocol):
    """A reader of an event table that others own. It never writes to the table."""

    def read(self, after: str | None, limit: int, seconds: float, /) -> EventBatch:
        """Return up to `limit` rows after a position of this source; None means the beginning.

        `seconds` limits the whole read of a database or topic. A blackboard has its own time limits. No row is skipped.
        A row may be repeated, for example after a file was rewritten: the ledger recognises an event that it already
        has. Raise SourceUnavailable if the source cannot be read.
        """
        ...


class Positions:
    """Conversion of one event source's positions to texts and back.

    If the source's declaration changes, its old positions are not used, and reading starts from the beginning.
    """

    def __init__(self, *declared: object) -> None:
        self._of = sha256(repr(declared).encode()).hexdigest()[:16]

    def dump(self, place: Mapping[str, Any]) -> str:
        """Return a position as text."""
        return json.dumps({"of": self._of, **place})

    def load(self, position: str | None) -> dict[str, Any] | None:
        """Return the position that `dump` wrote.

        Return None if there is no text, or if the declaration has changed since.
        """
        if position is None:
            return None
        place: dict[str, Any] = json.loads(position)
        if place.pop("of") == self._of:
            return place
        _log.warning("The event source's declaration has changed since its last read: it is read from the beginning")
        return None


def batch_of(
    rows: list[WriteEvent | Rejected], position: str | None, is_complete: bool, waits: str | None
) -> EventBatch:
    """Return a batch that has these rows, in their order."""
    events = tuple(row for row in rows if isinstance(row, WriteEvent))
    rejected = tuple(row for row in rows if isinstance(row, Rejected))
    return EventBatch(events, rejected, position, is_complete, waits)
