"""Assets that YAML names: by their key and the folder of `defs/` that declares them, or by their Python path."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.source_lines import declaring
from feed_assets.orchestration.declare.declarations import specs_of
from feed_assets.orchestration.execute.yaml_models import object_at

_DECLARED = "`at`, the folder of defs/ that declares it, or its Python path, such as my_project.defs.tables.foo"
_BUILDING: ContextVar[tuple[str, ...]] = ContextVar("_BUILDING", default=())
"""Folders whose components are being built. Each folder after the first declares an input of the folder before it."""


@contextmanager
def once(context: dg.ComponentLoadContext) -> Generator[None]:
    """Within the block, mark a component's folder as being built. Raise InvalidDefinition if it already is.

    Otherwise Dagster would build folders whose inputs lead back to themselves in an endless recursion.
    """
    folder, outer = context.component_loc.get_display_key(context.defs_module_path), _BUILDING.get()
    if folder in outer:
        raise InvalidDefinition(
            f"its inputs lead back to itself, {' -> '.join([*outer, folder])}: expected `at` with other folders. "
            "Declare its inputs in a separate folder."
        )
    token = _BUILDING.set((*outer, folder))
    try:
        yield
    finally:
        _BUILDING.reset(token)


def asset_of(context: dg.ComponentLoadContext, attribute: str, asset: str, at: str | None) -> Any:
    """Return the asset with the key `asset` in the folder `at` of `defs/`. Without `at`, `asset` is a Python path.

    `attribute` is the name of the YAML key, for errors. Raise InvalidDefinition if there is no such asset.
    """
    return _asset_at(context, asset, at) if at else object_at(attribute, asset, _DECLARED)


def _asset_at(context: dg.ComponentLoadContext, key: str, folder: str) -> dg.AssetSpec:
    root = context.defs_module_path
    if not (root / folder).exists():
        names = sorted(each.name for each in root.iterdir() if not each.name.startswith(("_", ".")))
        raise InvalidDefinition(f"{key} at {folder!r}: expected a folder or file of {root.name}/: {', '.join(names)}.")
    with declaring(None):  # `folder` may be a Python file, whose own lines are the places of its declarations
        spec_by_key = {spec.key.to_user_string(): spec for spec in specs_of(context.build_defs(folder))}
    if key not in spec_by_key:
        raise InvalidDefinition(
            f"{key} at {folder!r}: no asset there has this key: expected one of {', '.join(spec_by_key)}."
        )
    return spec_by_key[key]
