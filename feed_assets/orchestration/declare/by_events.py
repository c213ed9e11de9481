"""Declarations of datasets by events: which pipelines, what to wait for, how a run processes its slices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from feed_assets.core.argument_types import BoardName, Prefix, Url
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.plans import Rule
from feed_assets.core.propagation import Consumer
from feed_assets.core.typed import typed

Pipelines = Mapping[str, frozenset[Feed]]


@typed
@dataclass(frozen=True)
class LineageTable:
    """A table with the tables that each pipeline writes, a row for each.

    Args:
        url: Its database's URL in SQLAlchemy's form, or `env:NAME` for that of a variable.
        table: Its name.
        pipeline: The column with the pipeline's name.
        table_name: The column with the name of a table that the pipeline writes.
        schema: The database's schema that it is in.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the URL is none.
    """

    url: Url
    table: str
    pipeline: str = "pipeline"
    table_name: str = "table_name"
    schema: str | None = None


@typed
@dataclass(frozen=True)
class LineageFile:
    """A file of JSON lines with the tables that each pipeline writes, an object for each.

    Args:
        key: Its key on the blackboard, such as `events_pipelines/newest.jsonl`.
        pipeline: The field with the pipeline's name.
        table_name: The field with the name of a table that the pipeline writes.
        blackboard: The name of the blackboard, of those in `FEED_ASSETS_BLACKBOARDS`; by default ours.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the key is none.
    """

    key: Prefix
    pipeline: str = "pipeline"
    table_name: str = "table_name"
    blackboard: BoardName | None = None


TOLD = (LineageTable, LineageFile)
"""Sources of pipelines that others declare, and may change."""


@typed
@dataclass(frozen=True)
class ByEvents:
    """A dataset that is built when an update has reached every table that it reads, as its events say.

    After "Data Orchestration via Events" (2024).

    Args:
        wait_for: Build for `any` of the pipelines that has a complete update, or once `all` of them have one.
        on_incomplete: `skip` an incomplete update until it is complete, or let it `block` later ones.
        merge: True if one run may take several updates that wait together, else one of each pipeline.
        pipelines: The tables that each pipeline writes, by its name, or the table or file with these. By default they
            follow from the asset graph: inputs that are made of the same inputs.
        plans: Rules for processing slices: the plan of the first rule that holds; without one, incrementally.
        stuck_after: An update that is incomplete for longer raises an alert.

    Raises:
        InvalidName: A table of `pipelines` has no possible name.
        InvalidDefinition: A value is of a wrong type, a pipeline has no tables, or `stuck_after` is not more than
            nothing.
    """

    wait_for: Literal["any", "all"] = "any"
    on_incomplete: Literal["skip", "block"] = "skip"
    merge: bool = True
    pipelines: Mapping[str, Sequence[str]] | LineageTable | LineageFile | None = None
    plans: Sequence[Rule] = ()
    stuck_after: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.stuck_after <= timedelta():
            raise InvalidDefinition(f"stuck_after is {self.stuck_after}: expected more than nothing.")
        if isinstance(self.pipelines, Mapping):
            _ = [Feed.parse(table) for tables in self.pipelines.values() for table in tables]
            if empty := [name for name, tables in self.pipelines.items() if not tables]:
                raise InvalidDefinition(f"pipeline {empty[0]!r} has no tables: expected those that it writes.")

    def consumer(self, feed: Feed, tables: frozenset[Feed], pipelines: Pipelines) -> Consumer:
        """Return a dataset with these inputs as a consumer; `pipelines` are those of the graph or a lineage table."""
        if isinstance(self.pipelines, Mapping):
            pipelines = {name: frozenset(map(Feed.parse, some)) for name, some in self.pipelines.items()}
        return Consumer(feed, tables, pipelines, self.wait_for, self.on_incomplete, self.merge)
