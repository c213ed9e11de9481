"""Missing partitions of feeds with a cadence and partitions of time, stored as a cursor of each feed."""

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
    """Return the last result for each feed that was ever checked."""
    names = {_name(feed): feed for feed in feeds}
    values = get_cursors(connection, names) if names else {}
    return {names[name]: _ADAPTER.validate_json(value) for name, value in values.items()}


def keep(connection: sa.Connection, results: Mapping[Feed, Expected]) -> None:
    """Store results. A check begins from such a value: of two at once either may be stored last."""
    put_cursors(connection, {_name(feed): _ADAPTER.dump_json(each).decode() for feed, each in results.items()})


def late(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, str]:
    """Return the late ones of some partitions, in the words of the alert, with since when."""
    keys: dict[Feed, list[str]] = {}
    for each in partitions:
        keys.setdefault(each.feed, []).append(each.key)
    results = last_results(connection, keys)
    return {
        Partition(feed, key): words
        for feed, each in results.items()
        for key, words in late_of(each, keys[feed]).items()
    }
