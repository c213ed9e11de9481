"""The recipes of the datasets in some definitions, for a process that has only the definitions."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.runs.recipe import Recipe

RECIPES: WeakKeyDictionary[Callable[..., Any], Recipe] = WeakKeyDictionary()
"""The recipe of each function that Dagster calls."""


def recipe_in(definitions: dg.Definitions, feed: Feed) -> Recipe:
    """Return the recipe of a dataset. Raise InvalidName if the definitions have no such dataset."""
    for each in definitions.resolve_asset_graph().assets_defs:
        body: Any = each.op.compute_fn if each.is_executable else None
        function = getattr(body, "decorated_fn", None)
        recipe = RECIPES.get(function) if function else None
        if recipe and recipe.feed == feed:
            return recipe
    raise InvalidName(f"there is no dataset {feed} in these definitions: expected it. Install the code of the run.")
