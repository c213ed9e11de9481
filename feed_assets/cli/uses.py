"""`feed-assets feed uses`: the updates that contain rows of a given update."""

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BeforeValidator

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.loaded_location import ledger_of_settings, partition_of
from feed_assets.cli.show import show
from feed_assets.cli.views import OfPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from feed_assets.core.feeds import Partition
    from feed_assets.ledger.downstream import Use

Given = Annotated[
    str,
    typer.Argument(metavar="UPDATE", help="The update's id: 20191125.060000; for an event table, a marker."),
]


def _in_words(via: "tuple[Partition, str]") -> str:
    return f"{via[0]} {via[1]}"


class UseView(OfPartition):
    """An update built from the given one, in `depth` steps. It got the rows from the update `via`."""

    id: str
    state: str | None
    is_newest: bool
    depth: int
    how: str
    via: Annotated[str, BeforeValidator(_in_words)]


def uses(feed: FeedName, partition: PartitionKey, update: Given, as_json: AsJson = False) -> None:
    """List all our updates that were built from an update, directly or not: they show how far a bad file has spread.

    The list includes increments added to these updates, batches combined of them, and rejects of their readers,
    because they contain the rows, too. For an event table, give a marker: the readers of rows that were updated at this
    marker are listed.
    """
    from feed_assets.ledger.downstream import uses

    with ledger_of_settings(makes=False).read() as connection:
        derived = uses(connection, partition_of(feed, partition), update)
    show(UseView.each(derived), as_json, _in_all(derived))


def _in_all(derived: "Sequence[Use]") -> str:
    if not derived:
        return "no update was built from it"
    feeds, newest = len({use.partition.feed for use in derived}), sum(use.is_newest for use in derived)
    updates = f"{len(derived)} update{'s' * (len(derived) > 1)} of {feeds} feed{'s' * (feeds > 1)}"
    return f"{updates}; {newest} of them are the newest, which readers get"
