"""`profiled`, which declares a companion dataset: it profiles another team's data and reports findings about them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import dagster as dg

from feed_assets.core.argument_types import Owner
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.late_policy import Late
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
"""The version of the profile dataset, which has one row per measure."""


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
    """Declare a dataset that profiles another team's data once they are complete, and checks them if they look unusual.

    The profile is a dataset, `<name>_profile/v1.0`, with the same partitions and one row per measure: its value, the
    baseline's median and median absolute deviation, and whether the value is an anomaly. The results of the profile and
    the deep checks are stored as check results of the partition or windows that were read. So a failed deep check
    blocks all readers of these data.

    Args:
        table: The asset of `foreign_feed` or `state_table`, with partitions of time.
        profile: Measures of its rows, to compare with earlier partitions.
        deep_checks: Checks that run only if a measure is unusual, or if there are too few profiles to compare with.
        rows: A function that returns the rows as a DataFrame. For a state table it is required and gets the `Span`.
            For a feed it gets the records that parse. Without the function, these records are the rows.
        retention: History of the profiles that the job `prune` keeps; by default all of it.
        owners: Owners for the UI: `team:ads`, or an e-mail address.

    Returns:
        The asset of the dataset. Add it to the definitions.

    Raises:
        InvalidDefinition: A value has a wrong type, `table` is neither a foreign feed nor a state table, it has no time
            partitions, or a state table has no `rows`.
    """
    declared = Input(table, ignore_quality_issue=True)
    _check(declared, rows)
    name, partitions_def = declared.declaration.feed.name, table.partitions_def
    feed = declared_feed(f"{name}_profile/{VERSION}")
    read = resolve(feed, partitions_def, {"table": declared})

    def measured(table: Any) -> Any:
        return rows(table) if rows else table

    measured.__doc__ = (
        f"Measures of the rows of {name}, compared with earlier partitions: {', '.join(profile.measures)}."
    )
    recipe = recipe_of(
        feed,
        measured,
        read,
        waited_for={},
        checks=(),
        event_time=None,
        chart=None,
        code_version=source_digest(rows) or "1",
    )
    recipe = replace(with_profile(recipe, profile, deep_checks, partitions_def), is_companion=True, rejects=None)
    # Make the code version depend on the measures, because other measures lead to another profile of the same rows.
    recipe = replace(recipe, code_version=recipe.digest)
    dataset = dataset_of(
        recipe,
        read,
        Late(),
        retention=retention,
        by_events=None,
        cadence=None,
        tracked=None,
        wait=None,
        reprocess="always",
    )
    return assets_of(recipe, read, dataset, partitions_def, Presentation(owners=owners))


def _check(table: Input, rows: Callable[..., Any] | None) -> None:
    declared = table.declaration
    if not isinstance(declared, Foreign | StateTable):
        raise InvalidDefinition(
            f"profiled({declared.feed}): expected a foreign feed or a state table. For your own dataset, use its "
            "argument profile=."
        )
    if isinstance(declared, StateTable) and rows is None:
        raise InvalidDefinition(
            f"profiled({declared.feed}): expected rows= for a state table, a function that reads the Span and returns "
            "a DataFrame, because only its complete windows are known here. Add rows=."
        )
