"""A small lake to build in: a foreign CSV feed, a cleaned feed with rejects, and a feed made from the cleaned one."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from pyspark.sql import SparkSession

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.readiness import Facts
from feed_assets.feeds import read
from feed_assets.feeds.write import publish
from feed_assets.ledger import fact_queries, log, runs, updates
from feed_assets.ledger.runs import Run
from feed_assets.ledger.tables import run
from feed_assets.ledger.tables import update as table
from feed_assets.runs.build import NEWEST, build
from feed_assets.runs.maker import Maker
from feed_assets.runs.phases import Outcome
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.run_turn import Patience
from feed_assets.runs.services import Services
from feed_assets.runs.spark_maker import SparkMaker
from feed_assets.spark.input_frames import read_own
from feed_assets_tests.support.build_needs import need_of

RAW = Feed.parse("ads/raw/v1.0")
CLEAN = Feed.parse("ads/clean/v1.0")
REJECTS = Feed.parse("ads/clean_rejects/v1.0")
TOP = Feed.parse("ads/top/v1.0")
SCHEMA = "id int, at timestamp"
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
DAY = "2019-11-24"


def as_it_is(raw):
    """Return the rows unchanged."""
    return raw


CLEANING = Recipe(
    feed=CLEAN,
    sources=(RecipeInput("raw", RAW, "csv", SCHEMA),),
    transform=as_it_is,
    rejects=REJECTS,
    event_time="at",
    code_version="1",
)
TOPPING = Recipe(feed=TOP, sources=(RecipeInput("clean", CLEAN),), transform=lambda clean: clean.select("id"))


@dataclass(frozen=True)
class Lake:
    """The services of a lake, with shortcuts. The clock stands still: each update is a second later than the last."""

    services: Services

    def drop(self, *lines: str, key: str = DAY) -> Update:
        """Publish an update of the raw feed as a foreign producer would: `1,2019-11-24 08:00:00`."""
        content = "\n".join(["id,at", *lines, ""]).encode()
        return publish(self.services.board, Partition(RAW, key), {"part-0.csv": content}, NOW)

    def clean(
        self,
        key: str = DAY,
        named=NEWEST,
        services: Services | None = None,
        patience: Patience | None = None,
        **changes: Any,
    ) -> Outcome:
        """Build the cleaned feed by a recipe with these changes."""
        recipe, inputs = replace(CLEANING, **changes), {"raw": [Partition(RAW, key)]}
        return build(recipe, Partition(CLEAN, key), inputs, services or self.services, named, patience=patience)

    def top(self, keys: Sequence[str] = (DAY,), **changes: Any) -> Outcome:
        """Build the feed that is made from the cleaned one."""
        inputs = {"clean": [Partition(CLEAN, key) for key in keys]}
        return build(replace(TOPPING, **changes), Partition(TOP, DAY), inputs, self.services)

    def valid(self, feed: Feed = CLEAN, key: str = DAY) -> Update | None:
        """Return the update that readers of the blackboard see."""
        return read.latest(self.services.board_of(feed), Partition(feed, key)).update

    def newest(self, feed: Feed = CLEAN, key: str = DAY) -> updates.UpdateRow | None:
        """Return the newest published update in the ledger."""
        with self.services.ledger.read() as connection:
            return updates.newest(connection, [Partition(feed, key)]).get(Partition(feed, key))

    def states(self, feed: Feed = CLEAN, key: str = DAY) -> list[str]:
        """Return the states of all updates of a partition, in order."""
        mine = updates.is_(Partition(feed, key))
        with self.services.ledger.read() as connection:
            query = sa.select(table.c.state).where(mine).order_by(table.c.id)
            return [*connection.execute(query).scalars()]

    def bad_ends(self, feed: Feed = CLEAN, key: str = DAY) -> list[tuple[str, str | None]]:
        """Return state and reason of an output's failed runs since its last good one, attempts or not."""
        same = (run.c.feed == str(feed)) & (run.c.partition == key) & (run.c.state != runs.RUNNING)
        with self.services.ledger.read() as connection:
            rows = connection.execute(sa.select(run).where(same).order_by(run.c.started, run.c.began)).all()
        well = [at for at, row in enumerate(rows) if row.state in (updates.PUBLISHED, runs.UNCHANGED)]
        return [(row.state, row.reason) for row in rows[well[-1] + 1 if well else 0 :]]

    def last_change(self) -> int:
        """Return the number of the last change."""
        with self.services.ledger.read() as connection:
            return log.last(connection)

    def running(self) -> list[Run]:
        """Return the runs that have not ended."""
        with self.services.ledger.read() as connection:
            return [*runs.running(connection)]

    def facts_of_top(self) -> Facts:
        """Return the facts for a decision about the feed that is made from the cleaned one."""
        need = need_of(Partition(TOP, DAY), (Partition(CLEAN, DAY),))
        with self.services.ledger.read() as connection:
            return fact_queries.facts(connection, [need], NOW, 3)

    def objects(self) -> list[str]:
        """Return every key on the blackboard, except claims."""
        files = [file for board in self.services.boards() for file in board.files("")]
        return [file.key for file in files if not file.key.startswith("_feed_assets/")]


def with_spark(spark: SparkSession) -> Callable[[], Maker]:
    """Return the product's maker with a given Spark session."""
    return lambda: SparkMaker(lambda _: nullcontext(spark))


def stepping(lake: Lake, on_step: Callable[[str], None]) -> Services:
    """Return the lake's services with a listener for steps."""
    return replace(lake.services, on_step=on_step)


def rows(lake: Lake, feed: Feed = CLEAN, key: str = DAY) -> list[Any]:
    """Return the rows that readers see, as sorted tuples."""
    update = lake.valid(feed, key)
    if update is None:
        raise NoValidUpdate(f"{feed} {key}")
    return sorted(tuple(row) for row in read_own(SparkSession.active(), lake.services.board_of(feed), update).collect())


def at(hour: int) -> datetime:
    """Return a moment of the day, as Spark returns it in this process's time zone."""
    return datetime.fromisoformat(DAY).replace(tzinfo=UTC) + timedelta(hours=hour)
