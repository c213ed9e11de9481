"""Declarations of subscriptions: targets that are notified of each change of a dataset."""

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated

import dagster as dg
from dagster._core.definitions.metadata.metadata_value import ObjectMetadataValue
from pydantic import Field

from feed_assets.core.argument_types import Owner
from feed_assets.core.completeness import WindowState
from feed_assets.core.delivery_targets import (
    DEFAULT_TRANSITIONS,
    INVALIDATED,
    PARAMETERS,
    PUBLISHED,
    Statement,
    Subscription,
    SubscriptionName,
    Target,
    Transition,
)
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.feeds import Feed
from feed_assets.core.sub_partitions import ALL
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    Foreign,
    StateTable,
    declaration_of,
    declarations_of,
    specs_of,
)
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.orchestration.declare.partitions import by_dimension
from feed_assets.orchestration.declare.sub_partitions import levels_of

KEY = "feed_assets/subscription"
"""The metadata key of an asset's subscription."""

GROUP = "subscriptions"
"""Dagster's group of all subscriptions, and the first part of their asset keys."""

_KINDS = {"webhook": "webhook", "view": "sql", "statement": "sql"}


@typed
def on_change(
    dataset: Annotated[dg.AssetSpec | dg.AssetsDefinition, Example("orders", "what @feed_asset or foreign_feed gives")],
    *,
    name: SubscriptionName,
    to: Target,
    transitions: Annotated[Sequence[Transition], Field(min_length=1)] = DEFAULT_TRANSITIONS,
    grain: str | None = None,
    level: str | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetSpec:
    """Declare a subscription, as an external asset below the dataset: a target is notified of each change.

    Each change is delivered at least once, and the changes of a partition, batch or window in order. The subscription
    begins at the first tick of the sensor `subscriptions` after the declaration. Earlier changes are not delivered.

    Args:
        dataset: The asset of `@feed_asset`, `foreign_feed` or `state_table`.
        name: The subscription's name, which is unique in the installation.
        to: `Webhook`, `RefreshView` or `Statement`.
        transitions: The changes to deliver: `published` and `invalidated` of updates, and the new states of windows. By
            default all but `open` and `backfilling`.
        grain: The grain of the windows whose changes are delivered, such as `hour`; by default all grains of the
            dataset.
        level: The level of sub-partitions whose windows are delivered, such as `country`, or `""` for the windows of
            the whole dataset; by default all levels.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an e-mail address; by default the owners of the dataset.

    Returns:
        The spec of the external asset, for `dg.Definitions(assets=[…])`.

    Raises:
        InvalidDefinition: A value has a wrong type, the asset is not a dataset, foreign feed or state table, the asset
            never has such a transition, grain or level, or a statement has a parameter without a value in any change.
    """
    upstream = Input(dataset).spec
    declared = declaration_of(upstream)
    if not isinstance(declared, Dataset | Foreign | StateTable):
        raise InvalidDefinition(
            f"on_change({name!r}): dataset is {upstream.key.to_user_string()}: expected what @feed_asset, foreign_feed "
            "or state_table returns."
        )
    subscription = Subscription(name, declared.feed, tuple(map(str, transitions)), to, grain=grain, level=level)
    _check_changes(subscription, declared)
    if isinstance(to, Statement):
        _check_parameters(name, to, _dimensions(upstream, declared))
    text = f"{to.kind} {name}, notified of changes of {declared.feed}"
    return dg.AssetSpec(
        dg.AssetKey([GROUP, name]),
        deps=[upstream],
        description=description or f"{text[0].upper()}{text[1:]}: {', '.join(subscription.transitions)}.",
        group_name=GROUP,
        kinds={_KINDS[to.kind]},
        owners=owners or upstream.owners,
        metadata={KEY: ObjectMetadataValue(text, instance=subscription)},
    )


def _dimensions(spec: dg.AssetSpec, declared: Dataset | Foreign | StateTable) -> list[str]:
    levels = levels_of(declared.tracked) if declared.tracked else ()
    several = isinstance(spec.partitions_def, dg.MultiPartitionsDefinition)
    return [*(by_dimension(spec.partitions_def) if several else ()), *levels]


def _check_changes(subscription: Subscription, declared: Dataset | Foreign | StateTable) -> None:
    """Raise InvalidDefinition for a transition, grain or level that the dataset never has."""
    where, tracked = f"on_change({subscription.name!r})", declared.tracked
    possible = () if isinstance(declared, StateTable) else (PUBLISHED, INVALIDATED)
    possible += tuple(WindowState) if tracked else ()
    never = [each for each in subscription.transitions if each not in possible]
    if never and subscription.transitions != DEFAULT_TRANSITIONS:
        without = "windows" if possible == (PUBLISHED, INVALIDATED) else "updates"
        raise InvalidDefinition(
            f"{where}: transitions has {never[0]!r}, and {declared.feed} has no {without}: expected some of "
            f"{', '.join(possible)}."
        )
    names: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("grain", subscription.grain, tracked.grains if tracked else ()),
        ("level", subscription.level, (*levels_of(tracked), ALL) if tracked and tracked.members else ()),
    )
    for option, value, allowed in names:
        if value is not None and value not in allowed:
            expected = f"one of {', '.join(map(repr, allowed))}" if allowed else f"none: the dataset has no {option}s"
            raise InvalidDefinition(f"{where}: {option} is {value!r}: expected {expected}.")


def _check_parameters(name: str, statement: Statement, dimensions: Sequence[str]) -> None:
    """Raise InvalidDefinition if a statement has a parameter without a value in any change, or with two meanings."""
    from feed_assets.deliveries.sql_delivery import bound  # Most projects have no statements.

    _, used = bound(statement.sql)
    allowed = dict.fromkeys([*PARAMETERS, *dimensions])
    if unknown := [each for each in used if each not in allowed]:
        expected = ", ".join(f":{each}" for each in allowed)
        raise InvalidDefinition(
            f"on_change({name!r}): the statement has the parameter :{unknown[0]}, expected some of {expected}. Write a "
            "colon that begins no parameter as \\:."
        )
    if twice := [each for each in used if each in PARAMETERS and each in dimensions]:
        raise InvalidDefinition(
            f"on_change({name!r}): the parameter :{twice[0]} has two meanings, because the dataset has a dimension "
            "or level of this name: rename the dimension, or use a webhook."
        )


def subscriptions_of(definitions: dg.Definitions) -> list[Subscription]:
    """Return the subscriptions in some definitions.

    Raise InvalidDefinition if two have the same name, or if the definitions do not have the dataset of one.
    """
    by_name: dict[str, Subscription] = {}
    for spec in specs_of(definitions):
        entry = spec.metadata.get(KEY)
        subscription = entry.instance if isinstance(entry, ObjectMetadataValue) else None
        if not isinstance(subscription, Subscription):
            continue
        if by_name.setdefault(subscription.name, subscription) != subscription:
            raise InvalidDefinition(f"the subscription {subscription.name} is declared twice: rename one.")
    if by_name:
        _check_datasets(by_name.values(), {each.feed for each in declarations_of(definitions)})
    return [*by_name.values()]


def _check_datasets(subscriptions: Iterable[Subscription], declared: Collection[Feed]) -> None:
    """Raise InvalidDefinition for a subscription to an undeclared dataset.

    The message names the most similar dataset.
    """
    for each in subscriptions:
        if each.dataset not in declared:
            near = get_close_matches(str(each.dataset), sorted(map(str, declared)), 1)
            cure = f"is {near[0]} meant?" if near else "add the dataset to the definitions."
            raise InvalidDefinition(
                f"the subscription {each.name} is to {each.dataset}, which nobody declares here: {cure}"
            )
