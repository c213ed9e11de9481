"""`profiled`: the profile of what another team writes is a dataset beside it, which reports its findings."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import dagster as dg

from feed_assets.core.argument_types import Owner
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.lateness import Late
from feed_assets.core.profiles import Profile
from feed_assets.core.retention import Retention
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.datasets import dataset_of, recipe_of, with_profile
from feed_assets.orchestration.declare.declarations import Foreign, StateTable
from feed_assets.orchestration.declare.input_specs import Input, declared_feed
from feed_assets.orchestration.declare.presentation import Presentation
from feed_assets.orchestration.declare.resolved import resolve
from feed_assets.orchestration.execute.assets import assets_of
from feed_assets.runs.checks import Checks
from feed_assets.runs.recipe import source_digest

VERSION = "v1.0"
"""The version of what is measured: one row for each measure."""


@typed
def profiled(
    table: Annotated[dg.AssetSpec, Example("orders", "what foreign_feed or state_table gives")],
    profile: Profile,
    *,
    deep_checks: Checks = (),
    rows: Callable[..., Any] | None = None,
    retention: Retention | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetsDefinition:
    """Declare that another team's data are measured once they are complete, and checked if the profile requires it.

    It becomes a dataset, `<name>_profile/v1.0`, of the same partitions, with one row for each measure: what was found,
    the median of the baseline, its median absolute deviation, and whether it is an anomaly. Findings of the profile and
    the deep checks are the quality of the partition, or of the windows, that they have read: a deep check that fails
    blocks all readers.

    Args:
        table: The asset that `foreign_feed` or `state_table` gives, with partitions of time.
        profile: Measures of its rows, compared with the partitions before.
        deep_checks: Checks that are run only if the profile is off, or has too little to be compared with.
        rows: A function from what is read to the rows as a DataFrame: required for a state table, of which it gets the
            `Span`; of a feed it gets the records that parse, which are the rows without it.
        retention: History of the profiles that the job `prune` keeps; by default all of it.
        owners: Owners for the UI: `team:ads`, or an address of e-mail.

    Returns:
        The asset of the dataset, to be among the definitions.

    Raises:
        InvalidDefinition: A value is of a wrong type, the table is neither of these two, has no partitions of time, or
            no rows are given of a state table.
    """
    declared = Input(table, ignore_quality_issue=True)
    _check(declared, rows)
    name, partitions_def = declared.declaration.feed.name, table.partitions_def
    feed = declared_feed(f"{name}_profile/{VERSION}")
    read = resolve(feed, partitions_def, {"table": declared})

    def measured(table: Any) -> Any:
        return rows(table) if rows else table

    measured.__doc__ = f"What the rows of {name} measure, against the partitions before: {', '.join(profile.measures)}."
    recipe = recipe_of(feed, measured, read, {}, (), None, None, source_digest(rows) or "1")
    recipe = replace(with_profile(recipe, profile, deep_checks, partitions_def), is_companion=True, rejects=None)
    recipe = replace(recipe, code_version=recipe.digest)  # Other measures are other data, although of equal rows.
    dataset = dataset_of(recipe, read, Late(), retention, None, None, None, None, "always")
    return assets_of(recipe, read, dataset, partitions_def, Presentation(owners=owners))


def _check(table: Input, rows: Callable[..., Any] | None) -> None:
    declared = table.declaration
    if not isinstance(declared, Foreign | StateTable):
        raise InvalidDefinition(
            f"profiled({declared.feed}): expected a foreign feed or a state table. A dataset of yours has profile= of "
            "its own."
        )
    if isinstance(declared, StateTable) and rows is None:
        raise InvalidDefinition(
            f"profiled({declared.feed}): of a state table only its complete windows are known here: expected rows=, a "
            "function from the Span to read to a DataFrame."
        )
