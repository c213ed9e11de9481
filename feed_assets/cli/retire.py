"""`feed-assets feed retire`: stop building an old version of a dataset that nobody reads any more."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from feed_assets.cli.feed import AsJson, FeedName
from feed_assets.cli.loaded_location import Module, dynamic_partitions, ledger_of_settings, load_graph
from feed_assets.cli.show import Values, show
from feed_assets.cli.state import Who, Why, who_says
from feed_assets.core.feeds import Feed

Undo = Annotated[bool, typer.Option("--undo", help="Build the dataset again, with all data that have arrived since.")]


def retire(
    feed: FeedName, why: Why, who: Who = None, undo: Undo = False, module: Module = None, as_json: AsJson = False
) -> None:
    """Stop building a dataset, also by hand, so that its declaration can be removed.

    The command fails while a reader exists. Readers are datasets and tables of this code location. Readers of another
    location on this ledger count only if that location has read all changes that are older than an hour. The dataset's
    updates stay as they are. The command is logged.
    """
    from feed_assets.ledger import closures
    from feed_assets.orchestration.decide.alert_owner import readers_of

    says, now, graph = who_says(why, who), datetime.now(UTC), load_graph(module)
    node = graph.dataset_of(Feed.parse(feed))
    if undo:
        with dynamic_partitions(graph):
            changed = closures.bring_back(ledger_of_settings(), node.feed, node.partitions, why=why, by=says, now=now)
    else:
        changed = closures.retire(ledger_of_settings(), *readers_of(graph, node, now), why, says, now)
    done = Values.of(dataset=str(node.feed), retired=not undo, changed=changed)
    show(done, as_json, "" if changed else "nothing changed")
