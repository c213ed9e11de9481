"""Definitions with a selection of the assets, or with changed assets."""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.orchestration.declare.declarations import WATCHED
from feed_assets.orchestration.location import with_automation


def rebuilt(definitions: dg.Definitions, assets: Sequence[Any]) -> dg.Definitions:
    """Return definitions of these assets, with their checks and the automation that they need.

    The user's own jobs, schedules and sensors are left out: they may need other assets or external systems.
    """
    keys = {key for asset in assets for key in _keys(asset)}
    checks = [
        each
        for each in definitions.asset_checks or ()
        if all(check.asset_key in keys and check.name not in WATCHED for check in each.check_keys)
    ]
    return with_automation(
        dg.Definitions(
            assets=assets,
            asset_checks=checks,
            resources=definitions.resources,
            executor=definitions.executor,
            loggers=definitions.loggers,
        )
    )


def selected(definitions: dg.Definitions, selection: str | dg.AssetSelection) -> dg.Definitions:
    """Return the definitions of the selected assets and of everything upstream of them.

    Raises:
        InvalidDefinition: The selection matches no asset.
    """
    graph: Any = definitions.resolve_asset_graph()
    chosen: Any = dg.AssetSelection.from_string(selection) if isinstance(selection, str) else selection
    keys: Set[dg.AssetKey] = chosen.resolve(graph, allow_missing=True)
    if not keys:
        built = ", ".join(sorted(key.to_user_string() for key in graph.materializable_asset_keys))
        raise InvalidDefinition(f"the selection {selection} has no dataset: expected some of {built}.")
    needed = set(keys)
    while parents := {parent for key in needed for parent in graph.get(key).parent_keys} - needed:
        needed |= parents
    return rebuilt(definitions, [asset for asset in definitions.assets or () if needed & {*_keys(asset)}])


def with_specs(definitions: dg.Definitions, change: Callable[[dg.AssetSpec], dg.AssetSpec]) -> dg.Definitions:
    """Return the definitions with changed specs. Return the same object if no spec changes."""
    assets = [*(definitions.assets or ())]
    changed = [_with_spec(asset, change) for asset in assets]
    return definitions if all(map(_is, assets, changed)) else rebuilt(definitions, changed)


def _is(one: object, other: object) -> bool:
    return one is other


def _with_spec(asset: Any, change: Callable[[dg.AssetSpec], dg.AssetSpec]) -> Any:
    if isinstance(asset, dg.AssetSpec):
        return change(asset)
    if isinstance(asset, dg.AssetsDefinition) and any(change(spec) is not spec for spec in asset.specs):
        return asset.map_asset_specs(change)
    return asset


def _keys(asset: Any) -> Iterable[dg.AssetKey]:
    if isinstance(asset, dg.AssetSpec):
        return [asset.key]
    return asset.keys if isinstance(asset, dg.AssetsDefinition) else ()
