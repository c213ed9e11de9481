"""Attributes of an asset for display and selection in Dagster. Decisions do not depend on them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Annotated, Any

import dagster as dg

from feed_assets.core.argument_types import Name, Owner, rule
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed

OURS = "feed_assets/"
"""Prefix of metadata names that only this package writes."""

MOST_KINDS = 3
"""Greatest number of kinds that Dagster allows per asset."""

Kinds = Annotated[set[str], rule(lambda kinds: len(kinds) <= MOST_KINDS, f"a set of up to {MOST_KINDS} kinds")]

_KEY = "the asset key is the name of the feed or table. Write the prefix there, as in 'sales/orders/v1.0'."
_PUBLISHED = "a dataset is published on the blackboard, and the function returns a DataFrame. Remove the argument."
_RESOURCES = "the function gets only DataFrames, which have Spark's session. Let it create anything else that it needs."
_ALWAYS = "the function always returns a DataFrame, without rows if there are none. Remove the argument."
_NO_RUN = "no run here makes a foreign feed. Remove the argument."
_BY_SENSORS = "the sensors of with_automation() request what is due. Remove the argument."

INSTEAD: Mapping[str, str] = {
    "key_prefix": _KEY,
    "key": _KEY,
    "name": _KEY,
    "ins": "inputs= declares the inputs of the function, by parameter name.",
    "retry_policy": "a failed run is requested again automatically, up to FEED_ASSETS_MAX_ATTEMPTS times. "
    "Remove the argument.",
    "automation_condition": f"{_BY_SENSORS} late= has the rules for late data, and wait= the rules for missing inputs.",
    "auto_materialize_policy": _BY_SENSORS,
    "backfill_policy": "FEED_ASSETS_PARTITIONS_PER_RUN limits the partitions of a backfill's run. Remove the argument.",
    "freshness_policy": "cadence=Cadence(…) declares when updates are expected.",
    "io_manager_key": _PUBLISHED,
    "io_manager_def": _PUBLISHED,
    "check_specs": "checks= takes checks of feed_assets.checks.",
    "compute_kind": "kinds= takes a set of kinds.",
    "partition_mapping": "Input(feed, mapping=…) among the inputs declares which partitions of an input are read.",
    "op_tags": "pool= limits how many runs of the dataset are active at once, and tags= serve to select assets. "
    "Remove the argument.",
    "config_schema": "runs have no configuration, so that every run has the same result. Let the function read your "
    "own configuration.",
    "required_resource_keys": _RESOURCES,
    "resource_defs": _RESOURCES,
    "hooks": "alerts report failures, by FEED_ASSETS_ALERT_WEBHOOK and others. Remove the argument.",
    "output_required": _ALWAYS,
    "skippable": _ALWAYS,
    "dagster_type": "the function returns a DataFrame, and checks= has the rules for its rows. Remove the argument.",
    "is_virtual": "a dataset is files on the blackboard. Remove the argument.",
}
"""Advice for arguments that Dagster's assets take but our datasets do not, by the argument's name."""

_OF_BOTH = ("key_prefix", "key", "name", "freshness_policy", "compute_kind")
INSTEAD_OF_FOREIGN: Mapping[str, str] = {
    **dict.fromkeys([*INSTEAD, "code_version", "pool"], _NO_RUN),
    **{name: INSTEAD[name] for name in _OF_BOTH},
    "compact": "the files belong to others. Declare compacted_copy(source, feed), and read the copy.",
    "deps": "no run here makes a foreign feed, so it waits for nothing. A dataset takes deps=.",
    "check_specs": "no run here makes a foreign feed. Datasets that read it take checks=.",
    "partition_mapping": INSTEAD["partition_mapping"].replace("among the inputs", "among the inputs of a dataset"),
}
"""Advice for arguments that Dagster's assets take but foreign feeds do not, by the argument's name."""


@dataclass(frozen=True)
class Presentation:
    """Attributes for display. For None and empty values, the declaration's defaults are used."""

    description: str | None = None
    group_name: Name | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    kinds: Set[str] = frozenset()
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    owners: Sequence[Owner] | None = None

    def of_rejects(self) -> "Presentation":
        """Return the attributes that a feed of rejects shares with its dataset."""
        return Presentation(group_name=self.group_name, tags=self.tags, owners=self.owners)

    def spec(self, feed: Feed, key: dg.AssetKey, **attributes: Any) -> dg.AssetSpec:
        """Return the spec of a feed's asset.

        `attributes` has the other arguments of `dg.AssetSpec`, and defaults for values that this object lacks. Raise
        InvalidDefinition for values that Dagster refuses, and for metadata with our prefix.
        """
        if reserved := sorted(name for name in self.metadata if name.startswith(OURS)):
            raise InvalidDefinition(
                f"{feed} has metadata {reserved[0]!r}: expected names outside of {OURS}, which is reserved. Rename it."
            )
        attributes["description"] = self.description or attributes["description"]
        attributes["group_name"] = self.group_name or attributes["group_name"]
        attributes["kinds"] = set(self.kinds or attributes["kinds"])
        attributes["metadata"] = {**self.metadata, **attributes["metadata"]}
        try:
            return dg.AssetSpec(key, tags=self.tags, owners=self.owners, **attributes)
        except dg.DagsterInvalidDefinitionError as error:
            raise InvalidDefinition(f"{feed}: {' '.join(str(error).split())}") from None
