"""`feed-assets late`: what was decided of late data, and why, and what re-runs have changed."""

from typing import Annotated

import typer

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey, UpdateId
from feed_assets.cli.location import ledger_of_settings, partition_of
from feed_assets.cli.show import show
from feed_assets.cli.verdicts import ComparedView, LateView
from feed_assets.core.feeds import Feed

app = typer.Typer(help="Late data: what came after it was read, and what becomes of it.", no_args_is_help=True)


@app.command()
def ls(
    feed: Annotated[str | None, typer.Argument(metavar="[FEED]", help="A dataset; by default all.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="So many at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the last decisions about late data, newest first: re-run, wait or skip, with the bytes before and after."""
    from feed_assets.ledger import late

    with ledger_of_settings(makes=False).read() as connection:
        found = late.decisions(connection, limit, Feed.parse(feed) if feed else None)
    show(LateView.each(found), as_json, "" if found else "no late data were weighed yet")


@app.command()
def report(feed: FeedName, partition: PartitionKey, update: UpdateId = None, as_json: AsJson = False) -> None:
    """Compare a dataset's newest update, or the one named, with the one before: its changed inputs, then itself."""
    from feed_assets.ledger.effects import effect

    at = partition_of(feed, partition)
    with ledger_of_settings(makes=False).read() as connection:
        found = effect(connection, at, update)
    if found is None:
        show((), as_json, f"{at} has one update: there is none before it to compare it with")
    else:
        show(ComparedView.each(found.rows), as_json, f"update {found.after.id} replaces {found.before.id}")
