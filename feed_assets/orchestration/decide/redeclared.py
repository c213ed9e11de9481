"""Datasets that are declared differently than before: their outputs that wait for an input are decided again.

Such an output is decided again only when an input changes. With another `Wait`, mapping or optional input, it may no
longer have to wait.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256

from feed_assets.ledger import due
from feed_assets.ledger.database import Ledger, get_cursors, put_cursors
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import json_of


def look_at_redeclared(graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime) -> None:
    """Make outputs due now if they wait for an input and the declaration of their dataset, or of its inputs, changed.

    The outputs are made due before the new declaration is recorded. So after a kill between the two, this is repeated.
    """
    if not datasets:
        return
    digests = {f"declaration of {node.feed}": _digest(graph, node) for node in datasets}
    feeds = dict(zip(digests, (node.feed for node in datasets), strict=True))
    with ledger.read() as connection:
        recorded = get_cursors(connection, digests)
    if changed := {name: digest for name, digest in digests.items() if recorded.get(name) != digest}:
        due.look_at_incomplete(ledger, {feeds[name] for name in changed}, now)
        with ledger.write() as connection:
            put_cursors(connection, changed)


def _digest(graph: Graph, node: Node) -> str:
    mapping = partial(graph.assets.get_partition_mapping, node.key)
    inputs = [(json_of(each.declaration), repr(mapping(each.key))) for each in graph.parents(node)]
    return sha256(repr((json_of(node.declaration), inputs)).encode()).hexdigest()[:16]
