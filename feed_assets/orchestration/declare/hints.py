"""Hints about declarations that are allowed but often mistakes."""

import logging
from collections.abc import Iterator, Mapping

import dagster as dg

from feed_assets.core.source_lines import declared_at
from feed_assets.orchestration.declare.declarations import Dataset, Foreign, declaration_of
from feed_assets.orchestration.declare.input_specs import Input
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, times_of
from feed_assets.orchestration.declare.time_windows import Times, is_window
from feed_assets.runs.recipe import Recipe

_log = logging.getLogger(__name__)


def hint(recipe: Recipe, partitions_def: Partitions, read: Mapping[str, Input]) -> None:
    """Log a warning, with file and line, if a dataset replaces another, or if its partitions may not fit its inputs."""
    inputs = [*read.values()]
    hints = [*_hints(recipe, partitions_def, inputs), *_apart(recipe, partitions_def, inputs)]
    for text in [*_hidden(recipe), *hints, *_renamed(recipe, partitions_def, inputs)]:
        _log.warning("%s: %s", declared_at(), text)


def _hidden(recipe: Recipe) -> Iterator[str]:
    """Yield a hint if the function replaces a function of the same name that declared the same feed."""
    name, names = getattr(recipe.transform, "__name__", ""), getattr(recipe.transform, "__globals__", {})
    before = names.get(name)
    specs = before.specs if isinstance(before, dg.AssetsDefinition) else ()
    for declared in filter(None, map(declaration_of, specs)):
        if declared.feed == recipe.feed and declared.declared_at != declared_at():
            yield f"{recipe.feed} is also declared at {declared.declared_at}, as {name}: this one replaces the other."


def _hints(recipe: Recipe, partitions_def: Partitions, read: list[Input]) -> Iterator[str]:
    if any(not isinstance(each.declaration, Dataset | Foreign) for each in read):
        return
    names = [str(each.declaration.feed) for each in read if each.spec.partitions_def and each.mapping is None]
    if partitions_def is None and names:
        yield (
            f"{recipe.feed} has no partitions_def, so each run reads all partitions of {', '.join(names)}. Give it a "
            "partitions_def, or declare that all partitions are needed: Input(…, mapping=dg.AllPartitionMapping())."
        )
    if partitions_def and "partition" not in recipe.wants and not any(each.spec.partitions_def for each in read):
        yield (
            f"{recipe.feed} has partitions_def, but none of its inputs has: all its partitions are made from the same "
            "rows. Declare partitions for its inputs, or remove its partitions_def."
        )


def _apart(recipe: Recipe, partitions_def: Partitions, read: list[Input]) -> Iterator[str]:
    """Yield a hint for each input that has no partition in common with the dataset."""
    for each in read:
        if not isinstance(each.declaration, Dataset | Foreign) or each.mapping is not None:
            continue
        feed, parts = each.declaration.feed, each.spec.partitions_def
        if _has_no_time_in_common(partitions_def, parts):
            yield (
                f"{recipe.feed} has partitions {_span(partitions_def)}. It reads {feed}, which has partitions "
                f"{_span(parts)}: the two have no period in common, so no partition is built. Correct start and end of "
                f"a partitions_def, or declare which partitions are read: {_MAPPING}"
            )
        if _has_no_key_in_common(partitions_def, parts) or _has_no_key_in_common(parts, partitions_def):
            yield (
                f"{recipe.feed} reads the partition of {feed} that has the same key. One of the two has time "
                "partitions and the other has names, so no key is the same and no partition is built. Declare which "
                f"partitions are read: {_MAPPING}"
            )
        if _has_other_windows(partitions_def, parts):
            yield (
                f"{recipe.feed} reads the partition of {feed} that has the same key, but their windows of time have "
                "different lengths, such as hours and days. Declare Input(…, mapping=Within()): a partition then needs "
                "all partitions of the input within its own window, with the same keys of the other dimensions."
            )


def _has_other_windows(own: Partitions, other: Partitions) -> bool:
    """Return whether both have several dimensions, with windows of different lengths. Dagster compares their keys."""
    own_times, read = times_of(own), times_of(other)
    if own_times is None or read is None or own_times.cron_schedule == read.cron_schedule:
        return False
    return all(isinstance(each, dg.MultiPartitionsDefinition) for each in (own, other))


_MAPPING = "Input(…, mapping=…), such as dg.AllPartitionMapping() for all partitions."


def _renamed(recipe: Recipe, partitions_def: Partitions, read: list[Input]) -> Iterator[str]:
    """Yield a hint for each dimension of an input that the dataset seems to have under another name."""
    for each in read:
        if not each.by_span or not isinstance(each.declaration, Dataset | Foreign):
            continue
        own, its = _named(partitions_def), _named(each.spec.partitions_def)
        for name, other in ((name, other) for name in own.keys() - its.keys() for other in its.keys() - own.keys()):
            if own[name] & its[other]:
                yield (
                    f"{recipe.feed} has the dimension {name}, and its input {each.declaration.feed} has {other} with "
                    f"the same keys. Dimensions are matched by name, so each partition reads all keys of {other}. Give "
                    "both the same name."
                )


def _named(partitions_def: Partitions) -> dict[str, set[str]]:
    """Return the keys of each dimension with named partitions. Return {} if there is only one dimension."""
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return {}
    dimensions = by_dimension(partitions_def).items()
    return {
        name: {*part.get_partition_keys()}
        for name, part in dimensions
        if isinstance(part, dg.StaticPartitionsDefinition)
    }


def _has_no_time_in_common(own: Partitions, other: Partitions) -> bool:
    own_times, read = times_of(own), times_of(other)
    return (
        own_times is not None and read is not None and (_ends_before(own_times, read) or _ends_before(read, own_times))
    )


def _ends_before(first: Times, second: Times) -> bool:
    return first.end is not None and first.end <= second.start


def _span(partitions_def: Partitions) -> str:
    times = times_of(partitions_def)
    bounds = [("from", times.start), ("up to", times.end)] if times else []
    return " ".join(f"{word} {moment:{_MOMENT}}" for word, moment in bounds if moment)


_MOMENT = "%Y-%m-%d %H:%M"


def _has_no_key_in_common(named: Partitions, timed: Partitions) -> bool:
    if not isinstance(named, dg.StaticPartitionsDefinition) or not isinstance(timed, dg.TimeWindowPartitionsDefinition):
        return False
    return not any(is_window(timed, key) for key in named.get_partition_keys())
