"""Dagster's other dimensions and the sub-partitions of a dataset, into each other."""

from collections.abc import Mapping
from functools import lru_cache

from feed_assets.core.members import Tracked, mapping_of, text_of

JOINED = "."
"""What joins the keys of several levels in one dimension of Dagster's."""


def levels_of(tracked: Tracked) -> tuple[str, ...]:
    """The names of a dataset's levels of sub-partitions, those above first."""
    return tuple(dict.fromkeys(name for path in sorted(tracked.members) for name in mapping_of(path)))


def sub_partition_of(tracked: Tracked, values: Mapping[str, str]) -> str:
    """The sub-partition of keys by dimension or level, such as `{"region": "apac"}`; '' of none.

    One dimension may have several levels: `{"place": "apac.sg"}` is `region=apac/country=sg`.
    """
    joined = _joined(tuple(tracked.members)).get(next(iter(values.values()))) if len(values) == 1 else None
    return joined or text_of(values, levels_of(tracked))


@lru_cache(maxsize=256)
def _joined(paths: tuple[str, ...]) -> Mapping[str, str]:
    return {JOINED.join(mapping_of(path).values()): path for path in paths}
