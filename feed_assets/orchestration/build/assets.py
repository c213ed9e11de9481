"""`@feed_asset`: a plain function from DataFrames to a DataFrame becomes an asset whose data are a File Feed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import InvalidDefinition, InvalidName, NoValidUpdate
from feed_assets.core.feeds import Partition
from feed_assets.core.inputs import AbsentInput
from feed_assets.core.lateness import Late
from feed_assets.core.members import Regions
from feed_assets.core.needs import Need, Reprocess
from feed_assets.core.profiles import Profile
from feed_assets.core.retention import Retention
from feed_assets.core.rules import Owner
from feed_assets.core.typed import typed
from feed_assets.core.waits import Wait
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import due
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.runs import Launch
from feed_assets.orchestration.build.durations import durations_metadata
from feed_assets.orchestration.build.makers import cluster_of, maker_of
from feed_assets.orchestration.build.reports import failed_checks, materialized
from feed_assets.orchestration.decide.automation import late_rerun
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.requests import WHY
from feed_assets.orchestration.decide.run_config import RunConfig, named_in, parameters_of, run_spec_in
from feed_assets.orchestration.decide.windows import windows_within
from feed_assets.orchestration.declare.baselines import baseline_of
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.datasets import check_spec_of, dataset_of, recipe_of, spec_of, with_profile
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.inputs import Input, asset_key, declared_feed, tracked_of
from feed_assets.orchestration.declare.partitions import Partitions, extent_of, times_of
from feed_assets.orchestration.declare.resolved import resolve
from feed_assets.runs.build import build
from feed_assets.runs.checks import Check
from feed_assets.runs.phases import Outcome, Published, Refused, Unchanged
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.services import Services
from feed_assets.settings import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    DataFrame = Any  # Types are looked at when a dataset is declared, and that loads no Spark.

ASKED_BY = "feed_assets/asked_by"
"""The tag of a run that somebody asked for by hand: who."""

AUTOMATIC = {"dagster/sensor_name", "dagster/from_automation_condition", "dagster/schedule_name"}
"""The tags of runs that nobody asked for by hand."""

Readable = dg.AssetSpec | dg.AssetsDefinition | Input


@typed
def feed_asset(
    feed: str,
    *,
    inputs: Mapping[str, Readable],
    partitions_def: Partitions = None,
    checks: Sequence[Check] = (),
    profile: Profile | None = None,
    deep_checks: Sequence[Check] = (),
    late: Late | None = None,
    retention: Retention | None = None,
    by_events: ByEvents | None = None,
    cadence: Cadence | None = None,
    completeness: Completeness | None = None,
    regions: Regions | None = None,
    event_time: str | None = None,
    wait: Wait | None = None,
    reprocess: Reprocess = "if_data_changed",
    chart: "Callable[[DataFrame], str] | None" = None,
    owners: Sequence[Owner] | None = None,
    code_version: str | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Declare a dataset: a function from DataFrames to a DataFrame becomes an asset whose data are a File Feed.

    The function takes one DataFrame for each input, by name, and returns the partition's rows; of an event table it
    gets the `Slice` to read. Parameters called `partition` and `run_spec` get the `Partition` that is built, and the
    `RunSpec` that says what the run consumes and how. Records of foreign feeds that do not parse never reach the
    function: they are published beside the dataset, as `<name>_rejects`, with the columns `reason`, `file` and `raw`.

    Args:
        feed: Name and version, such as `ads/effectiveness/v1.0`; the version is required.
        inputs: What is read, by the name of the function's parameter: what `foreign_feed`, `event_table` or another
            `@feed_asset` gives, or an `Input` of one. Each feed once.
        partitions_def: Dagster's partitions; without them the dataset is one partition.
        checks: What must be true of the written rows before anybody sees them, made by `feed_assets.checks`.
        profile: What is measured of the written rows, and compared with the partitions before: by time.
        deep_checks: Checks that are run only if the profile is off, or has too little to be compared with.
        late: What late data are worth a re-run; by default every change.
        retention: How much history the job `prune` keeps of the dataset and its rejects; by default all of it.
        by_events: Build when an update has reached all that is read, instead of whenever an input is newer, after "Data
            Orchestration via Events" (2024). Required to read an event table.
        cadence: When its updates are expected; one that does not come raises an alert.
        completeness: When its windows are complete: what reads it waits for a valid update and for these. Needs
            `event_time`.
        regions: The regions that its other dimension of partitions has, each with its own midnight.
        event_time: A timestamp column, whose least and greatest values (UTC) are recorded with each update.
        wait: What a partition waits for beside its inputs: a time, how many of its inputs are enough, and the deadline
            after which it raises an alert. Needs partitions of time.
        reprocess: What becomes of it when windows that it has read were backfilled: built again `if_data_changed`,
            `always`, or `never`.
        chart: A function from the written rows to Markdown, for the UI.
        owners: Owners for the UI: `team:ads`, or an address of e-mail.
        code_version: By default a digest of the function's source. A run on equal inputs with an equal code version
            publishes nothing.

    Returns:
        A decorator, which makes of the function the assets of the dataset and of its rejects.

    Raises:
        InvalidName: The feed's name is none, or has no version.
        InvalidDefinition: The dataset cannot be declared like this: a value of a wrong type, an input that is no feed,
            a function whose parameters are not its inputs.
    """
    found = declared_feed(feed)
    read, tracked = resolve(found, partitions_def, inputs), tracked_of(found, completeness, regions)
    if tracked and event_time is None:
        raise InvalidDefinition(f"{found} has completeness and no event_time: expected the column that is counted by.")
    if wait and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{found} has no partitions of time, from whose ends wait counts: expected partitions_def with a dimension "
            "of time windows. Add one, or remove wait."
        )

    def dataset(function: Callable[..., Any]) -> dg.AssetsDefinition:
        recipe = recipe_of(found, function, read, checks, event_time, chart, code_version)
        recipe = replace(with_profile(recipe, profile, deep_checks, partitions_def), is_by_events=by_events is not None)
        declared = dataset_of(recipe, read, late or Late(), retention, by_events, cadence, tracked, wait, reprocess)
        return assets_of(recipe, read, declared, partitions_def, owners)

    return typed(dataset)


def assets_of(
    recipe: Recipe,
    read: Mapping[str, Input],
    declared: Dataset,
    partitions_def: Partitions,
    owners: Sequence[str] | None,
) -> dg.AssetsDefinition:
    """The assets of a dataset and of its rejects, with its checks, which one run makes."""
    condition = None if recipe.is_by_events else late_rerun()
    specs = [spec_of(recipe, output, read, declared, owners, condition) for output in recipe.outputs]
    # Dagster's stub leaves a type argument open.
    partitioned = [spec.replace_attributes(partitions_def=partitions_def) for spec in specs]  # pyright: ignore[reportUnknownMemberType]
    return dg.multi_asset(
        name=asset_key(recipe.feed).to_python_identifier(),
        specs=partitioned,
        check_specs=[check_spec_of(recipe, check, partitions_def) for check in recipe.all_checks],
        partitions_def=partitions_def,
        can_subset=True,
    )(_run_of(recipe, read, partitioned))


def _run_of(recipe: Recipe, read: Mapping[str, Input], specs: Sequence[dg.AssetSpec]) -> Callable[..., Iterator[Any]]:
    known = [*specs, *(given.feed for given in read.values() if given.spec.key != asset_key(recipe.feed))]

    def run(context: dg.AssetExecutionContext, config: RunConfig) -> Iterator[Any]:
        with dg.partition_loading_context(dynamic_partitions_store=context.instance):
            need, made_again = _place(recipe, known, context)
        output, services = need.output, _services(context, need.output)
        inputs = {source.name: need.partitions_of(source.feed) for source in recipe.sources}
        windows = {source.name: need.windows_of(source.feed) for source in recipe.sources}
        named, run_spec = named_in(config, inputs), run_spec_in(config)
        order = partial(build, recipe, output, inputs, services, named, run_spec, windows=windows)
        launch = _launch(context, config, need)
        baseline = baseline_of(specs[-1].partitions_def, recipe.profile, output)
        absent = [each.partition for each in need.inputs if isinstance(each, AbsentInput)]
        outcome = order(
            launch=launch,
            optional=need.optional,
            waits=need.waits,
            absent=absent,
            reprocess=need.reprocess,
            baseline=baseline,
            made_again=made_again if launch.asked_by else (),
        )
        tables = [source.feed for source in recipe.sources] if recipe.is_by_events else []
        yield from _events(outcome, context, durations_metadata(services.ledger, tables, recipe.feed))

    return run


def _launch(context: dg.AssetExecutionContext, config: RunConfig, need: Need) -> Launch:
    cluster = cluster_of(context.run, context.instance, settings())
    by_hand, why = asked_by(context.run), context.run.tags.get(WHY)
    if by_hand is None and why is None:  # The condition's runs have no tags: it went by the verdict that was kept.
        with open_ledger(settings().ledger).read() as connection:
            why = due.reason_of(connection, need.output)
    return Launch(context.run.run_id, by_hand, need.made_with, cluster, parameters_of(config), why)


def asked_by(run: dg.DagsterRun) -> str | None:
    """Who asked for a run by hand; None of one that a sensor, a condition or a schedule asked for."""
    by_hand = run.tags.get(ASKED_BY) or run.tags.get("user") or "somebody in Dagster"
    return None if AUTOMATIC & run.tags.keys() else by_hand


def _services(context: dg.AssetExecutionContext, output: Partition) -> Services:
    """The services of a run, which say each step in its log."""
    maker = maker_of(context.run, context.instance, settings())
    return replace(Services.of(settings(), maker), on_step=partial(_log_step, context, output))


def _place(
    recipe: Recipe, known: Sequence[dg.AssetSpec | dg.AssetsDefinition], context: dg.AssetExecutionContext
) -> tuple[Need, list[WindowAddress]]:
    """The partition that a run builds, what it needs of its inputs, and the windows that it fills.

    Whatever assets the run selects.
    """
    graph = Graph(dg.Definitions(assets=known).resolve_asset_graph())
    node = graph.node(recipe.feed)
    if node.partitions_def is not None and not context.has_partition_key:
        raise InvalidName(f"{recipe.feed} is built partition by partition, and this run names none. Choose one.")
    output = node.partition(context.partition_key if context.has_partition_key else None)
    extent = extent_of(node.partitions_def, output.key)
    need = graph.need(replace(output, start=extent.start, end=extent.end))
    absent = [str(each.partition) for each in need.inputs if isinstance(each, AbsentInput)]
    if absent and need.waits.after is None:
        raise NoValidUpdate(f"{need.output} needs {', '.join(absent)}: there is no such partition yet. Wait for it.")
    return need, windows_within(node, output)


def _log_step(context: dg.AssetExecutionContext, output: Partition, step: str) -> None:
    context.log.info(f"{output}: {step}")


def _events(outcome: Outcome, context: dg.AssetExecutionContext, more: Mapping[str, Any]) -> Iterator[Any]:
    match outcome:
        case Unchanged():
            context.log.info(f"Update {outcome.update_id} was built from these very inputs: there is nothing to do.")
        case Refused():
            yield from failed_checks(outcome, context.selected_asset_check_keys)
            raise dg.Failure(
                f"The audit failed, and nothing is published: {outcome.reason}. Readers keep the update before. "
                "Mend the input or the function, then materialize this partition again.",
                allow_retries=False,
            )
        case Published():
            yield from materialized(outcome, context.selected_asset_keys, context.selected_asset_check_keys, more)
