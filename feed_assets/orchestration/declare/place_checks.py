"""Checks of the places that a dataset declares with `at`."""

from collections.abc import Mapping

import dagster as dg

from feed_assets.core.data_centers import ANY, PRIMARY, At, places_at
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension


def check_places(feed: Feed, partitions_def: Partitions, at: At) -> None:
    """Raise InvalidDefinition for places that cannot be meant, and for homes that do not fit the partitions' keys."""
    homes = at if isinstance(at, Mapping) else {"": at}
    for each in homes.values():
        places = places_at(each, "")
        if not places or len({*places}) < len(places) or (ANY in places and len(places) > 1):
            raise InvalidDefinition(
                f"{feed} has at={each!r}: expected {PRIMARY!r}, {ANY!r}, the name of a data center, or several names "
                "by preference, each once."
            )
    if isinstance(at, Mapping):
        _check_keys(feed, partitions_def, at)


def _check_keys(feed: Feed, partitions_def: Partitions, at: Mapping[str, object]) -> None:
    parts = by_dimension(partitions_def).values()
    static = [{*part.get_partition_keys()} for part in parts if isinstance(part, dg.StaticPartitionsDefinition)]
    if {*at} not in static:
        keys = " or ".join(", ".join(sorted(each)) for each in static) or "none, because it has no static dimension"
        raise InvalidDefinition(
            f"{feed} has homes for {', '.join(sorted(at)) or 'nothing'}: expected one for each key of a static "
            f"dimension of its partitions ({keys}). Correct `at`."
        )
    if shared := sorted(key for key in at if sum(key in each for each in static) > 1):
        raise InvalidDefinition(
            f"{feed} has homes by `at`, and {', '.join(shared)} is a key of several dimensions of its "
            "partitions: expected a key of one static dimension, which alone says the home. Rename the keys of one."
        )
