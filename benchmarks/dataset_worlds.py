"""Worlds of many datasets: half of them made from five foreign feeds, each with its rejects, half from one of these."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as sa

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import log, update_changes, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.tables import change, consumed, due, event, subscription, update
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.reporter import REPORTED, LogPosition
from feed_assets.settings import settings

FIRST, DAYS = date(2023, 1, 1), 365
EVERY_DAY = dg.DailyPartitionsDefinition("2023-01-01", end_date="2024-01-01")
KEYS = [(FIRST + timedelta(days=number)).isoformat() for number in range(DAYS)]
FOREIGN = 5
ON_BOARD = 7
"""Number of newest days of each foreign feed whose files exist."""

ID, NEXT_ID = "20240101.000000", "20240102.000000"
NOW = datetime(2024, 1, 1, tzinfo=UTC)
CHANGES = 1000
CHANGED = KEYS[-2:]
"""Days that change in each of 500 datasets."""


def raw(number: int) -> str:
    """Return the name of a foreign feed."""
    return f"b/raw{number % FOREIGN}/v1.0"


def clean(number: int) -> str:
    """Return the name of a dataset made from a foreign feed."""
    return f"b/clean{number:04d}/v1.0"


def made(number: int) -> str:
    """Return the name of a dataset made from the clean dataset with this number."""
    return f"b/made{number:04d}/v1.0"


def _pair(number: int, raws: dict[str, dg.AssetSpec]) -> list[dg.AssetsDefinition]:
    @feed_asset(clean(number), partitions_def=EVERY_DAY, inputs={"rows": raws[raw(number)]}, code_version="1")
    def first(rows: Any) -> Any:
        """Stand for a transform that never runs."""
        return rows

    @feed_asset(made(number), partitions_def=EVERY_DAY, inputs={"rows": first}, code_version="1")
    def second(rows: Any) -> Any:
        """Stand for a transform that never runs."""
        return rows

    return [first, second]


def definitions(count: int) -> dg.Definitions:
    """Return `count` datasets and their five foreign feeds."""
    raws = {raw(each): foreign_feed(raw(each), partitions_def=EVERY_DAY, schema="n int") for each in range(FOREIGN)}
    datasets = [each for number in range(count // 2) for each in _pair(number, raws)]
    return with_automation(dg.Definitions(assets=[*raws.values(), *datasets]))


@dataclass
class World:
    """A ledger in which some days of `count` datasets are published."""

    url: str
    count: int
    days: Sequence[str] = tuple(KEYS)

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, opened."""
        return open_ledger(self.url)

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Return each dataset with its input."""
        numbers = range(self.count // 2)
        return [(clean(each), raw(each)) for each in numbers] + [(made(each), clean(each)) for each in numbers]

    @property
    def feeds(self) -> list[str]:
        """Return all feeds, including those of rejects."""
        rejects = [clean(each).replace("/v1.0", "_rejects/v1.0") for each in range(self.count // 2)]
        return [*map(raw, range(FOREIGN)), *(output for output, _ in self.edges), *rejects]

    def fill(self) -> None:
        """Write the rows that as many runs would have left, in bulk."""
        last = len(self.feeds) * len(self.days)
        heard = [
            {"subscriber": output, "feed": feed, "position": last}
            for edge in self.edges
            for output, feed in _heard(edge)
        ]
        with self.ledger.change() as connection:
            connection.execute(_published(self.feeds, self.days))
            connection.execute(logged())
            connection.execute(_consumed(self.edges, self.days))
            connection.execute(sa.insert(subscription), heard)
        if self.ledger.engine.dialect.name == "postgresql":
            with self.ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")

    def drop(self, folder: Path) -> None:
        """Write files: a few foreign days, whose digest is the version read, and all days of the datasets."""
        for feed in self.feeds[FOREIGN:]:
            _write_days(folder / feed, self.days)
        for feed in map(raw, range(FOREIGN)):
            for key in self.days[-ON_BOARD:]:
                partition = Partition(Feed.parse(feed), key)
                _write(folder / partition.path / ID)
                self._know(partition, read.require(read.latest(open_board(settings()), partition)).files_digest)

    def _know(self, partition: Partition, version: str) -> None:
        with self.ledger.write() as connection:
            connection.execute(sa.update(update).where(updates.is_(partition)).values(version=version))
            read_by = (consumed.c.input_feed == str(partition.feed)) & (consumed.c.input_partition == partition.key)
            connection.execute(sa.update(consumed).where(read_by).values(version=version))

    def confirm(self, instance: dg.DagsterInstance) -> None:
        """Record that Dagster has all changes reported."""
        with self.ledger.read() as connection:
            last = log.last(connection)
        instance.daemon_cursor_storage.set_cursor_values({f"{REPORTED}/feeds": str(LogPosition(last))})

    def change(self, numbers: Collection[int] = range(CHANGES // len(CHANGED))) -> None:
        """Undo the previous round, then publish updates of the clean datasets with these numbers."""
        feeds = [clean(number) for number in numbers]
        with self.ledger.change() as connection:
            connection.execute(sa.delete(due))
            connection.execute(sa.delete(event))
            for table in (update, consumed):
                connection.execute(sa.delete(table).where(table.c.id == NEXT_ID))
            copied = sa.select(consumed.c.feed, consumed.c.partition, sa.literal(NEXT_ID), *[*consumed.c][3:]).where(
                consumed.c.id == ID, consumed.c.partition.in_(CHANGED), consumed.c.feed.like("b/clean%")
            )
            connection.execute(sa.insert(consumed).from_select([each.name for each in consumed.c], copied))
            for feed, key in product(feeds, CHANGED):
                values = {"run": "y", "version": "y", "size": 8, "files": 1}
                update_changes.insert(
                    connection, Partition(Feed.parse(feed), key), NEXT_ID, updates.RUN, updates.PUBLISHED, NOW, **values
                )

    def decide(self) -> None:
        """Decide about all affected outputs: each changed dataset, and the dataset made from it."""
        graph = Graph(_graph_of(self.count))
        mine = [node for node in graph.datasets() if not node.by_events]
        with dg.partition_loading_context(NOW + timedelta(days=1)):
            fan_out_to(graph, mine, self.ledger, NOW, _never)
            found = decide_due(graph, mine, self.ledger, NOW, 10 * CHANGES, _never).verdicts
        late = [verdict for _, verdict in found if verdict.state.value == "rebuild"]
        if (len(found), len(late)) != (2 * CHANGES, CHANGES):
            raise RuntimeError(f"{len(found)} are decided, {len(late)} to be built again: expected 2,000 and 1,000.")


def _write(path: Path) -> None:
    """Write a valid update of one file."""
    path.mkdir(parents=True)
    (path / "part-0.csv").write_bytes(b"n\n1\n")
    (path / "_SUCCESS").write_bytes(b"1")


def _write_days(path: Path, days: Sequence[str]) -> None:
    """Write an update of each day. The days share two files by hard links, which take no space."""
    first, *others = (path / day / ID for day in days)
    _write(first)
    files = [*first.iterdir()]
    for each in others:
        each.mkdir(parents=True)
        for file in files:
            (each / file.name).hardlink_to(file)


def _never() -> bool:
    return False


_graphs: dict[int, Any] = {}


def _graph_of(count: int) -> Any:
    if count not in _graphs:
        _graphs[count] = definitions(count).resolve_asset_graph()
    return _graphs[count]


def _published(feeds: list[str], days: Sequence[str]) -> sa.Insert:
    """Return the insert of one update for each day of each feed, numbered."""
    of, day = _numbered("feed", feeds), _numbered("day", days)
    values = {
        "feed": of.c.value,
        "partition": day.c.value,
        "id": sa.literal(ID),
        "state": sa.literal("published"),
        "version": sa.literal("x"),
        "origin": sa.case((of.c.number < FOREIGN, "foreign"), else_="run"),
        "run": sa.case((of.c.number < FOREIGN, None), else_="x"),
        "size": sa.literal(4),
        "files": sa.literal(1),
        "at": sa.literal(NOW, update.c.at.type),
        "changed": of.c.number * len(days) + day.c.number + 1,
    }
    return sa.insert(update).from_select([*values], sa.select(*values.values()).join_from(of, day, sa.true()))


def logged() -> sa.Insert:
    """Return the insert of the log entries of these updates."""
    columns = ["sequence", "feed", "partition", "kind", "subject", "after", "at"]
    reported = update.c.changed, update.c.feed, update.c.partition, sa.literal("update"), update.c.id, update.c.state
    return sa.insert(change).from_select(columns, sa.select(*reported, update.c.at))


def _heard(edge: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the feeds that a dataset subscribes to: its input and itself."""
    return [edge, (edge[0], edge[0])]


def _consumed(edges: list[tuple[str, str]], days: Sequence[str]) -> sa.Insert:
    """Return the insert of the updates that each dataset was built from."""
    columns = sa.column("output", sa.String), sa.column("input", sa.String)
    edge, day = sa.values(*columns, name="edge").data(edges).cte("edge"), _numbered("day", days)
    values = {
        "feed": edge.c.output,
        "partition": day.c.value,
        "id": sa.literal(ID),
        "input_feed": edge.c.input,
        "input_partition": day.c.value,
        "position": sa.literal(ID),
        "version": sa.literal("x"),
        "size": sa.literal(4),
        "files": sa.literal(1),
        "is_input": sa.true(),
    }
    return sa.insert(consumed).from_select([*values], sa.select(*values.values()).join_from(edge, day, sa.true()))


def _numbered(name: str, values: Sequence[str]) -> sa.CTE:
    columns = sa.column("number", sa.Integer), sa.column("value", sa.String)
    return sa.values(*columns, name=name).data([*enumerate(values)]).cte(name)
