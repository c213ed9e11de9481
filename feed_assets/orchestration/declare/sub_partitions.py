"""Conversion between Dagster's dimensions other than time and the sub-partitions of a dataset."""

from collections.abc import Mapping
from functools import lru_cache

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.sub_partitions import Tracked, mapping_of, text_of

JOINED = "."
"""The separator between the keys of several levels that share one dimension in Dagster."""


def levels_of(tracked: Tracked) -> tuple[str, ...]:
    """Return the names of a dataset's levels of sub-partitions, from the top down."""
    return tuple(dict.fromkeys(name for path in sorted(tracked.members) for name in mapping_of(path)))


def checked(tracked: Tracked) -> Tracked:
    """Return `tracked`. Raise InvalidDefinition if two sub-partitions have the same key in a dimension."""
    _joined(tuple(tracked.members))
    return tracked


def sub_partition_of(tracked: Tracked, values: Mapping[str, str]) -> str:
    """Return the sub-partition for keys by dimension or level, such as `{"region": "apac"}`. Return '' without keys.

    One dimension may have several levels: `{"place": "apac.sg"}` is `region=apac/country=sg`.
    """
    joined = _joined(tuple(tracked.members)).get(next(iter(values.values()))) if len(values) == 1 else None
    return joined or text_of(values, levels_of(tracked))


@lru_cache(maxsize=256)
def _joined(paths: tuple[str, ...]) -> Mapping[str, str]:
    """Return the paths of sub-partitions by their joined keys, such as `apac.sg`.

    Raise InvalidDefinition if two paths have the same key.
    """
    keys = [JOINED.join(mapping_of(path).values()) for path in paths]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise InvalidDefinition(
            f"sub-partitions: found two with the key {min(twice)!r} after their levels are joined by {JOINED!r}, "
            f"expected different keys. Give them values without {JOINED!r}."
        )
    return dict(zip(keys, paths, strict=True))
