"""A shortcut for needs."""

from collections.abc import Collection, Iterable
from typing import Any

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import AbsentInput, SetInput, TableInput, UpdateInput
from feed_assets.core.readiness import Need


def need_of(
    output: Partition,
    inputs: Iterable[Partition],
    *,
    sets: Collection[Feed] = (),
    tables: Collection[Feed] = (),
    optional: Collection[Partition] = (),
    careless_of: Collection[Feed] = (),
    absent: Iterable[str] = (),
    **more: Any,
) -> Need:
    """Return a need of updates, sets of batches, slices of event tables, and partitions that do not exist."""
    kinds = {**dict.fromkeys(sets, SetInput), **dict.fromkeys(tables, TableInput)}
    found = [
        kinds.get(each.feed, UpdateInput)(
            each, is_required=each not in optional and each.feed not in tables, ignores_quality=each.feed in careless_of
        )
        for each in inputs
    ]
    return Need(output, (*found, *(AbsentInput(_named(each)) for each in absent)), **more)


def _named(text: str) -> Partition:
    feed, _, key = text.partition(" ")
    return Partition(Feed.parse(feed), key)
