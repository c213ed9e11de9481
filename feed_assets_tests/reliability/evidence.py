"""Everything that the checker may read of a world that has come to rest, in its published forms.

It imports nothing of the system.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from feed_assets_tests.reliability import published
from feed_assets_tests.reliability.published import (
    CLEAN,
    FEEDS,
    JOINED,
    ORDERS,
    STOCK,
    Row,
    Update,
)
from feed_assets_tests.reliability.store import Store, opened

READS = {CLEAN: (ORDERS,), JOINED: (CLEAN, STOCK)}
"""The inputs of each dataset."""
MOST = 1000

Invariant = Callable[["Evidence"], Iterable[str]]
registered: dict[str, Invariant] = {}


def invariant(judge: Invariant) -> Invariant:
    """Register an invariant under the name of its function. It yields objections."""
    registered[judge.__name__] = judge
    return judge


@dataclass(frozen=True)
class Evidence:
    """Everything that the checker may read."""

    folder: Path
    blackboard: str

    @cached_property
    def store(self) -> Store:
        """Return the blackboard."""
        return opened(self.blackboard)

    @cached_property
    def facts(self) -> list[dict[str, Any]]:
        """Return what outsiders have written down."""
        path = self.folder / "facts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @cached_property
    def updates(self) -> dict[str, dict[str, list[Update]]]:
        """Return the valid updates of each feed and partition."""
        return {feed: published.updates(self.store, feed) for feed in FEEDS}

    def current(self, feed: str, key: str) -> Update | None:
        """Return the newest valid update."""
        found = self.updates[feed].get(key)
        return found[-1] if found else None

    def rows(self, update: Update) -> list[Row]:
        """Return the rows of an update."""
        return published.rows(self.store, update)

    def made_of(self, update: Update) -> list[str]:
        """Return the paths of the updates that an output names in each row as its inputs."""
        named = {row["made_of"] for row in self.rows(update)}
        return json.loads(named.pop()) if len(named) == 1 else [f"several: {sorted(named)}"]

    def table(self, database: str, query: str) -> list[tuple[Any, ...]]:
        """Return the answer of a database, none if it does not exist."""
        path = self.folder / database
        if not path.exists():
            return []
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(query).fetchall()

    def outputs(self) -> Iterator[tuple[str, str, list[Update]]]:
        """Yield each dataset's partitions with their valid updates."""
        for feed in READS:
            for key, found in self.updates[feed].items():
                yield feed, key, found

    def at(self, path: str) -> Update | None:
        """Return the valid update of a path."""
        for feed, partitions in self.updates.items():
            if path.startswith(f"{feed}/"):
                found = partitions.get(path.removeprefix(f"{feed}/").rpartition("/")[0], [])
                return next((each for each in found if each.path == path), None)
        return None


def is_good(rows: Iterable[Row]) -> bool:
    """Return whether orders pass the check of `clean`."""
    return all(0 <= int(row["amount"]) <= MOST for row in rows)
