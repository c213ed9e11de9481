"""The graph of the simulation of scale, hourly datasets of four regions in three levels, and a ledger with history."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import dagster as dg
import sqlalchemy as sa

from feed_assets import Input, feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import change, consumed, subscription, update
from feed_assets.orchestration.decide.graph import Graph

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
REGIONS = ("ap", "eu", "sa", "us")
HOURS = dg.MultiPartitionsDefinition(
    {
        "hour": dg.HourlyPartitionsDefinition(f"{BEGIN:%Y-%m-%d-%H:%M}"),
        "region": dg.StaticPartitionsDefinition([*REGIONS]),
    }
)
DATASETS_OF_A_FEED = 20
"""Datasets for each foreign feed."""

LEVELS = (0.5, 0.35, 0.15)
"""Shares of the datasets that read foreign feeds, datasets of the first level, and datasets of the second level."""

ID, VERSION = "20240101.000000", "x"
"""Update id and version of everything in the history."""


def hour(number: int) -> datetime:
    """Return the start of an hour, numbered from `BEGIN`."""
    return BEGIN + timedelta(hours=number)


def key_of(number: int, region: str) -> str:
    """Return the path of an hour of a region."""
    return f"{hour(number):%Y-%m-%d-%H:00}/{region}"


@dataclass(frozen=True)
class ScaleGraph:
    """The names of `datasets` datasets and of their foreign feeds, and what each dataset reads."""

    datasets: int

    @cached_property
    def foreign(self) -> list[str]:
        """Return the names of the foreign feeds."""
        return [f"raw/f{each:04d}/v1.0" for each in range(max(self.datasets // DATASETS_OF_A_FEED, 1))]

    @cached_property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of each dataset's inputs, in the order in which datasets depend on each other.

        Datasets of the first level read one foreign feed. The others read two datasets of the level before.
        """
        found = dict[str, tuple[str, ...]]()
        above = self.foreign
        for level, share in enumerate(LEVELS, 1):
            names = [f"l{level}/d{each:04d}/v1.0" for each in range(max(int(share * self.datasets), 1))]
            for number, name in enumerate(names):
                reads = {above[number % len(above)], above[(number * 7 + 1) % len(above)]}
                found[name] = (above[number % len(above)],) if level == 1 else tuple(sorted(reads))
            above = names
        return found

    @cached_property
    def definitions(self) -> dg.Definitions:
        """Return the definitions of all datasets."""
        assets: dict[str, Any] = {name: _foreign(name) for name in self.foreign}
        for name, inputs in self.inputs.items():
            read = {f"i{number}": Input(assets[each]) for number, each in enumerate(inputs)}
            assets[name] = _dataset(name, read)
        return with_automation(dg.Definitions(assets=[*assets.values()]))

    @cached_property
    def graph(self) -> Graph:
        """Return the graph that the decisions use."""
        return Graph(self.definitions.get_repository_def().asset_graph)

    def fill(self, ledger: Ledger, hours: int) -> None:
        """Write the rows that `hours` hours of publications leave, in bulk: updates, their pins and their log."""
        feeds = [*self.foreign, *self.inputs]
        edges = [(output, each) for output, inputs in self.inputs.items() for each in inputs]
        heard = sorted({*edges, *((output, output) for output in self.inputs)})
        rows = [{"subscriber": who, "feed": feed, "position": len(feeds) * hours * len(REGIONS)} for who, feed in heard]
        with ledger.change() as connection:
            keys = [key_of(each, region) for each in range(hours) for region in REGIONS]
            _insert_keys(connection, keys)
            connection.execute(_updates(feeds, set(self.foreign), len(keys)))
            connection.execute(_log())
            connection.execute(_pins(edges))
            connection.execute(sa.insert(subscription), rows)
        if ledger.engine.dialect.name == "postgresql":
            with ledger.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("VACUUM ANALYZE")


def _foreign(name: str) -> dg.AssetSpec:
    return foreign_feed(name, partitions_def=HOURS, schema="n int", format="parquet")


def _dataset(name: str, inputs: Mapping[str, Input]) -> dg.AssetsDefinition:
    def one(i0: Any) -> Any:
        """Stand for a transform that never runs."""
        return i0

    def two(i0: Any, i1: Any) -> Any:
        """Stand for a transform that never runs."""
        return i0, i1

    made = one if len(inputs) == 1 else two
    return feed_asset(name, partitions_def=HOURS, inputs=inputs, code_version="1")(made)


_KEYS = sa.table("scale_key", sa.column("number", sa.Integer), sa.column("key", sa.String))


def _insert_keys(connection: sa.Connection, keys: list[str]) -> None:
    connection.exec_driver_sql("CREATE TEMPORARY TABLE scale_key (number integer, key varchar)")
    connection.execute(sa.insert(_KEYS), [{"number": number, "key": key} for number, key in enumerate(keys, 1)])


def _updates(feeds: list[str], foreign: set[str], keys: int) -> sa.Insert:
    columns = sa.column("number", sa.Integer), sa.column("name", sa.String), sa.column("is_foreign", sa.Boolean)
    rows = [(number, name, name in foreign) for number, name in enumerate(feeds)]
    of = sa.values(*columns, name="feeds").data(rows).cte("feeds")
    values = {
        "feed": of.c.name,
        "partition": _KEYS.c.key,
        "id": sa.literal(ID),
        "state": sa.literal("published"),
        "version": sa.literal(VERSION),
        "origin": sa.case((of.c.is_foreign, "foreign"), else_="run"),
        "run": sa.case((of.c.is_foreign, None), else_="x"),
        "code_version": sa.case((of.c.is_foreign, None), else_="1"),
        "size": sa.literal(4),
        "files": sa.literal(1),
        "at": sa.literal(BEGIN, update.c.at.type),
        "changed": of.c.number * keys + _KEYS.c.number,
    }
    return sa.insert(update).from_select([*values], sa.select(*values.values()).join_from(of, _KEYS, sa.true()))


def _log() -> sa.Insert:
    columns = ["sequence", "feed", "partition", "kind", "subject", "after", "at"]
    reported = update.c.changed, update.c.feed, update.c.partition, sa.literal("update"), update.c.id, update.c.state
    return sa.insert(change).from_select(columns, sa.select(*reported, update.c.at))


def _pins(edges: list[tuple[str, str]]) -> sa.Insert:
    columns = sa.column("output", sa.String), sa.column("input", sa.String)
    edge = sa.values(*columns, name="edge").data(edges).cte("edge")
    values = {
        "feed": edge.c.output,
        "partition": _KEYS.c.key,
        "id": sa.literal(ID),
        "input_feed": edge.c.input,
        "input_partition": _KEYS.c.key,
        "position": sa.literal(ID),
        "version": sa.literal(VERSION),
        "size": sa.literal(4),
        "files": sa.literal(1),
        "is_input": sa.true(),
    }
    return sa.insert(consumed).from_select([*values], sa.select(*values.values()).join_from(edge, _KEYS, sa.true()))


def partition(feed: str, key: str) -> Partition:
    """Return a partition of the simulation."""
    return Partition(Feed.parse(feed), key)
