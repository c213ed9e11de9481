"""Results of the watch for missing time partitions, stored as one cursor for each feed."""

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from pydantic import TypeAdapter

from feed_assets.core.expected_partitions import Expected, late_of
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import get_cursors, put_cursors

_ADAPTER = TypeAdapter(Expected)


def _name(feed: Feed) -> str:
    return f"expected of {feed}"


def last_results(connection: sa.Connection, feeds: Iterable[Feed]) -> dict[Feed, Expected]:
    """Return the result of the last check of each feed: which partitions were expected, and which were missing."""
    names = {_name(feed): feed for feed in feeds}
    values = get_cursors(connection, names) if names else {}
    return {names[name]: _ADAPTER.validate_json(value) for name, value in values.items()}


def keep(connection: sa.Connection, results: Mapping[Feed, Expected]) -> None:
    """Store which partitions of each feed are expected. If two checks run at once, either result may be stored last."""
    put_cursors(connection, {_name(feed): _ADAPTER.dump_json(each).decode() for feed, each in results.items()})


def late(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, str]:
    """Return the given partitions that are overdue, each with the text of its alert."""
    keys: dict[Feed, list[str]] = {}
    for each in partitions:
        keys.setdefault(each.feed, []).append(each.key)
    results = last_results(connection, keys)
    return {
        Partition(feed, key): words
        for feed, each in results.items()
        for key, words in late_of(each, keys[feed]).items()
    }
