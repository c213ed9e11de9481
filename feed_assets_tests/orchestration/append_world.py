"""A dataset of batches of a team's rows, its consumers by data and by events, and their compaction."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets import ByEvents, EventSource, Plan, Rule, SqlTable, event_table, feed_asset
from feed_assets.compaction.batches import compact
from feed_assets.core.errors import NotCompacted
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.retention import Retention
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.stores import local_root
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.runs.maker import Task
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, rows_of
from feed_assets_tests.orchestration.increment_world import TABLES, Shop
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.sum_projects import harness, nothing

LINES = Feed.parse("sales/lines/v1.0")
OUTPUT = Partition(LINES, "")
CONSUMERS = ("sales/totals/v1.0", "sales/report/v1.0")
"""Consumers by data and by events."""


@dataclass
class Making:
    """Function of all runs: it notes its requests, and adds a wrong row while `spoils` is set."""

    shop: Shop
    spoils: bool = False
    during: Callable[[], object] = nothing
    told: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    prefix: str = ""

    def __call__(self, task: Task) -> Given:
        if task.recipe.feed != LINES:
            return Given(rows_in([each for some in task.updates.values() for each in some]))
        pieces = {str(at.feed).removeprefix("shop/"): each for at, each in task.run_spec.slices.items()}
        self.told.append((task.run_spec.plan.kind, {name: each.version for name, each in pieces.items()}))
        found = [
            {"key": row["key"], "by": "good"}
            for name, each in pieces.items()
            for row in self.shop.read(name, int(each.start or -1), int(each.end))
        ]
        wrong = [{"key": f"bad {self.prefix}{len(self.told)}", "by": "bad"}] if self.spoils else []
        self.during()
        return Given([*found, *wrong])


def rows_in(some: list[Update]) -> list[dict]:
    board = open_board(settings())
    return sorted((row for each in some for row in rows_of(board, each)), key=lambda row: row["key"])


def world(making: Making) -> Harness:
    """Build orders, prices -> lines (a batch for each increment) -> two consumers that read all batches."""
    source = EventSource("shop", (SqlTable(making.shop.sink.url, "events", "id"),))
    tables = {name: event_table(f"shop/{name}", source=source, table_name=name) for name in TABLES}
    plans = [Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]
    by_events = ByEvents(pipelines={name: [f"shop/{name}"] for name in TABLES}, plans=plans)
    dataset = feed_asset(str(LINES), inputs=tables, by_events=by_events, appendable=True)
    lines = dataset(lambda orders, prices: None)
    totals = feed_asset(CONSUMERS[0], inputs={"lines": lines})(lambda lines: None)
    report = feed_asset(CONSUMERS[1], inputs={"lines": lines}, by_events=ByEvents())(lambda lines: None)
    return harness(*tables.values(), lines, totals, report, give=making)


def held() -> list[dict]:
    """Return the rows that a reader of the blackboard gets."""
    return rows_in([*batch_set.latest(open_board(settings()), OUTPUT).updates])


def consumed(name: str) -> list[dict]:
    """Return the rows that a consumer has published."""
    found = read.latest(open_board(settings()), Partition(Feed.parse(name), "")).update
    return rows_in([found]) if found else []


def every_update(*states: str) -> list[tuple[str, str]]:
    """Return batch and id of each update in one of these states."""
    mine = (update.c.feed == str(LINES)) & update.c.state.in_(states or (updates.PUBLISHED,))
    with open_ledger(settings().ledger).read() as connection:
        query = sa.select(update.c.partition, update.c.id).where(mine).order_by(update.c.id)
        return [(row.partition, row.id) for row in connection.execute(query)]


def services(ahead: timedelta = timedelta()) -> Services:
    """Return services that compact batches without Spark."""
    maker = PlainMaker(lambda task: Given(rows_in([*task.updates["rows"]])))
    found = Services.of(settings(), lambda: maker)
    return replace(found, now=lambda: datetime.now(found.now().tzinfo) + ahead)


def put_together(least: int = 2) -> None:
    """Compact the batches, as a person would try it: after a failed build it is refused."""
    with suppress(NotCompacted):
        compact(services(), OUTPUT, least, apply=True)


def prune_all() -> None:
    """Prune everything that was replaced, as if it were old."""
    policy = Retention(older_than=timedelta(days=1))
    _ = [*prune_feed(services(timedelta(days=2)), LINES, policy, apply=True)]


def compact_and_die(_make: Callable, _making: Making, number: int, _moment: datetime) -> None:
    """Compact, and be killed at one of the changes."""
    call_and_die(number, local_root(settings().blackboard), put_together)
