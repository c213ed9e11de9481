"""Declarations by `@feed_asset`: the recipe for runs, and the specs of assets and checks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import getdoc, isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, unwrap
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.compact import Compact
from feed_assets.core.completeness import Completeness
from feed_assets.core.data_centers import PRIMARY, At
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.late_policy import Late
from feed_assets.core.needs import Reprocess
from feed_assets.core.profiles import Profile
from feed_assets.core.rerun_report import NUMBERS
from feed_assets.core.resources import Resources
from feed_assets.core.retention import Retention
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.waits import Wait
from feed_assets.orchestration.declare.baselines import check_baseline
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes
from feed_assets.orchestration.declare.declarations import TAKEN, Dataset, Rejects, metadata_of
from feed_assets.orchestration.declare.input_specs import Input, asset_key, group_of, match_parameters
from feed_assets.orchestration.declare.mappings import Previous
from feed_assets.orchestration.declare.partitions import Partitions
from feed_assets.orchestration.declare.presentation import Presentation
from feed_assets.runs.checks import Check
from feed_assets.runs.recipe import PREVIOUS, Recipe, RecipeInput, source_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def recipe_of(
    feed: Feed,
    function: Callable[..., Any],
    read: Mapping[str, Input],
    waited_for: Mapping[str, Input],
    checks: Sequence[Check],
    event_time: str | None,
    chart: "Callable[[DataFrame], str] | None",
    code_version: str | None,
) -> Recipe:
    """Return a dataset's recipe: all that a run needs to build a partition.

    Raise InvalidName or InvalidDefinition if the declaration is invalid.
    """
    if feed.version is None:
        raise InvalidName(f"{feed} has no version: expected one, such as '{feed}/v1.0'.")
    _refuse_no_plain_function(feed, function)
    handed = tuple(given.source(name) for name, given in read.items())
    sources = (*handed, *(_waited_for(feed, name, given) for name, given in waited_for.items()))
    _refuse_twice(feed, "input", [str(source.feed) for source in sources])
    _refuse_itself(feed, {**read, **waited_for})
    is_parsed = any(source.tagged or (source.schema and source.format != "parquet") for source in handed)
    rejects = Feed(f"{feed.name}_rejects", feed.version) if is_parsed else None
    wants = frozenset(match_parameters(function, set(read)))
    # Include the function's source, so that a corrected function is run again although its inputs are the same.
    code = code_version or source_digest(function)
    return Recipe(
        feed,
        sources,
        function,
        checks=tuple(checks),
        rejects=rejects,
        event_time=event_time,
        chart=chart,
        code_version=code,
        wants=wants,
    )


def _refuse_no_plain_function(feed: Feed, function: Callable[..., Any]) -> None:
    """Raise InvalidDefinition for a function that returns a coroutine or a generator."""
    bare = unwrap(function)
    is_async = iscoroutinefunction(bare) or isasyncgenfunction(bare)
    if is_async or isgeneratorfunction(bare):
        problem, cure = ("is `async`", "Write `def`") if is_async else ("has a `yield`", "Write `return`")
        raise InvalidDefinition(
            f"{feed}: {function.__qualname__}() {problem}: expected a plain function that returns a DataFrame. {cure}."
        )


def _waited_for(feed: Feed, name: str, dependency: Input) -> RecipeInput:
    """Return an input of `deps` in the form that a run uses.

    A run does not give this input to the dataset's function, and does not count its records.
    """
    for option in ("tagged", "optional"):
        if getattr(dependency, option):
            raise InvalidDefinition(
                f"{feed}: {name} is {option}, but `deps` are not read: expected it in `inputs`. Move it there, "
                f"or remove {option}."
            )
    return replace(dependency.source(name), is_handed=False, grain=None)


def with_profile(
    recipe: Recipe, profile: Profile | None, deep_checks: Sequence[Check], partitions_def: Partitions
) -> Recipe:
    """Return a recipe that also measures each update's rows, and runs `deep_checks` if the measures are unusual.

    Raise InvalidDefinition for deep checks without a profile, or a profile without time partitions.
    """
    if deep_checks and profile is None:
        raise InvalidDefinition(
            f"{recipe.feed} has `deep_checks` and no `profile`, which decides when they run: expected both. Add "
            "Profile(), or declare them as checks."
        )
    check_baseline(recipe.feed, profile, partitions_def)
    profiled = replace(recipe, profile=profile, deep_checks=tuple(deep_checks))
    _refuse_twice(recipe.feed, "check", [check.name for check in profiled.all_checks])
    if reserved := sorted({check.name for check in profiled.all_checks} & TAKEN):
        raise InvalidDefinition(
            f"{recipe.feed} has a check {reserved[0]}: expected another name, because each dataset has this check. "
            "Rename it."
        )
    _refuse_unread(profiled)
    return profiled


def with_windows(recipe: Recipe, tracked: Tracked | None) -> Recipe:
    """Return a recipe with which a run counts the written rows by the smallest windows of the dataset's completeness.

    Raise InvalidDefinition for completeness without an event time.
    """
    if tracked is None:
        return recipe
    if recipe.event_time is None:
        raise InvalidDefinition(
            f"{recipe.feed} has `completeness` and no `event_time`: expected the column to count by."
        )
    return replace(recipe, grain=tracked.base)


def as_batches(recipe: Recipe, profile: Profile | None, completeness: Completeness | None) -> Recipe:
    """Return a recipe that writes each increment as a batch. Raise InvalidDefinition for options that need all rows."""
    other_inputs = [str(source.feed) for source in recipe.sources if not source.is_table]
    if other_inputs or not recipe.sources:
        raise InvalidDefinition(
            f"{recipe.feed} is appendable and reads {other_inputs[0] if other_inputs else 'nothing'}: expected only "
            "event tables, whose slices contain only new rows. An update of a feed replaces the update before it."
        )
    if recipe.adds or profile or completeness:
        conflict = PREVIOUS if recipe.adds else "a profile" if profile else "completeness"
        raise InvalidDefinition(
            f"{recipe.feed} is appendable and has {conflict}: expected one of the two, because a run has only the rows "
            "of one increment. Remove one."
        )
    return replace(recipe, is_appendable=True)


def with_figures(recipe: Recipe, figures: Mapping[str, str]) -> Recipe:
    """Return a recipe that also computes key figures of each update. Raise InvalidDefinition for a reserved name."""
    if reserved := sorted(figures.keys() & NUMBERS):
        raise InvalidDefinition(
            f"{recipe.feed} has a key figure {reserved[0]}: expected another name, because each update has this "
            "number. Rename it."
        )
    return replace(recipe, figures=dict(figures))


def _refuse_twice(feed: Feed, kind: str, names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidDefinition(f"{feed} has the {kind} {twice[0]} twice: expected different names.")


def _refuse_itself(feed: Feed, read: Mapping[str, Input]) -> None:
    """Raise InvalidDefinition if the dataset reads itself without `Input.previous_bucket()`."""
    own = [name for name, given in read.items() if given.declaration.feed == feed]
    if own and not isinstance(read[own[0]].mapping, Previous):
        raise InvalidDefinition(
            f"{feed} reads itself, as {own[0]}: expected other feeds, or Input.previous_bucket(). Remove that input."
        )


def _refuse_unread(recipe: Recipe) -> None:
    """Raise InvalidDefinition if a check names an input that the dataset does not have."""
    read = [source.name for source in recipe.handed]
    for check in recipe.all_checks:
        if unknown := [name for name in check.inputs if name not in read]:
            raise InvalidDefinition(
                f"{recipe.feed}: check {check.name} names the input {unknown[0]!r}: expected one of its inputs, "
                f"{', '.join(read) or 'but it has no inputs'}."
            )


def dataset_of(
    recipe: Recipe,
    read: Mapping[str, Input],
    late: Late,
    retention: Retention | None,
    by_events: ByEvents | None,
    cadence: Cadence | None,
    tracked: Tracked | None,
    wait: Wait | None,
    reprocess: Reprocess,
    resources: Resources | None = None,
    version_in_key: bool = False,
    compact: Compact | None = None,
    at: At = PRIMARY,
) -> Dataset:
    """Return a dataset's declaration.

    Raise InvalidDefinition if `by_events` is needed but missing, or if it is combined with `at_least`.
    """
    if wait and wait.at_least and by_events:
        raise InvalidDefinition(
            f"{recipe.feed} has `at_least` and `by_events`: expected one of them, because with `by_events` an update "
            "is read once it has reached all inputs. Remove `at_least`."
        )
    if recipe.adds and by_events is None:
        raise InvalidDefinition(
            f"{recipe.feed} takes {PREVIOUS}, to add increments to its previous update: expected by_events=ByEvents(), "
            "because only events report what is new. Add it, or remove the parameter."
        )
    tables = [str(source.feed) for source in recipe.sources if source.is_table]
    if tables and by_events is None:
        raise InvalidDefinition(
            f"{recipe.feed} reads the event table {tables[0]}, whose events say when to run and what to read: expected "
            "by_events=ByEvents(). Add it."
        )
    return Dataset(
        recipe.feed,
        recipe.outputs,
        ignores_quality_of=_those(read, lambda source: source.ignore_quality_issue),
        requires_own_of=_those(read, lambda source: source.required == "own"),
        late=late,
        retention=retention,
        by_events=by_events,
        cadence=cadence,
        mapped={str(given.declaration.feed): given.by_span for given in read.values() if given.by_span},
        optional_of=_those(read, lambda source: source.optional),
        beyond_of=_those(read, lambda source: source.beyond is not None),
        tracked=tracked,
        wait=wait,
        reprocess=reprocess,
        checks_of={str(given.declaration.feed): tuple(given.checks) for given in read.values() if given.checks},
        late_of={str(given.declaration.feed): given.late for given in read.values() if given.late},
        recipe=recipe.digest,
        adds=recipe.adds,
        appendable=recipe.is_appendable,
        resources=resources,
        version_in_key=version_in_key,
        compact=compact,
        at=at,
        blackboard=recipe.blackboard,
    )


def _those(read: Mapping[str, Input], holds: Callable[[Input], bool]) -> tuple[Feed, ...]:
    """Return the sorted feeds of the inputs for which `holds` is true."""
    return tuple(sorted(given.declaration.feed for given in read.values() if holds(given)))


def spec_of(
    recipe: Recipe,
    output: Feed,
    read: Mapping[str, Input],
    dataset: Dataset,
    presentation: Presentation,
    condition: dg.AutomationCondition[dg.AssetKey] | None,
) -> dg.AssetSpec:
    """Return the spec of one of a dataset's outputs."""
    is_main = output == recipe.feed
    its = dataset.retention, dataset.version_in_key, dataset.blackboard
    declared = dataset if is_main else Rejects(output, recipe.outputs, *its)
    presentation = presentation if is_main else presentation.of_rejects()
    return presentation.spec(
        output,
        asset_key(output, dataset.version_in_key),
        deps=[given.dep for given in read.values() if is_main or not isinstance(given.mapping, Previous)],
        description=getdoc(recipe.transform)
        if is_main
        else f"Records that {recipe.feed} rejected: reason, file, raw text.",
        group_name=group_of(output),
        kinds={"pyspark", "parquet"},
        code_version=recipe.code_version,
        skippable=True,
        automation_condition=condition,
        metadata=metadata_of(declared),
    )


def check_spec_of(recipe: Recipe, check: Check, key: dg.AssetKey, partitions_def: Partitions) -> dg.AssetCheckSpec:
    """Return the spec of a partitioned check.

    A failed check blocks what is downstream, unless it only warns or belongs to a companion dataset.
    """
    with without_dagsters_notes():
        return dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=check.description,
            blocking=check.severity != "WARN" and not recipe.is_companion,
            partitions_def=partitions_def,
        )
