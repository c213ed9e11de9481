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
    """New events of a source after a position, in its order, and the rows that are not valid events.

    `position` is where the next read continues; it is saved with these events, in one transaction. `is_complete`: there
    were no more events. `waits` explains, for a person, why more are held back: a writer has not ended, or a line is
    incomplete. `reports` are for the state store, as `report_state` takes them, and may also be repeated.
    """

    events: tuple[WriteEvent, ...]
    rejected: tuple[Rejected, ...]
    position: str | None
    is_complete: bool
    waits: str | None = None
    reports: tuple[Mapping[str, Any], ...] = ()


class Reader(Protocol):
    """An event table that others own: read, never written."""

    def read(self, after: str | None, limit: int, seconds: float, /) -> EventBatch:
        """Return up to `limit` rows after a position of this source; None means the beginning.

        Raise SourceUnavailable if it cannot be read. `seconds` limits a database's whole read; a blackboard has its own
        limits. Nothing is skipped. A row may be repeated (the position was lost, a file rewritten): events have an
        identity.
        """
        ...


class Positions:
    """Positions of one declaration, as text. A changed declaration, with other rows or columns, starts anew."""

    def __init__(self, *declared: object) -> None:
        self._of = sha256(repr(declared).encode()).hexdigest()[:16]

    def dump(self, place: Mapping[str, Any]) -> str:
        """Return a position as text."""
        return json.dumps({"of": self._of, **place})

    def load(self, position: str | None) -> dict[str, Any] | None:
        """Return the position of a text; None for the beginning."""
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
    """Return a batch of rows in their order."""
    events = tuple(row for row in rows if isinstance(row, WriteEvent))
    rejected = tuple(row for row in rows if isinstance(row, Rejected))
    return EventBatch(events, rejected, position, is_complete, waits)
