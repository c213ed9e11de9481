"""`@feed_asset`: a plain function from DataFrames to a DataFrame becomes an asset whose data are a File Feed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import dagster as dg

from feed_assets.core.argument_types import Aggregate, Name, Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.lateness import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.profiles import Profile
from feed_assets.core.retention import Retention
from feed_assets.core.sub_partitions import Regions
from feed_assets.core.typed import typed, typed_with
from feed_assets.core.waits import Wait
from feed_assets.orchestration.decide.automation import late_rerun
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
from feed_assets.orchestration.declare.presentation import INSTEAD, Kinds, Presentation
from feed_assets.orchestration.declare.resolved import check_late, resolve
from feed_assets.orchestration.execute.asset_function import body_of
from feed_assets.runs.checks import Checks
from feed_assets.runs.recipe import Recipe
from feed_assets.settings import Declaring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    DataFrame = Any  # Types are checked when a dataset is declared, which loads no Spark.

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
    version_in_key: bool = False,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare a dataset: a function from DataFrames to a DataFrame becomes an asset whose data are a File Feed.

    The function takes one DataFrame for each input, by name, and returns the partition's rows; of an event table it
    gets the `Slice` to read. Parameters called `partition` and `run_spec` get the `Partition` that is built, and the
    `RunSpec` with what the run consumes and how. One called `previous` gets the rows of the partition that the dataset
    published last, to be returned with an increment merged in. It is None where everything is loaded, and needs
    `by_events`. Records of foreign feeds that do not parse never reach the function: they are published beside the
    dataset, as `<name>_rejects`, with the columns `reason`, `file` and `raw`.

    Args:
        feed: Name and version, such as `ads/effectiveness/v1.0`; the version is required.
        inputs: The inputs by the name of the function's parameter: what `foreign_feed`, `event_table` or another
            `@feed_asset` gives, or an `Input` of one. Each feed once.
        deps: Inputs that are waited for and not read: the function has no parameter for them. A change of one builds
            the dataset again, as that of an input does.
        partitions_def: Dagster's partitions; without them the dataset is one partition.
        checks: Conditions on the written rows before anybody sees them, made by `feed_assets.checks`.
        profile: Measures of the written rows, compared with the partitions before: by time.
        deep_checks: Checks that are run only if the profile is off, or has too little to be compared with.
        late: Late data that are worth a re-run; by default every change.
        retention: History of the dataset and its rejects that the job `prune` keeps; by default all of it.
        by_events: Build when an update has reached all that is read, instead of whenever an input is newer, after "Data
            Orchestration via Events" (2024). Required to read an event table.
        appendable: True if its partitions hold batches, as a foreign feed's may: an increment is a batch, whose rows
            the function returns; where all is loaded, one batch takes the place of all. Needs `by_events`, and event
            tables alone as inputs. Checks are made of the rows of each batch.
        cadence: Schedule of its updates; a missing one raises an alert.
        completeness: Rules for complete windows: readers wait for a valid update and for these. Needs `event_time`.
        regions: The regions that its other dimension of partitions has, each with its own midnight.
        event_time: A timestamp column, whose least and greatest values (UTC) are recorded with each update.
        wait: Conditions of a partition beside its inputs: a time, how many of its inputs are enough, and the deadline
            after which it raises an alert. Needs partitions of time.
        reprocess: When it is built again after a backfill of windows that it has read: `if_data_changed`, `always`, or
            `never`.
        figures: Key figures, SQL aggregates of the written rows that are numbers, by name, such as `{"revenue":
            "sum(price)"}`: with its size they report a re-run to the owners of the inputs that had changed.
        chart: A function from the written rows to Markdown, for the UI.
        description: A description for the UI; by default the function's docstring.
        group_name: Dagster's group; by default the first part of the feed's name. The asset key is that name.
        tags: Dagster's tags, by which assets are selected.
        kinds: Up to three kinds for the UI; by default `pyspark` and `parquet`.
        metadata: Metadata for the UI, by names that do not begin with `feed_assets/`.
        owners: Owners for the UI: `team:ads`, or an address of e-mail.
        code_version: The code's version, by default a digest of the function's source. A run on equal inputs with an
            equal code version publishes nothing.
        pool: Dagster's concurrency pool: no more of its runs are in progress at a time than its limit, the others are
            queued. A run of many partitions counts once.
        version_in_key: True if its asset key and that of its rejects have the version, as for a newer version beside an
            older one, which keeps its key and its history.

    Returns:
        A decorator, which makes of the function the assets of the dataset and of its rejects.

    Raises:
        InvalidName: The feed's name is none, or has no version.
        InvalidDefinition: The dataset cannot be declared like this: a value of a wrong type, an input that is no feed,
            a function whose parameters are not its inputs, or that takes `previous` without `by_events`.
    """
    own_feed = declared_feed(feed)
    read, tracked = (
        resolve(own_feed, partitions_def, inputs, version_in_key),
        tracked_of(own_feed, completeness, regions),
    )
    numbered = {f"deps[{number}]": given for number, given in enumerate(deps)}
    waited_for = resolve(own_feed, partitions_def, numbered, version_in_key)
    presentation = Presentation(description, group_name, tags or {}, kinds or frozenset(), metadata or {}, owners)
    if wait and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{own_feed} has no partitions of time, from whose ends wait counts: expected partitions_def with a "
            "dimension of time windows. Add one, or remove wait."
        )

    check_cadence(own_feed, cadence, partitions_def)
    check_windows(own_feed, partitions_def)
    check_late(own_feed, partitions_def, [late, *(each.late for each in (*read.values(), *waited_for.values()))])

    def dataset(function: Callable[..., Any]) -> dg.AssetsDefinition:
        recipe = recipe_of(own_feed, function, read, waited_for, checks, event_time, chart, code_version)
        recipe = with_figures(with_profile(recipe, profile, deep_checks, partitions_def), figures or {})
        recipe = with_windows(replace(recipe, is_by_events=by_events is not None), tracked)
        recipe = as_batches(recipe, profile, completeness) if appendable else recipe
        options = cadence, tracked, wait, reprocess, version_in_key
        needed = {**read, **waited_for}
        declared = dataset_of(recipe, needed, late or Late(), retention, by_events, *options)
        return assets_of(recipe, needed, declared, partitions_def, presentation, pool)

    return typed(dataset)


def assets_of(
    recipe: Recipe,
    read: Mapping[str, Input],
    declared: Dataset,
    partitions_def: Partitions,
    presentation: Presentation,
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """Return the assets of a dataset and of its rejects, with its checks, which one run makes."""
    hint(recipe, partitions_def, read)
    condition = None if recipe.is_by_events else late_rerun()
    key = asset_key(recipe.feed, declared.version_in_key)
    specs = [spec_of(recipe, output, read, declared, presentation, condition) for output in recipe.outputs]
    # Dagster's stub leaves a type argument open.
    partitioned = [spec.replace_attributes(partitions_def=partitions_def) for spec in specs]  # pyright: ignore[reportUnknownMemberType]
    return dg.multi_asset(
        name=key.to_python_identifier(),
        specs=partitioned,
        check_specs=[check_spec_of(recipe, check, key, partitions_def) for check in recipe.all_checks],
        partitions_def=partitions_def,
        can_subset=True,
        backfill_policy=_backfill_policy(recipe) if partitions_def else None,
        pool=pool,
    )(body_of(recipe, read, partitioned))


def _backfill_policy(recipe: Recipe) -> dg.BackfillPolicy | None:
    """Return how many partitions a run of a backfill has; None, as by events, gives each a run of its own."""
    partitions = 1 if recipe.is_by_events else Declaring().partitions_per_run
    return dg.BackfillPolicy.multi_run(partitions) if partitions > 1 else None
