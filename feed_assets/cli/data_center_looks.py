"""Checks of `feed-assets doctor` for data centers, and the probe that shows that a blackboard can be written."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from feed_assets.cli.queue_looks import Doubtful
from feed_assets.core.errors import LedgerUnavailable

if TYPE_CHECKING:
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.settings import Settings

PROBES = "_feed_assets/doctor"
"""The prefix of objects that are written to test a blackboard: no feed name begins with it."""


def probe(board: "Blackboard") -> str:
    """Write an object, list, read and delete it, and return that this worked. Raise Doubtful if it did not."""
    key = f"{PROBES}/{uuid4().hex}"
    board.put(key, b"probe")
    try:
        listed, read = [file.key for file in board.files(PROBES)], board.get(key)
    finally:
        board.delete([key])
    if key not in listed or read != b"probe" or board.get(key) is not None:
        raise Doubtful(f"{board.url}: a written object could not be listed, read and deleted as expected.")
    return f"{board.url}: an object was written, listed, read and deleted"


@dataclass(frozen=True)
class DataCenterLooks:
    """The checks for data centers. Each check returns what it found as text, or raises an error."""

    settings: "Settings"
    sources: "Callable[[], Sequence[Blackboard]]"

    def looks(self) -> tuple[tuple[str, Callable[[], str]], ...]:
        """Return one check for each data center."""
        names = self.settings.data_centers.get_secret_value()
        return tuple((f"data center {name}", partial(self._look, name)) for name in names)

    def _look(self, name: str) -> str:
        from feed_assets.ledger.database import found_ledger
        from feed_assets.replication.place_overview import left_notes
        from feed_assets.replication.places import open_place

        place = open_place(self.settings, name, *self.sources())
        answer, notes = probe(place.board), list[str]()
        with suppress(LedgerUnavailable), found_ledger(self.settings.ledger).read() as connection:  # It has a check.
            notes = left_notes(connection, name, place.center.datasets)
        if notes:
            raise Doubtful(f"{answer}; {'; '.join(notes)}.")
        return answer
