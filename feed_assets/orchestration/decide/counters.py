"""The datasets whose runs count the records of foreign feeds: the first run that reads an update counts its rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from feed_assets.core.feeds import Feed
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import Rejects


def counters_of(
    counted: Collection[Feed], datasets: Iterable[Node], parents: Mapping[Feed, Sequence[Node]]
) -> dict[Feed, list[Feed]]:
    """Return the datasets that may count each feed's records: its readers that do not depend on another of its readers.

    So no counting dataset waits for another one. Datasets built by events are last, because they may wait long or be
    paused. Otherwise datasets are sorted by name.
    """
    readers: dict[Feed, list[Feed]] = {feed: [] for feed in counted}
    for node in sorted(datasets, key=lambda each: (each.by_events is not None, each.feed)):
        for parent in parents[node.feed]:
            if parent.feed in readers:
                readers[parent.feed].append(node.feed)
    return {feed: [each for each in some if not _above(each, parents) & {*some}] for feed, some in readers.items()}


def _above(feed: Feed, parents: Mapping[Feed, Sequence[Node]]) -> set[Feed]:
    """Return all feeds from which a dataset is made, directly or indirectly.

    If one of them is a feed of rejects, the dataset of these rejects is included, too.
    """
    ancestors, waiting = set[Feed](), {feed}
    while waiting:
        new = {name for each in waiting for node in parents.get(each, ()) for name in _names(node)} - ancestors - {feed}
        ancestors, waiting = ancestors | new, new
    return ancestors


def _names(node: Node) -> set[Feed]:
    declared = node.declaration
    return {node.feed, *declared.outputs} if isinstance(declared, Rejects) else {node.feed}
