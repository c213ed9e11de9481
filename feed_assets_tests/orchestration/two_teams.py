"""Two teams with a home each; one publishes its events and pipelines, and the other reads them."""

import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from feed_assets import EventFiles, EventSource, LineageFile, LineageTable, SqlTable
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.settings import settings
from feed_assets.testing import Harness

EVENTS, PIPELINES = "shared", "shared_pipelines"


@dataclass
class Team:
    """A home, and the settings that apply while the team works."""

    home: Path
    given: Mapping[str, str] = field(default_factory=dict[str, str])

    @contextmanager
    def at_work(self) -> Generator[None]:
        """Apply the team's environment and settings to this process."""
        before = dict(os.environ)
        ours = {f"FEED_ASSETS_{name.upper()}": value for name, value in self.given.items()}
        os.environ.update({"DAGSTER_HOME": str(self.home), **ours})
        settings.cache_clear()
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
            settings.cache_clear()

    def run(self, world: Harness) -> list[str]:
        """Run until idle, and return each built dataset with its partition."""
        with self.at_work():
            runs = world.run_until_idle()
        assert [run.error for run in runs] == [None] * len(runs)
        return [f"{run.assets[0]} {run.partition}" for run in runs]

    def drop(self, world: Harness, feed: str, partition: str, data: str) -> str:
        with self.at_work():
            return world.drop(feed, partition, data)


@dataclass
class Place:
    """The publisher's place: its setting, and its declaration by the other team."""

    setting: str
    source: EventSource
    lineage: LineageTable | LineageFile
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The foreign blackboard that its reader needs."""
    url: str = ""
    """The database that holds it, if any."""

    def versions(self) -> list[dict[str, set[str]]]:
        """Return the tables of each pipeline, for each version in order."""
        found: dict[str, dict[str, set[str]]] = {}
        for row in self._rows():
            found.setdefault(row["published_at"], {}).setdefault(row["pipeline"], set()).add(row["table_name"])
        return [found[each] for each in sorted(found)]

    def _rows(self) -> Iterator[Mapping[str, str]]:
        if isinstance(self.lineage, LineageTable):
            with sa.create_engine(self.url, poolclass=sa.NullPool).connect() as connection:
                rows = connection.execute(sa.text("SELECT * FROM shared_pipelines_log")).mappings()
                yield from [{str(name): row[name] for name in row} for row in rows]
            return
        for file in self.board.files(PIPELINES):
            if not file.key.endswith("/newest.jsonl"):
                yield from map(json.loads, (self.board.get(file.key) or b"").splitlines())

    @property
    def board(self) -> Blackboard:
        """Open the publisher's blackboard as its reader does."""
        return Blackboard.open(self.others["url"], endpoint=self.others.get("endpoint"))


def place_in_database(url: str, variable: str) -> Place:
    """Return a place in a database, whose URL its reader has in a variable."""
    source = EventSource("theirs", (SqlTable(f"env:{variable}", EVENTS, order_by="id"),))
    return Place(f"{url}#{EVENTS}", source, LineageTable(f"env:{variable}", PIPELINES), url=url)


def place_on_blackboard(others: Mapping[str, Any]) -> Place:
    """Return a place in folders of the publisher's blackboard."""
    source = EventSource("theirs", (EventFiles(EVENTS, "jsonl", blackboard="theirs"),))
    lineage = LineageFile(f"{PIPELINES}/newest.jsonl", blackboard="theirs")
    return Place(f"blackboard:{EVENTS}", source, lineage, others)
