"""A team whose rows change, a dataset that adds their increments, and functions that get them killed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from feed_assets import ByEvents, EventSource, Plan, Rule, SqlTable, event_table, feed_asset
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.runs.maker import Task
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Given, Harness, rows_of
from feed_assets_tests.support.sum_projects import harness, nothing

NAME = "sales/orders/v1.0"
OUTPUT = Partition(Feed.parse(NAME), "")
TABLES = ("orders", "prices")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
Rows = dict[str, int]
"""Version of each key: of its row, or of its deletion."""


@dataclass
class Shop:
    """A team's tables with rows and deletions, and a table of events about them."""

    folder: Path
    rows: dict[str, Rows] = field(default_factory=lambda: {table: {} for table in TABLES})
    gone: dict[str, Rows] = field(default_factory=lambda: {table: {} for table in TABLES})
    told: dict[str, list[int]] = field(default_factory=lambda: {table: [] for table in TABLES})
    overwrites: list[int] = field(default_factory=list)
    last: int = 0

    @property
    def sink(self) -> SqlSink:
        return SqlSink(f"sqlite:///{self.folder / 'shop.db'}", "events")

    def next(self) -> int:
        """Return a new version; late rows use the versions in between."""
        self.last += 3
        return self.last

    def put(self, table: str, *keys: str) -> None:
        """Give some keys a new row each, and publish an event."""
        version = self.next()
        self.rows[table] |= dict.fromkeys(keys, version)
        self.tell(table, version)

    def tell(self, table: str, version: int, operation: Operation = Operation.UPSERT) -> None:
        self.told[table].append(version)
        self.sink.publish([(0, WriteEvent(table, version, NOON, f"{table} {version}", operation))])

    def read(self, table: str, start: int, end: int) -> list[dict]:
        """Return the current state of all keys changed within a slice: rows and deletions."""
        changes = ((self.rows[table], False), (self.gone[table], True))
        return [
            {"key": f"{table} {key}", "version": version, "gone": is_gone}
            for some, is_gone in changes
            for key, version in some.items()
            if start < version <= end
        ]

    def all(self) -> Rows:
        """Return the rows that the dataset should have."""
        return {f"{table} {key}": version for table, rows in self.rows.items() for key, version in rows.items()}


def newest_first(there: list[dict], changes: list[dict], run: str) -> list[dict]:
    """Return the rows that `merge_by_key` with `newest_by` should make."""
    rows = {row["key"]: row for row in there}
    for change in sorted(changes, key=lambda each: each["version"]):
        known = rows.get(change["key"])
        if known and known["version"] > change["version"]:
            continue
        rows.pop(change["key"], None)
        if not change["gone"]:
            rows[change["key"]] = {"key": change["key"], "version": change["version"], "by": run}
    return [rows[key] for key in sorted(rows)]


Base = Callable[[Task], Update | None]


def previous(task: Task) -> Update | None:
    return task.previous


def nothing_before(_task: Task) -> Update | None:
    """Wrong rule: an increment replaces the partition, as without a base."""
    return None


def whatever_was_last(task: Task) -> Update | None:
    """Wrong rule: an increment is added to the last update, valid or not."""
    made = every_update() if task.previous else {}
    return made[max(made)] if made else None


def every_update(*states: str) -> dict[str, Update]:
    """Return every update by id, or only those in one of these states."""
    with open_ledger(settings().ledger).read() as connection:
        wanted = states or (updates.PUBLISHED, updates.INVALIDATED)
        mine = updates.is_(OUTPUT) & update.c.state.in_(wanted)
        ids = connection.execute(update.select().with_only_columns(update.c.id).where(mine)).scalars().all()
        found = {each: updates.recorded(connection, OUTPUT, each) for each in ids}
    return {each: made for each, made in found.items() if made}


@dataclass
class Making:
    """Function of all runs: it notes its requests, and makes a wrong row while `spoils` is set."""

    shop: Shop
    base: Base = previous
    spoils: bool = False
    during: Callable[[], object] = nothing
    told: list[tuple[str, Mapping[str, str], str | None]] = field(default_factory=list)
    prefix: str = ""

    def __call__(self, task: Task) -> Given:
        pieces = {str(at.feed).removeprefix("shop/"): each for at, each in task.run_spec.slices.items()}
        ranges = {name: each.version for name, each in pieces.items()}
        self.told.append((task.run_spec.plan.kind, ranges, task.previous and task.previous.id))
        run = f"{'bad' if self.spoils else 'good'} {self.prefix}{len(self.told)}"
        before = self.base(task)
        there = rows_of(open_board(settings()), before) if before else []
        changes = [
            row for name, each in pieces.items() for row in self.shop.read(name, int(each.start or -1), int(each.end))
        ]
        wrong = [{"key": run, "version": 0, "gone": False}] if self.spoils else []
        self.during()
        return Given(newest_first(there, [*changes, *wrong], run))


def world(making: Making) -> Harness:
    """Build the dataset on a Dagster instance of its own."""
    source = EventSource("shop", (SqlTable(making.shop.sink.url, "events", "id"),))
    tables = {name: event_table(f"shop/{name}", source=source, table_name=name) for name in TABLES}
    plans = [Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]
    by_events = ByEvents(pipelines={name: [f"shop/{name}"] for name in TABLES}, plans=plans)
    dataset = feed_asset(NAME, inputs=tables, by_events=by_events)
    return harness(*tables.values(), dataset(lambda orders, prices, previous: None), give=making)
