"""Owners of alerts.

If several code locations share a ledger, each location resolves only the alerts about its own feeds.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.ledger import subscriptions
from feed_assets.ledger.closures import Readers
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.undeclared import known_feeds


def readers_of(graph: Graph, node: Node, now: datetime) -> tuple[list[Feed], Readers]:
    """Return the output feeds of a node, and the node's readers in the form that ledger queries take.

    A foreign feed is its own output.
    """
    outputs = [graph.by_key[key].feed for key in node.outputs] or [node.feed]
    reader_feeds = {each.feed for each in graph.readers(node)}
    return outputs, Readers(reader_feeds, {*graph.by_feed}, now - subscriptions.GONE_AFTER)


@dataclass(frozen=True)
class OwnAlerts:
    """The feeds whose alerts this code location resolves, as of now."""

    graph: Graph
    ledger: Ledger
    now: datetime

    def has_feed(self, name: str) -> bool:
        """Return True if this code location declares the feed, or if no running code location does.

        Also return True if `name` is not a feed name.
        """
        try:
            return Feed.parse(name) in self.graph.by_feed or name in self._abandoned
        except InvalidName:
            return True

    def has(self, name: str) -> bool:
        """Return whether this code location resolves the alerts about a name, which may be a feed's name.

        It does if `has_feed` is true, or if the ledger has no feed of this name.
        """
        return self.has_feed(name) or not known_feeds(self.ledger, [name])

    @cached_property
    def _abandoned(self) -> set[str]:
        with self.ledger.read() as connection:
            return subscriptions.abandoned(connection, self.now - subscriptions.GONE_AFTER)
