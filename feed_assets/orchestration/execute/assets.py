"""`@feed_asset`: it declares a plain function from DataFrames to a DataFrame as an asset with a File Feed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import dagster as dg

from feed_assets.core.argument_types import Aggregate, BoardName, Name, Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.compact import Compact
from feed_assets.core.completeness import Completeness
from feed_assets.core.data_centers import PRIMARY, At, has_several_places
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.late_policy import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.profiles import Profile
from feed_assets.core.resources import Resources
from feed_assets.core.retention import Retention
from feed_assets.core.sub_partitions import Regions
from feed_assets.core.typed import typed, typed_with
from feed_assets.core.waits import Wait
from feed_assets.orchestration.decide.automation import late_rerun
from feed_assets.orchestration.decide.run_config import RunConfig
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.cadences import check_cadence
from feed_assets.orchestration.declare.datasets import (
    as_batches,
    check_spec_of,
    dataset_of,
    recipe_of,
    spec_of,
    with_figures,
    with_profile,
    with_windows,
)
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.hints import hint
from feed_assets.orchestration.declare.input_specs import Input, asset_key, declared_feed, tracked_of
from feed_assets.orchestration.declare.lost_windows import check_windows
from feed_assets.orchestration.declare.partitions import Partitions, times_of
from feed_assets.orchestration.declare.place_checks import check_places
from feed_assets.orchestration.declare.presentation import INSTEAD, Kinds, Presentation
from feed_assets.orchestration.declare.resolved import check_late, resolve
from feed_assets.orchestration.execute.declared_recipes import RECIPES
from feed_assets.runs.checks import Checks
from feed_assets.runs.recipe import Recipe
from feed_assets.settings import Declaring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    DataFrame = Any  # Declaring a dataset checks types without loading Spark.

Readable = Annotated[
    dg.AssetSpec | dg.AssetsDefinition | Input,
    Example("orders", "what @feed_asset, foreign_feed or Input gives", decorator="feed_asset"),
]


@typed_with(INSTEAD)
def feed_asset(
    feed: str,
    *,
    inputs: Mapping[str, Readable],
    deps: Sequence[Readable] = (),
    partitions_def: Partitions = None,
    checks: Checks = (),
    profile: Profile | None = None,
    deep_checks: Checks = (),
    late: Late | None = None,
    retention: Retention | None = None,
    by_events: ByEvents | None = None,
    appendable: bool = False,
    cadence: Cadence | None = None,
    completeness: Completeness | None = None,
    regions: Regions | None = None,
    event_time: str | None = None,
    wait: Wait | None = None,
    reprocess: Reprocess = "if_data_changed",
    figures: Mapping[Name, Aggregate] | None = None,
    chart: "Callable[[DataFrame], str] | None" = None,
    description: str | None = None,
    group_name: Name | None = None,
    tags: Mapping[str, str] | None = None,
    kinds: Kinds | None = None,
    metadata: Mapping[str, Any] | None = None,
    owners: Sequence[Owner] | None = None,
    code_version: str | None = None,
    pool: str | None = None,
    resources: Resources | None = None,
    at: At = PRIMARY,
    version_in_key: bool = False,
    compact: Compact | None = None,
    blackboard: BoardName | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare a dataset: a function from DataFrames to a DataFrame becomes an asset whose data are a File Feed.

    The function takes one DataFrame for each input, by name, and returns the partition's rows. For an event table it
    gets the `Slice` to read. The function may have further parameters. `partition` gets the `Partition` to build, and
    `run_spec` gets the `RunSpec` with the run's slices and plan. `previous` gets the rows that the dataset published
    last for the partition: the function merges the increment into them and returns the result. `previous` is None if
    the run loads the whole dataset. It needs `by_events`. Records of foreign feeds that do not parse never reach the
    function. They are published as `<name>_rejects`, with the columns `reason`, `file` and `raw`.

    Args:
        feed: Name and version, such as `ads/effectiveness/v1.0`. The version is required.
        inputs: The inputs by the name of the function's parameter: assets of `foreign_feed`, `event_table` or another
            `@feed_asset`, or an `Input`. Each feed may occur once.
        deps: Inputs that the dataset waits for and does not read. The function has no parameters for them. A change of
            one of them causes a re-run, like a change of an input.
        partitions_def: Dagster's partitions. Without them the dataset is one partition.
        checks: Checks of the written rows before publication, from `feed_assets.checks`.
        profile: Measures of the written rows, to compare with earlier partitions.
        deep_checks: Checks that run only if a measure of the profile is unusual, or if there are too few profiles to
            compare with.
        late: Rules that decide which late data cause a re-run; by default all late data do.
        retention: History of the dataset and its rejects that the job `prune` keeps; by default all of it.
        by_events: Build a partition once an update has reached all inputs, and not whenever an input is newer. Source:
            "Data Orchestration via Events" (2024). Required to read an event table.
        appendable: True if the partitions hold batches. The function then returns only the rows of an increment, which
            are published as a batch. If a run loads the whole dataset, its batch replaces all others. Needs `by_events`
            and only event tables as inputs. Checks apply to the rows of each batch.
        cadence: Schedule of the updates. A missing update opens an alert.
        completeness: Rules for complete windows. Readers wait for a valid update and for complete windows. Needs
            `event_time`.
        regions: The regions that are the keys of the partitions' second dimension, each with its own midnight.
        event_time: A timestamp column. Its least and greatest values (UTC) are recorded with each update.
        wait: Further conditions for building a partition: a time, how many inputs are enough, and a deadline after
            which an alert opens. Needs partitions of time.
        reprocess: Whether a partition is built again after a backfill of windows that it has read: `if_data_changed`,
            `always`, or `never`.
        figures: Key figures: numeric SQL aggregates of the written rows by name, such as `{"revenue":
            "sum(price)"}`. With the dataset's size they show the effect of a re-run to the owners of changed inputs.
        chart: A function from the written rows to Markdown, for the UI.
        description: A description for the UI; by default the function's docstring.
        group_name: Dagster's group; by default the first part of the feed's name. The asset key is the feed's whole
            name.
        tags: Dagster's tags, by which assets are selected.
        kinds: Up to three kinds for the UI; by default `pyspark` and `parquet`.
        metadata: Metadata for the UI. Names must not begin with `feed_assets/`.
        owners: Owners for the UI: `team:ads`, or an e-mail address.
        code_version: The code's version, by default a digest of the function's source. A run with equal inputs and
            code version publishes nothing.
        pool: Dagster's concurrency pool, which limits the active runs. Other runs wait in the queue. A run of many
            partitions counts once.
        resources: Cores and memory that each run needs, and the compute targets that it may use; by default
            `Resources()`.
        at: The place where a run computes, and whose copies of the inputs it reads: `"primary"`, the name of a data
            center, a tuple of names by preference, `"any"`, or a dict with the home of each key of a static dimension.
            The dataset is always published on its own blackboard.
        version_in_key: True if the asset keys of the dataset and its rejects contain the version. Needed if a newer
            version is declared beside an older one, which keeps its key and history.
        compact: When and how small files of a partition are merged by the job `compact`; by default never.
        blackboard: The name of the blackboard in `FEED_ASSETS_BLACKBOARDS` on which the dataset and its rejects are
            published; by default `FEED_ASSETS_BLACKBOARD`. The setting must say that it is `writable`.

    Returns:
        A decorator that turns the function into the assets of the dataset and its rejects.

    Raises:
        InvalidName: The feed's name is invalid or has no version.
        InvalidDefinition: The declaration is invalid: a value has a wrong type, an input is no feed, the function's
            parameters are not its inputs, or it takes `previous` without `by_events`.
    """
    own_feed = declared_feed(feed)
    read, tracked = (
        resolve(own_feed, partitions_def, inputs, version_in_key),
        tracked_of(own_feed, completeness, regions),
    )
    numbered = {f"deps[{number}]": given for number, given in enumerate(deps)}
    waited_for = resolve(own_feed, partitions_def, numbered, version_in_key)
    presentation = Presentation(
        description, group_name, tags or {}, kinds=kinds or frozenset(), metadata=metadata or {}, owners=owners
    )
    if wait and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{own_feed} has no time partitions, but `wait` counts from the end of a partition: expected "
            "partitions_def with a dimension of time windows. Add one, or remove `wait`."
        )

    check_cadence(own_feed, cadence, partitions_def)
    check_windows(own_feed, partitions_def)
    check_places(own_feed, partitions_def, at)
    check_late(own_feed, partitions_def, [late, *(each.late for each in (*read.values(), *waited_for.values()))])

    def dataset(function: Callable[..., Any]) -> dg.AssetsDefinition:
        recipe = recipe_of(
            own_feed,
            function,
            read,
            waited_for=waited_for,
            checks=checks,
            event_time=event_time,
            chart=chart,
            code_version=code_version,
        )
        recipe = with_figures(with_profile(recipe, profile, deep_checks, partitions_def), figures or {})
        recipe = replace(recipe, is_by_events=by_events is not None, blackboard=blackboard)
        recipe = with_windows(recipe, tracked)
        recipe = as_batches(recipe, profile, completeness) if appendable else recipe
        needed = {**read, **waited_for}
        declared = dataset_of(
            recipe,
            needed,
            late or Late(),
            retention=retention,
            by_events=by_events,
            cadence=cadence,
            tracked=tracked,
            wait=wait,
            reprocess=reprocess,
            resources=resources,
            version_in_key=version_in_key,
            compact=compact,
            at=at,
        )
        return assets_of(recipe, needed, declared, partitions_def=partitions_def, presentation=presentation, pool=pool)

    return typed(dataset)


def assets_of(
    recipe: Recipe,
    read: Mapping[str, Input],
    declared: Dataset,
    partitions_def: Partitions,
    presentation: Presentation,
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of a dataset and its rejects, with the checks. One run builds all of them."""
    hint(recipe, partitions_def, read)
    condition = None if recipe.is_by_events else late_rerun()
    key = asset_key(recipe.feed, declared.version_in_key)
    specs = [
        spec_of(recipe, output, read, dataset=declared, presentation=presentation, condition=condition)
        for output in recipe.outputs
    ]
    # The type in Dagster's stub lacks a type argument.
    partitioned = [spec.replace_attributes(partitions_def=partitions_def) for spec in specs]  # pyright: ignore[reportUnknownMemberType]
    return dg.multi_asset(
        name=key.to_python_identifier(),
        specs=partitioned,
        check_specs=[check_spec_of(recipe, check, key, partitions_def) for check in recipe.all_checks],
        partitions_def=partitions_def,
        can_subset=True,
        backfill_policy=_backfill_policy(recipe, declared.at) if partitions_def else None,
        pool=pool,
    )(_body_of(recipe, read, partitioned))


def _body_of(recipe: Recipe, read: Mapping[str, Input], specs: Sequence[dg.AssetSpec]) -> Callable[..., Iterator[Any]]:
    """Return the function that Dagster calls in each run of a dataset."""

    def run(context: dg.AssetExecutionContext, config: RunConfig) -> Iterator[Any]:
        # Imported here: a process that only loads declarations needs no ledger, and half of our modules.
        from feed_assets.orchestration.execute.asset_function import run_dataset

        yield from run_dataset(recipe, read, specs, context=context, config=config)

    RECIPES[run] = recipe
    return run


def _backfill_policy(recipe: Recipe, at: At) -> dg.BackfillPolicy | None:
    """Return Dagster's policy for backfills.

    With None, each partition gets its own run. Datasets that are built by events, or at several places, need this.
    """
    partitions = 1 if recipe.is_by_events or has_several_places(at) else Declaring().partitions_per_run
    return dg.BackfillPolicy.multi_run(partitions) if partitions > 1 else None
