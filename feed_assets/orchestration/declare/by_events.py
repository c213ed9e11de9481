"""Declarations for datasets built by events: their pipelines, when they wait, and how a run processes its slices."""

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
    """A database table that lists the tables that each pipeline writes, one per row.

    Args:
        url: The database's URL in SQLAlchemy's form, or `env:NAME` for a variable with the URL.
        table: The table's name.
        pipeline: The column with the pipeline's name.
        table_name: The column with the name of a table that the pipeline writes.
        schema: The table's schema in the database.

    Raises:
        InvalidDefinition: A value has a wrong type, or the URL is invalid.
    """

    url: Url
    table: str
    pipeline: str = "pipeline"
    table_name: str = "table_name"
    schema: str | None = None


@typed
@dataclass(frozen=True)
class LineageFile:
    """A file of JSON lines that lists the tables that each pipeline writes, one per line.

    Args:
        key: The file's key on the blackboard, such as `events_pipelines/newest.jsonl`.
        pipeline: The field with the pipeline's name.
        table_name: The field with the name of a table that the pipeline writes.
        blackboard: The name of the file's blackboard in `FEED_ASSETS_BLACKBOARDS`; by default our own.

    Raises:
        InvalidDefinition: A value has a wrong type, or the key is invalid.
    """

    key: Prefix
    pipeline: str = "pipeline"
    table_name: str = "table_name"
    blackboard: BoardName | None = None


TOLD = (LineageTable, LineageFile)
"""Sources of pipelines outside the code. Their content may change while a process runs."""


@typed
@dataclass(frozen=True)
class ByEvents:
    """Rules for a dataset that is built when events report that an update has reached every table that it reads.

    After "Data Orchestration via Events" (2024).

    Args:
        wait_for: `any`: build once any pipeline has a complete update. `all`: build once all pipelines have one.
        on_incomplete: `skip` an incomplete update until it is complete, or let it `block` later updates.
        merge: True if one run may take several waiting updates of a pipeline. False if a run takes only one update of
            each.
        pipelines: The tables that each pipeline writes, by the pipeline's name, or the table or file that lists them.
            By default the pipelines follow from the asset graph: inputs belong to one pipeline if their correlation
            ids have the same origin.
        plans: Rules for processing slices. The first rule that matches gives the plan. By default the plan is
            incremental.
        stuck_after: The time after which an incomplete update opens an alert.

    Raises:
        InvalidName: A table name in `pipelines` is invalid.
        InvalidDefinition: A value has a wrong type, a pipeline has no tables, or `stuck_after` is not positive.
    """

    wait_for: Literal["any", "all"] = "any"
    on_incomplete: Literal["skip", "block"] = "skip"
    merge: bool = True
    pipelines: Mapping[str, Sequence[str]] | LineageTable | LineageFile | None = None
    plans: Sequence[Rule] = ()
    stuck_after: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.stuck_after <= timedelta():
            raise InvalidDefinition(f"stuck_after is {self.stuck_after}: expected a positive duration.")
        if isinstance(self.pipelines, Mapping):
            _ = [Feed.parse(table) for tables in self.pipelines.values() for table in tables]
            if empty := [name for name, tables in self.pipelines.items() if not tables]:
                raise InvalidDefinition(f"pipeline {empty[0]!r} has no tables: expected the tables that it writes.")

    def consumer(self, feed: Feed, tables: frozenset[Feed], pipelines: Pipelines) -> Consumer:
        """Return the consumer for the dataset `feed` with the inputs `tables`.

        `pipelines` come from the asset graph or a lineage table. They are ignored if the rules name the pipelines
        themselves.
        """
        if isinstance(self.pipelines, Mapping):
            pipelines = {name: frozenset(map(Feed.parse, some)) for name, some in self.pipelines.items()}
        return Consumer(
            feed, tables, pipelines, wait_for=self.wait_for, on_incomplete=self.on_incomplete, merge=self.merge
        )
