"""The interface of a table that the loader loads. The table's source is a topic or a dataset."""

from collections.abc import Iterator
from typing import Protocol

from feed_assets.warehouse.conflicts import TableChange
from feed_assets.warehouse.load_progress import LoadProgress


class Follower(Protocol):
    """A table that is loaded from its topic or dataset. Its methods raise the error that stops the table."""

    name: str

    @property
    def loads(self) -> int:
        """Return the number of committed loads."""
        ...

    @property
    def progress(self) -> LoadProgress:
        """Return the figures of a topic's table. A dataset has none."""
        ...

    @property
    def waiting(self) -> int:
        """Return the number of chunks whose signals were read but that are not loaded yet."""
        ...

    def look(self, now: float) -> bool:
        """Read some new signals or updates, and load the data that are due. Return whether more can be read now."""
        ...

    def load_all(self) -> None:
        """Load all available data now, without waiting for more."""
        ...

    def plan(self) -> Iterator[TableChange]:
        """Yield the change that the table needs, for each new schema in data that are not loaded yet."""
        ...
