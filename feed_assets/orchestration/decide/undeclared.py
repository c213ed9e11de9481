"""Feeds and partitions on the blackboard that nobody declares, such as mistyped names."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import shortened
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.walk_limit import WalkLimit
from feed_assets.ledger import subscriptions, updates
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.typed_keys import keys_of
from feed_assets.orchestration.declare.partitions import Existence, by_dimension, existence, is_before_the_first
from feed_assets.runs.services import Services

NAMED = 3
"""Greatest number of partitions that an alert names."""


def unknown_feeds(graph: Graph, board: Blackboard, ledger: Ledger, limit: WalkLimit | None = None) -> dict[Feed, str]:
    """Return the blackboard's feeds that no code location on this ledger declares, with the text of the alert."""
    declared = sorted(map(str, graph.by_feed))
    undeclared = [feed for feed in read.feeds(board, limit=limit) if feed not in graph.by_feed]
    known_names = known_feeds(ledger, [*map(str, undeclared)])
    return {feed: _near(feed, declared) for feed in undeclared if str(feed) not in known_names}


def known_feeds(ledger: Ledger, feeds: Sequence[str]) -> set[str]:
    """Return those of `feeds` that some code location on this ledger declares, or once declared.

    These are the feeds with updates or readers in the ledger.
    """
    with ledger.read() as connection:
        return subscriptions.feeds(connection).intersection(feeds) | updates.known_feeds(connection, feeds)


def _near(feed: Feed, declared: Sequence[str]) -> str:
    near = get_close_matches(str(feed), declared, 1)
    return f"nobody declares this feed{f': is {near[0]} meant?' if near else ''}"


def unknown_partitions(node: Node, keys: Iterable[str], now: datetime) -> dict[Partition, str]:
    """Return keys on the blackboard that can never be partitions of a feed, each with a text about the expected keys.

    A time window that is not over is not reported, because its partition will exist later. For a batch, the parent
    partition is checked.
    """
    paths, bare = {*keys}, set[str]()
    if node.is_appendable:
        bare = {key for key in paths if len(key.split("/") if key else ()) == len(by_dimension(node.partitions_def))}
        paths = {key.rpartition("/")[0] for key in paths - bare}
    never = [key for key in sorted(paths) if existence(node.partitions_def, key, now) is Existence.NEVER]
    strange = {key: _expected(node, key, now) for key in never} | {key: _without_batch(key) for key in bare}
    return {Partition(node.feed, key): why for key, why in strange.items()}


def _without_batch(key: str) -> str:
    return (
        f"{key!r} names no batch, but each update of this feed must belong to a batch: "
        f"expected {f'{key}/' if key else ''}NAME."
    )


def _expected(node: Node, key: str, now: datetime) -> str:
    try:
        return f"it is {keys_of(node, [key], now)}"
    except InvalidName as error:
        return str(error)


def unread(graph: Graph, services: Services, now: datetime, limit: WalkLimit | None = None) -> dict[str, str]:
    """Return the texts of alerts by feed, about undeclared feeds and undeclared partitions of foreign feeds.

    Partitions before the declared first partition are left out, because a producer may have older history. Feeds of
    intake are left out, because intake checks its partitions. `limit` bounds the search for undeclared feeds.
    """
    reasons: dict[str, str] = {}
    limits = [(board, replace(limit) if limit else None) for board in services.boards()]
    for board, each in limits:
        undeclared = unknown_feeds(graph, board, services.ledger, each)
        reasons |= {str(feed): f"{feed}: {why}" for feed, why in undeclared.items()}
    if limit:  # The next walks begin where the first of these has stopped.
        ends = (each.stopped for _, each in limits if each and each.stopped)
        limit.stopped = min(ends, key=lambda path: path.split("/"), default=None)
    for node in (node for node in graph.foreign() if not node.by_intake):
        with services.ledger.read() as connection:
            keys = {*updates.published_keys(connection, node.feed)}
        strange = unknown_partitions(node, keys, now)
        late = [at for at in strange if not is_before_the_first(node.partitions_def, at.key)]
        if late:
            reasons[str(node.feed)] = f"nobody reads {shortened([*map(str, late)], NAMED)}: {strange[late[0]]}"
    return reasons
