"""Hints at declaration: what is allowed, and often a mistake."""

import logging
from collections.abc import Iterator, Mapping

import dagster as dg

from feed_assets.core.places import declared_at
from feed_assets.orchestration.declare.declarations import Dataset, Foreign, declaration_of
from feed_assets.orchestration.declare.inputs import Input
from feed_assets.orchestration.declare.partitions import Partitions
from feed_assets.runs.recipe import Recipe

_log = logging.getLogger(__name__)


def hint(recipe: Recipe, partitions_def: Partitions, read: Mapping[str, Input]) -> None:
    """Warn, with file and line, of a dataset that hides another one, or whose partitions hardly fit what it reads."""
    for text in [*_hidden(recipe), *_hints(recipe, partitions_def, [*read.values()])]:
        _log.warning("%s: %s", declared_at(), text)


def _hidden(recipe: Recipe) -> Iterator[str]:
    """Yield a hint if the function takes the name of a dataset of the same feed, which Python then forgets."""
    name, names = getattr(recipe.transform, "__name__", ""), getattr(recipe.transform, "__globals__", {})
    before = names.get(name)
    specs = before.specs if isinstance(before, dg.AssetsDefinition) else ()
    for declared in filter(None, map(declaration_of, specs)):
        if declared.feed == recipe.feed and declared.declared_at != declared_at():
            yield f"{recipe.feed} is declared at {declared.declared_at}, too, as {name}: this one takes its place."


def _hints(recipe: Recipe, partitions_def: Partitions, read: list[Input]) -> Iterator[str]:
    if any(not isinstance(each.declaration, Dataset | Foreign) for each in read):
        return
    names = [str(each.declaration.feed) for each in read if each.spec.partitions_def and each.mapping is None]
    if partitions_def is None and names:
        yield (
            f"{recipe.feed} has no partitions_def, so that each run reads all partitions of {', '.join(names)}. Give "
            "it a partitions_def, or say that all are meant: Input(…, mapping=dg.AllPartitionMapping())."
        )
    if partitions_def and "partition" not in recipe.wants and not any(each.spec.partitions_def for each in read):
        yield (
            f"{recipe.feed} has partitions_def, and nothing that it reads has: each of its partitions is made of the "
            "same rows. Declare the partitions of its inputs, or leave its own out."
        )
