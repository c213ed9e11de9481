"""What a dataset reads: foreign feeds as asset specs, our own as the assets that make them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.retention import Retention
from feed_assets.orchestration.metadata import (
    APPENDABLE,
    DATASET,
    FEED,
    FOREIGN,
    FORMAT,
    ROLE,
    SCHEMA,
    TABLE,
    cadence_metadata,
    retention_metadata,
)
from feed_assets.orchestration.partitions import Partitions
from feed_assets.runs.recipe import Format, Source

PARTITION = "partition"
"""A function parameter of this name is the `Partition` that is built."""

WORK = "work"
"""A function parameter of this name is the `Work` that a run by events was asked to do."""


def asset_key(feed: Feed) -> dg.AssetKey:
    """A feed's asset key: its name, without the version."""
    return dg.AssetKey(feed.name.split("/"))


def foreign_feed(
    feed: str,
    *,
    schema: str,
    partitions_def: Partitions = None,
    format: Format = "csv",  # noqa: A002
    appendable: bool = False,
    description: str | None = None,
    owners: list[str] | None = None,
    retention: Retention | None = None,
    cadence: Cadence | None = None,
) -> dg.AssetSpec:
    """Declare a feed that somebody else writes, as an external asset.

    `schema` is the records' columns in Spark's DDL, such as `impression_id string, shown_at timestamp`; `format`
    is `csv` (with a header), `json` (lines) or `parquet`. A partition of an `appendable` feed holds batches, and its
    data are the newest valid update of every batch. With a `retention` the job `prune` removes old updates of it,
    although they are somebody else's. An update that the `cadence` expects and that does not come raises an alert.
    Raises InvalidName for a feed that is none.
    """
    found, batches = Feed.parse(feed), {APPENDABLE: True} if appendable else {}
    return dg.AssetSpec(
        asset_key(found),
        partitions_def=partitions_def,
        description=description or f"Foreign feed {found}, {format}.",
        group_name=asset_key(found).path[0],
        kinds={format},
        owners=owners,
        metadata={FEED: str(found), ROLE: FOREIGN, FORMAT: format, SCHEMA: schema, **batches}
        | retention_metadata(retention)
        | cadence_metadata(cadence),
    )


@dataclass(frozen=True)
class Input:
    """An input that is not the default: its own partition mapping, no gate, or records with their reasons.

    With a `mapping`, one output may read several partitions: their rows come with a column `_partition`. `tagged`
    hands the function every record of a foreign feed with `_raw`, `_file` and `_reasons`, so that it can add reasons.
    `required="own"`: only the partition with the output's own key has to be there, the others are read if they are.
    """

    feed: dg.AssetSpec | dg.AssetsDefinition
    mapping: dg.PartitionMapping | None = None
    ignore_quality_issue: bool = False
    tagged: bool = False
    required: Literal["all", "own"] = "all"

    def __post_init__(self) -> None:
        if self.required == "own" and self.mapping is None:
            raise InvalidDefinition(
                f"Input of {self.spec.key.to_user_string()} has required='own' and no mapping: expected one that leads "
                "to several partitions. Without it an output reads its own partition anyway."
            )

    @property
    def spec(self) -> dg.AssetSpec:
        """The spec of the asset that is read."""
        if isinstance(self.feed, dg.AssetSpec):
            return self.feed
        datasets = [spec for spec in self.feed.specs if spec.metadata.get(ROLE) == DATASET]
        if len(datasets) != 1:
            raise InvalidDefinition(f"{self.feed.keys} is no feed asset: expected one made by @feed_asset.")
        return datasets[0]

    @property
    def source(self) -> "Callable[[str], Source]":
        """The input as a run reads it, once its name is known."""
        metadata = self.spec.metadata
        if FEED not in metadata:
            raise InvalidDefinition(f"{self.spec.key.to_user_string()} is no feed: declare it with foreign_feed().")
        feed, format_, schema = Feed.parse(metadata[FEED]), metadata.get(FORMAT, "parquet"), metadata.get(SCHEMA)
        return lambda name: Source(
            name,
            feed,
            format_,
            schema,
            tagged=self.tagged,
            is_appendable=metadata.get(APPENDABLE, False),
            is_table=metadata.get(ROLE) == TABLE,
            fans_in=self.mapping is not None,
        )

    @property
    def dep(self) -> dg.AssetDep:
        """The dependency in Dagster's graph."""
        return dg.AssetDep(self.spec.key, partition_mapping=self.mapping)


def resolve(inputs: Mapping[str, "dg.AssetSpec | dg.AssetsDefinition | Input"]) -> dict[str, Input]:
    """Every input as an `Input`."""
    return {name: given if isinstance(given, Input) else Input(given) for name, given in inputs.items()}


def match_parameters(function: Callable[..., Any], names: set[str]) -> set[str]:
    """Check that a function takes exactly these inputs; which of `partition` and `work` it wants besides."""
    parameters = signature(function).parameters
    plain = {name for name, each in parameters.items() if each.kind in (Parameter.POSITIONAL_OR_KEYWORD,)}
    keyword = {name for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY}
    wanted = plain | keyword
    if wanted - {PARTITION, WORK} != names or len(wanted) != len(parameters):
        raise InvalidDefinition(
            f"{function.__qualname__}() takes {sorted(parameters)}, its inputs are {sorted(names)}: expected one "
            f"parameter for each input, by the same name (and '{PARTITION}' or '{WORK}' if it wants to know these)."
        )
    return wanted & {PARTITION, WORK}
