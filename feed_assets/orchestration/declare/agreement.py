"""Check that a code location's declarations fit together: each asset once and in one role, no cycles, known tables."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import dagster as dg

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed, check_segment
from feed_assets.core.secrets import masked
from feed_assets.core.sub_partitions import Tracked
from feed_assets.orchestration.declare.declarations import (
    KEY,
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    StateTable,
    declaration_of,
    declarations_of,
    specs_of,
)
from feed_assets.orchestration.declare.partitions import by_dimension
from feed_assets.orchestration.declare.pattern_tables import without_declared
from feed_assets.orchestration.declare.presentation import OURS
from feed_assets.sources.declared import SignalTopic, TopicCounts

_ROLES = {
    "dataset": "a dataset",
    "foreign": "a feed that others write",
    "rejects": "the rejects of a dataset",
    "state": "a state table",
    "table": "an event table",
}

_TYPED = {"tracked": "completeness"}
"""Argument names that users type, by the attribute names of declarations."""


def agreed(definitions: dg.Definitions) -> dg.Definitions:
    """Return the definitions without repeated declarations. Several files may declare the same foreign feed.

    Raise InvalidDefinition if declarations contradict each other.
    """
    assets = list(definitions.assets or ())
    kept = _once(without_declared(assets))
    if len(kept) < len(assets):
        definitions = with_assets(definitions, kept)
    _refuse_one_name(specs_of(definitions))
    _refuse_keys(specs_of(definitions))
    _refuse_cycles(specs_of(definitions))
    _refuse_unknown_tables(declarations_of(definitions))
    _refuse_unknown_counts(declarations_of(definitions))
    return definitions


def with_assets(definitions: dg.Definitions, assets: Sequence[Any]) -> dg.Definitions:
    """Return a copy of Dagster's definitions in which these assets replace all assets."""
    return dg.Definitions(
        assets=assets,
        asset_checks=definitions.asset_checks,
        schedules=definitions.schedules,
        sensors=definitions.sensors,
        jobs=definitions.jobs,
        resources=definitions.resources,
        executor=definitions.executor,
        loggers=definitions.loggers,
        metadata=definitions.metadata,
    )


def _once(assets: Sequence[Any]) -> list[Any]:
    """Return the assets, each external asset once. Raise InvalidDefinition if anything else is declared repeatedly."""
    first: dict[dg.AssetKey, tuple[Any, dg.AssetSpec]] = {}
    kept: list[Any] = []
    for asset in assets:
        specs = [spec for spec in _specs(asset) if KEY in spec.metadata]
        again = [(*first[spec.key], spec) for spec in specs if spec.key in first]
        for other, one, spec in again:
            if other is not asset:  # The same object, imported by several modules, is no repeated declaration.
                _refuse_difference(one, spec)
        first |= {spec.key: (asset, spec) for spec in specs if not again}
        kept += [] if again else [asset]
    return kept


def _specs(asset: Any) -> Iterable[dg.AssetSpec]:
    if isinstance(asset, dg.AssetSpec):
        return [asset]
    return asset.specs if isinstance(asset, dg.AssetsDefinition) else ()


def _refuse_difference(one: dg.AssetSpec, other: dg.AssetSpec) -> None:
    """Raise InvalidDefinition unless both are equal declarations of a feed or table that other teams write."""
    _refuse_two_versions(one, other)
    first, again = _declared(one), _declared(other)
    differing = [name for name in first | again if first.get(name) != again.get(name)]
    at = [getattr(declaration_of(spec), "declared_at", None) for spec in (one, other)]
    twice = f"{one.key.to_user_string()} is declared twice"
    if first["role"] == again["role"] == "dataset":
        raise _placed(
            f"{twice}, the first time at {at[0]}: expected one function that makes it. Rename or remove one.", at[1]
        )
    if first["role"] != again["role"]:
        roles = [_ROLES.get(each["role"], "an asset") for each in (first, again)]
        raise _placed(
            f"{one.key.to_user_string()} is {roles[0]} at {at[0]}, and {roles[1]} here: expected one of the two. "
            "Rename or remove the other.",
            at[1],
        )
    if differing:
        difference = f"{', '.join(differing)}{_values(differing[0], first, again, at[0])}"
        raise _placed(
            f"{twice}, and differs in {difference} expected equal declarations. Declare it once, or make them equal.",
            at[1],
        )


def _refuse_two_versions(one: dg.AssetSpec, other: dg.AssetSpec) -> None:
    """Raise InvalidDefinition if two versions of a feed have the same asset key."""
    declarations = [each for spec in (one, other) if (each := declaration_of(spec))]
    older, newer = min(declarations, key=lambda each: each.feed), max(declarations, key=lambda each: each.feed)
    table = next((each for each in declarations if isinstance(each, EventTable) and each.loaded), None)
    if table and older.feed != newer.feed:
        raise _placed(
            f"the warehouse table {table.feed} has the asset key of {older.feed if table is newer else newer.feed}: "
            f"expected a name of its own, such as main/{table.feed.name}. Rename it.",
            table.declared_at,
        )
    if older.feed != newer.feed:
        raise _placed(
            f"{older.feed} and {newer.feed} have the same asset key, {one.key.to_user_string()}, which has the history "
            "of the older one: expected version_in_key=True for the newer one. Add it there.",
            newer.declared_at,
        )


def _values(name: str, first: Mapping[str, Any], again: Mapping[str, Any], at: str | None) -> str:
    """Return the part of an error message that shows the two contradicting values.

    If the values are objects, the text only names the place of the first declaration.
    """
    both = [first.get(name), again.get(name)]
    if not all(isinstance(each, str | bool | None) for each in both):
        return f" from the declaration at {at}:"
    one, other = [masked(repr(each)) if each is not None else "not given" for each in both]
    return f": {name} is {one} ({at}) and {other},"


def _declared(spec: dg.AssetSpec) -> dict[str, Any]:
    """Return all values of a declaration by name. `role` is None if the asset has no declaration of feed_assets."""
    of_spec = {"partitions_def": spec.partitions_def, "description": spec.description, "owners": [*spec.owners]}
    of_spec |= {"group_name": spec.group_name, "kinds": spec.kinds, "tags": _without_kinds(spec), **_metadata(spec)}
    declared = vars(declaration_of(spec)) if declaration_of(spec) else {}
    declared = {_TYPED.get(name, name): value for name, value in declared.items() if name != "declared_at"}
    return {"role": None, **declared, **of_spec}


def _without_kinds(spec: dg.AssetSpec) -> dict[str, str]:
    """Return the tags that a user typed, without Dagster's tags for kinds."""
    return {name: value for name, value in spec.tags.items() if not name.startswith("dagster/kind/")}


def _metadata(spec: dg.AssetSpec) -> dict[str, Any]:
    """Return the metadata that a user typed, without the metadata of feed_assets and of Dagster."""
    typed = {name: value for name, value in spec.metadata.items() if not name.startswith((OURS, "dagster"))}
    return {"metadata": typed}


def _refuse_one_name(specs: Iterable[dg.AssetSpec]) -> None:
    """Raise InvalidDefinition if two datasets get the same name in Dagster.

    Without this check, nobody would notice until the first run fails.
    """
    spec_by_name: dict[str, dg.AssetSpec] = {}
    for spec in specs:
        declared, name = declaration_of(spec), spec.key.to_python_identifier()
        other = spec_by_name.setdefault(name, spec) if isinstance(declared, Dataset) else spec
        if isinstance(declared, Dataset) and other.key != spec.key:
            raise _placed(
                f"{other.key.to_user_string()} and {spec.key.to_user_string()} are both named {name} in Dagster: "
                "expected different names. Rename one.",
                declared.declared_at,
            )


def _refuse_keys(specs: Iterable[dg.AssetSpec]) -> None:
    """Raise InvalidDefinition for static partition keys that cannot be part of a path."""
    for spec in specs:
        declared = declaration_of(spec)
        parts = by_dimension(spec.partitions_def).values() if declared else ()
        for key in (
            key
            for part in parts
            if isinstance(part, dg.StaticPartitionsDefinition)
            for key in part.get_partition_keys()
        ):
            try:
                check_segment(key, "partition key")
            except InvalidName as error:
                raise _placed(f"{spec.key.to_user_string()}: {error}", getattr(declared, "declared_at", None)) from None


def _refuse_cycles(specs: Iterable[dg.AssetSpec]) -> None:
    """Raise InvalidDefinition if datasets read each other. A dataset may read its own earlier partition."""
    own_specs = {spec.key: spec for spec in specs if KEY in spec.metadata}
    above = {key: [dep.asset_key for dep in spec.deps if dep.asset_key != key] for key, spec in own_specs.items()}
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        keys: list[dg.AssetKey] = error.args[1][::-1]
        way = " reads ".join(key.to_user_string() for key in keys)
        declared = declaration_of(own_specs[keys[0]])
        raise _placed(
            f"{way}: expected no dataset that reads itself, even through other datasets. Remove one of these inputs.",
            getattr(declared, "declared_at", None),
        ) from None


def _refuse_unknown_tables(declared: Sequence[Declaration]) -> None:
    """Raise InvalidDefinition if `ByEvents` names an undeclared table. Its events would never reach the dataset."""
    declared_feeds = {str(each.feed) for each in declared}
    for each in declared:
        if isinstance(each, Dataset) and (unknown := [name for name in _tables_of(each) if name not in declared_feeds]):
            raise _placed(
                f"{each.feed} is built by events of {unknown[0]!r}, which is not declared in this code location: "
                f"expected one of "
                f"{', '.join(sorted(declared_feeds))}.",
                each.declared_at,
            )


def _tables_of(dataset: Dataset) -> list[str]:
    """Return the tables named in a dataset's pipelines and rules."""
    by_events = dataset.by_events
    if by_events is None:
        return []
    pipelines = by_events.pipelines.values() if isinstance(by_events.pipelines, Mapping) else ()
    named = [str(Feed.parse(table)) for tables in pipelines for table in tables]
    return named + sorted(table for rule in by_events.plans for table in rule.tables)


def _refuse_unknown_counts(declared: Sequence[Declaration]) -> None:
    """Raise InvalidDefinition if a topic's records are counted for a dataset whose windows do not use these counts."""
    judged = [each for each in declared if isinstance(each, Foreign | Dataset | StateTable)]
    tracked = {str(each.feed): each.tracked for each in judged if each.tracked}
    for table in [each for each in declared if isinstance(each, EventTable)]:
        for counts in [each.counts for each in table.source.parts if isinstance(each, SignalTopic) and each.counts]:
            if why := _why_uncounted(counts, tracked):
                raise InvalidDefinition(f"{table.feed} is counted for {counts.dataset}, {why}")


def _why_uncounted(counts: TopicCounts, tracked: Mapping[str, Tracked]) -> str | None:
    if (policy := tracked.get(counts.dataset)) is None:
        names = ", ".join(sorted(tracked)) or "none is declared"
        return (
            f"which is not declared in this code location: expected a state table ({names}). Declare it by state_table."
        )
    if policy.tiers and counts.tier not in policy.tiers:
        return (
            f"by the tier {counts.tier!r}, which its completeness lacks: expected one of {', '.join(policy.tiers)}. "
            "Add the tier to its Completeness(tiers=), or name another one in TopicCounts(tier=)."
        )
    if counts.grain != policy.grains[0]:
        return (
            f"in windows of {counts.grain}: expected its smallest grain, {policy.grains[0]}. Correct "
            f"TopicCounts(grain=)."
        )
    return None


def _placed(message: str, place: str | None) -> InvalidDefinition:
    error = InvalidDefinition(message)
    error.place = place
    return error
