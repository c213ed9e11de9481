"""Partitions that users type: paths, keys as the UI shows them (`men|2019-11-26`), and ranges of both."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import product

import dagster as dg

from feed_assets.core.errors import InvalidName
from feed_assets.core.message_words import shortened
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.partitions import (
    Existence,
    Partitions,
    begins_at,
    by_dimension,
    existence,
    keys_within,
)
from feed_assets.orchestration.declare.time_windows import bounds

BAR, RANGE = "|", "..."
"""Dagster's separators of dimensions and of the ends of a range. No path contains them."""

NEAREST = 3
"""Greatest number of existing keys that an error message suggests."""


def keys_of(node: Node, typed: Sequence[str], now: datetime) -> list[str]:
    """Return the paths of typed partitions, each once. Return [''] for a dataset without partitions.

    Args:
        node: The feed's node.
        typed: Paths (`2019-11-24/men`), keys of the UI (`men|2019-11-24`), and Dagster's ranges of both
            (`2019-11-01...2019-11-07`) with both ends included. With several dimensions, a range has every combination
            of keys.
        now: The moment at which the partitions must exist, timezone-aware.

    Raises:
        InvalidName: A typed partition does not exist (yet). The message names the nearest existing partitions.
    """
    if node.partitions_def is None and not typed:
        return [""]
    return [*dict.fromkeys(path for each in typed for path in _range(node, each, now))]


def within(node: Node, typed: Sequence[str]) -> list[str]:
    """Return the typed keys, with each year, month or day (`2024`, `2024-02`) replaced by its partitions."""
    keys = list[str]()
    for each in typed:
        begins = re.fullmatch(r"\d{4}(-\d\d){0,2}", each) and not _is_key(node, each)
        begun = (f"{each}-", f"{each}/")  # a longer date, or keys of other dimensions
        inside = [part.key for part in node.partitions if part.key.startswith(begun)] if begins else []
        keys += inside or [each]
    return keys


def _is_key(node: Node, typed: str) -> bool:
    return node.partitions_def is not None and node.partitions_def.has_partition_key(typed)


def path_of(node: Node, typed: str) -> str:
    """Return the path of one typed partition, without checking that it exists."""
    definition = node.partitions_def
    if BAR not in typed or not isinstance(definition, dg.MultiPartitionsDefinition):
        return typed
    names, parts = sorted(part.name for part in definition.partitions_defs), typed.split(BAR)
    if len(names) != len(parts):
        raise InvalidName(f"{typed!r} is no partition of {node.feed}: expected the form {BAR.join(names)}.")
    keys = dict(zip(names, parts, strict=True))
    return "/".join(keys[name] for name in by_dimension(definition))


def _range(node: Node, typed: str, now: datetime) -> list[str]:
    first, is_range, last = typed.partition(RANGE)
    if not is_range:
        return [_existing(node, typed, now)]
    ends = [_existing(node, each, now) for each in (first, last)]
    if node.partitions_def is None:
        return ends[:1]
    segments = [_segments(node.partitions_def, end) for end in ends]
    between = [_between(definition, start, end) for (definition, start), (_, end) in zip(*segments, strict=True)]
    if not all(between):
        raise InvalidName(f"the range {typed!r} ends before it begins: expected the earlier partition first.")
    return ["/".join(keys) for keys in product(*between)]


def _between(definition: dg.PartitionsDefinition[str], first: str, last: str) -> Sequence[str]:
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return keys_within(definition, bounds(definition, first)[0], bounds(definition, last)[1])
    return definition.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))


def _existing(node: Node, typed: str, now: datetime) -> str:
    path = path_of(node, typed)
    stands = existence(node.partitions_def, path, now)
    if stands is Existence.EXISTS:
        return path
    begins = begins_at(node.partitions_def, path) if stands is Existence.NOT_YET else None
    yet = f" yet: it will be one at {begins.astimezone(UTC):%Y-%m-%d %H:%M} UTC; " if begins else ": "
    raise InvalidName(f"{typed!r} is no partition of {node.feed}{yet}{_expected(node.partitions_def, path)}.")


def _expected(definition: Partitions, path: str) -> str:
    """Return a text with the existing partitions nearest to a path."""
    if definition is None:
        return "the dataset has no partitions. Leave it out"
    segments = _segments(definition, path)
    if segments is None:
        names = [*by_dimension(definition)]
        if len(names) == 1:
            return "expected a key without '/'"
        return f"expected {'/'.join(names)}, or {BAR.join(sorted(names))} as the UI writes it"
    return "; ".join(_nearest(part, key) for part, key in segments if not part.has_partition_key(key))


def _segments(definition: Partitions, path: str) -> list[tuple[dg.PartitionsDefinition[str], str]] | None:
    """Return each dimension's definition with the path's segment. Return None if the number of segments is wrong."""
    by_name, parts = by_dimension(definition), path.split("/")
    return [*zip(by_name.values(), parts, strict=True)] if len(by_name) == len(parts) else None


def _nearest(definition: dg.PartitionsDefinition[str], key: str) -> str:
    """Return a text with the existing keys most similar to `key`. For a time dimension, name its first and last key."""
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        first, last = definition.get_first_partition_key(), definition.get_last_partition_key()
        expected = f"expected {first} to {last} in place of {key!r}, or a range, FIRST...LAST"
        return expected if first else "none exists yet"
    keys = definition.get_partition_keys()
    like = get_close_matches(key, keys, NEAREST)
    return f"expected {shortened(like or keys, NEAREST)} in place of {key!r}" if keys else "none exists yet"
