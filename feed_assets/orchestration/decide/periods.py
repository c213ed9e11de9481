"""The partitions of each dataset on the status page: those of the requested days, or of its newest periods."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import Slots
from feed_assets.core.isolation import failing_alone
from feed_assets.ledger import status_facts
from feed_assets.ledger.due_counts import Group
from feed_assets.ledger.states.watermarks import Line, watermarks
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import own_grain
from feed_assets.orchestration.declare.declarations import EventTable
from feed_assets.orchestration.declare.partitions import (
    Extent,
    end_of,
    extent_of,
    newest_paths,
    paths_within,
    still_partitions,
    times_of,
)
from feed_assets.orchestration.declare.sub_partitions import sub_partition_of

PARTITIONS_EACH = 5000
"""Greatest number of partitions shown per dataset."""

PERIODS, PERIODS_OF_ONE = 24, 100
"""Numbers of newest periods shown: for each of several datasets, and for a single requested dataset."""

Extents = dict[Feed, dict[Partition, Extent]]
"""The shown partitions of each feed, with their extents."""


def extents_within(nodes: Iterable[Node], slots: Slots, notes: dict[str, str]) -> Extents:
    """Return the partitions of each node that overlap the slots or have no time.

    If a node fails, or has more partitions than are shown, add a text about this to `notes`.
    """
    extents: Extents = {}
    for node in nodes:
        with failing_alone(notes, str(node.feed)):
            definition = node.partitions_def
            is_timed = times_of(definition) is not None
            paths = paths_within(definition, slots.start, slots.end, {}) if is_timed else _untimed(node)
            extents[node.feed] = _extents(node, paths, notes)
    return extents


def newest_extents(
    connection: sa.Connection,
    nodes: Sequence[Node],
    due: Iterable[Group],
    now: datetime,
    count: int,
    notes: dict[str, str],
) -> Extents:
    """Return the partitions of the newest `count` periods of each node, and some of its older partitions that are due.

    The last period is the current one. If a node's newest data are older than all these periods, return instead the
    periods up to the newest data, and the last finished period. `notes` gets the same texts as in `extents_within`.
    """
    newest = _newest(nodes, now, count, notes)
    ends = _last_ends(connection, nodes, newest)
    waiting = _keys_by_feed(due)
    extents: Extents = {}
    for node in nodes:
        if node.feed not in newest:
            continue
        with failing_alone(notes, str(node.feed)):
            paths, end = newest[node.feed], ends.get(node.feed)
            if end and paths and end <= _start(node, paths[0], now):
                paths = [*newest_paths(node.partitions_def, end, count - 1), *_of_last_period(node, paths, now)]
            older = still_partitions(node.partitions_def, waiting.get(node.feed, ()))
            extents[node.feed] = _extents(node, [*older, *paths], notes)
    return extents


def line_of(node: Node, extent: Extent) -> Line | None:
    """Return the key of a partition's watermarks in the state store.

    Return None if the feed has no windows of the partition's grain.
    """
    grain = own_grain(node) if node.tracked else None
    if node.tracked is None or grain not in node.tracked.grains:
        return None
    return node.feed, sub_partition_of(node.tracked, extent.values), grain


def _untimed(node: Node) -> list[str]:
    return [each.key for each in node.partitions] if node.partitions_def else [""]


def _extents(node: Node, paths: Collection[str], notes: dict[str, str]) -> dict[Partition, Extent]:
    """Return the extents (time and values of other dimensions) of a feed's partitions.

    If there are too many partitions, return only the last ones, and add a note to `notes`.
    """
    if len(paths) > PARTITIONS_EACH:
        notes[str(node.feed)] = f"{PARTITIONS_EACH:,} of its {len(paths):,} partitions are shown"
    kept = [*dict.fromkeys(paths)][-PARTITIONS_EACH:]
    return {Partition(node.feed, path): extent_of(node.partitions_def, path) for path in kept}


def _newest(nodes: Iterable[Node], now: datetime, count: int, notes: dict[str, str]) -> dict[Feed, list[str]]:
    newest: dict[Feed, list[str]] = {}
    for node in nodes:
        with failing_alone(notes, str(node.feed)):
            is_timed = times_of(node.partitions_def) is not None
            newest[node.feed] = newest_paths(node.partitions_def, now, count) if is_timed else _untimed(node)
    return newest


def _last_ends(
    connection: sa.Connection, nodes: Iterable[Node], newest: Mapping[Feed, Sequence[str]]
) -> dict[Feed, datetime]:
    """Return the end of each feed's newest period with data."""
    timed = [node for node in nodes if newest.get(node.feed) and times_of(node.partitions_def)]
    tables = {node.feed for node in timed if isinstance(node.declaration, EventTable)}
    keys = status_facts.latest_keys(connection, {node.feed for node in timed} - tables)
    keys |= status_facts.latest_event_keys(connection, tables) if tables else {}
    ends = [(node.feed, end_of(node.partitions_def, keys[node.feed])) for node in timed if node.feed in keys]
    lines = {line for node in timed for line in _lines(node, newest[node.feed])}
    marks = watermarks(connection, lines) if lines else {}
    ends += [(feed, each.latest) for (feed, *_), each in marks.items()]
    return dict(sorted((feed, end) for feed, end in ends if end))  # the latest end of each feed wins


def _lines(node: Node, paths: Sequence[str]) -> Iterable[Line]:
    """Return the keys of the watermarks (how far windows are complete) of a dataset's first period.

    All periods have the same keys.
    """
    first = paths[0].partition("/")[0]
    extents = (extent_of(node.partitions_def, path) for path in paths if path.partition("/")[0] == first)
    return filter(None, (line_of(node, each) for each in extents)) if node.tracked else ()


def _start(node: Node, path: str, now: datetime) -> datetime:
    return extent_of(node.partitions_def, path).start or now


def _of_last_period(node: Node, paths: Sequence[str], now: datetime) -> list[str]:
    """Return the paths of the last period that is over."""
    over = [path for path in paths if (extent_of(node.partitions_def, path).end or now) <= now]
    last = max((_start(node, path, now) for path in over), default=None)
    return [path for path in over if _start(node, path, now) == last]


def _keys_by_feed(due: Iterable[Group]) -> dict[Feed, list[str]]:
    keys: dict[Feed, list[str]] = {}
    for group in due:
        keys.setdefault(group.feed, []).extend(example.key for example in group.examples)
    return keys
