"""Turns of the sources whose files are pulled. Only one source at a time has its turn.

A partner's store can keep its turn for an hour, and list new files without end. So after its turn, a source waits for
as long as the turn took. The other sources then have at least half of the time.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import Feed
from feed_assets.core.pulls import Pull
from feed_assets.ledger.database import get_cursors, put_cursors
from feed_assets.runs.services import Services


@dataclass(frozen=True)
class PullSource:
    """A feed, and the pull that fills it. `key_of` returns the key of the feed's partition at a time, if it has one."""

    feed: Feed
    pull: Pull
    key_of: Callable[[datetime], str | None]

    @property
    def place(self) -> str:
        """Return the name under which the ledger stores how far an incomplete scan of this source has got."""
        return f"pulls {self.feed}"

    @property
    def last_scan(self) -> str:
        """Return the name of the ledger's cursor with the start time of the last complete scan."""
        return f"pulled {self.feed}"

    @property
    def turn(self) -> str:
        """Return the name of the ledger's cursor with the time until which other sources have priority."""
        return f"pull turn {self.feed}"


def due(services: Services, sources: Sequence[PullSource], now: datetime) -> list[PullSource]:
    """Return the sources whose files must be scanned now, in the order of their turns.

    A source that had no turn comes first. A source is due if a tick of its cron has passed, or if its last scan is
    incomplete.
    """
    names = {name for source in sources for name in (source.place, source.last_scan, source.turn)}
    with services.ledger.read() as connection:
        cursors = get_cursors(connection, names)
    waiting = [
        source
        for source in sources
        if source.place in cursors or source.pull.is_due(_moment(cursors.get(source.last_scan)), now)
    ]
    return sorted(waiting, key=lambda source: cursors.get(source.turn, ""))


@contextmanager
def turn_of(services: Services, source: PullSource) -> Generator[datetime]:
    """Yield the start time of a source's turn. At its end, even by an error, record until when others have priority."""
    began = services.now()
    try:
        yield began
    finally:
        ended = services.now()
        with services.ledger.write() as connection:
            put_cursors(connection, {source.turn: (ended + (ended - began)).isoformat()})


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
