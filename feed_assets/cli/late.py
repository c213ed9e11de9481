"""`feed-assets late`: decisions about late data, their reasons, and what re-runs changed."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey, UpdateId
from feed_assets.cli.loaded_location import Module, dynamic_partitions, ledger_of_settings, load_graph
from feed_assets.cli.show import show
from feed_assets.cli.verdicts import ComparedView, LateView
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition

if TYPE_CHECKING:
    from feed_assets.ledger.late_decisions import Decision

app = typer.Typer(
    help="Late data: what arrived after a run had read its partition, and what was decided.", no_args_is_help=True
)

SHOWN = 20
"""The number of decisions that are listed by default."""


@app.command()
def ls(
    feed: Annotated[str | None, typer.Argument(metavar="[FEED]", help="A dataset; by default all.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="List this many at most.")] = SHOWN,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """List the last decisions about late data, newest first: re-run, wait or skip, with the bytes before and after."""
    decisions = _decisions(Feed.parse(feed) if feed else None, limit)
    if feed and not decisions:  # This raises an error if there is no dataset with this name.
        load_graph(module).dataset_of(Feed.parse(feed))
    _list(decisions, as_json)


def list_decisions(feed: Feed) -> None:
    """Print the decisions about a dataset."""
    _list(_decisions(feed, SHOWN), as_json=False)


def _decisions(feed: Feed | None, limit: int) -> "tuple[Decision, ...]":
    from feed_assets.ledger import late_decisions

    with ledger_of_settings(makes=False).read() as connection:
        return late_decisions.decisions(connection, limit, feed)


def _list(decisions: "tuple[Decision, ...]", as_json: bool) -> None:
    show(LateView.each(decisions), as_json, "" if decisions else "no decision about late data yet")


@app.command()
def report(
    feed: FeedName, partition: PartitionKey, update: UpdateId = None, module: Module = None, as_json: AsJson = False
) -> None:
    """Compare a dataset's newest update, or a named one, with the update before it: changed inputs, then rows."""
    parsed = Feed.parse(feed)
    tell(_built_partition(parsed, partition) or _declared(module, parsed, partition), update, as_json)


def _built_partition(feed: Feed, key: str) -> Partition | None:
    """Return the partition with this path if, by the ledger, one of our runs built it.

    Otherwise return None. If the ledger has the partition, the command need not load the declarations. Loading them
    takes long.
    """
    from feed_assets.ledger import updates

    with suppress(InvalidName), ledger_of_settings(makes=False).read() as connection:
        newest = updates.newest(connection, [Partition(feed, key)]).values()
        return next((each.partition for each in newest if each.run), None)
    return None


def _declared(module: str | None, feed: Feed, key: str) -> Partition:
    """Return the partition of a dataset. The key may have the UI's form. Raise InvalidName for an unknown partition."""
    from feed_assets.orchestration.decide.typed_keys import keys_of

    graph = load_graph(module)
    node = graph.dataset_of(feed)
    with dynamic_partitions(graph):
        only_key, *further_keys = keys_of(node, [key], datetime.now(UTC))
    if further_keys:
        raise InvalidName(f"{key!r} are {1 + len(further_keys)} partitions: expected one of them.")
    return Partition(node.feed, only_key)


def tell(at: Partition, update: str | None = None, as_json: bool = False) -> None:
    """Print how an update of a partition differs from the update before it: its inputs, rows and key figures."""
    from feed_assets.ledger.rerun_effects import effect

    with ledger_of_settings(makes=False).read() as connection:
        comparison = effect(connection, at, update)
    if comparison is None:
        show((), as_json, f"{at} has only one update, so there is no earlier one to compare it with")
    else:
        show(
            ComparedView.each(comparison.rows), as_json, f"update {comparison.after.id} replaces {comparison.before.id}"
        )
