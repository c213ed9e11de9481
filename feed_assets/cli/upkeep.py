"""`feed-assets feed prune` and `revalidate`: commands that use the ledger and the settings' blackboard."""

from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson, FeedName, PartitionKey
from feed_assets.cli.loaded_location import open_services, partition_of
from feed_assets.cli.show import show
from feed_assets.cli.terminal import echo
from feed_assets.cli.views import PrunedView, RevalidatedView
from feed_assets.core.errors import NotOurs
from feed_assets.core.feeds import Feed
from feed_assets.core.retention import Retention, parse_age

if TYPE_CHECKING:
    from feed_assets.runs.services import Services

Keep = Annotated[int | None, typer.Option("--keep", metavar="N", min=1, help="Keep the last N valid updates.")]
Age = Annotated[str | None, typer.Option("--older-than", metavar="AGE", help="Keep younger updates: 30d, 12h.")]
Foreign = Annotated[bool, typer.Option("--foreign", help="Allow the removal from a feed that somebody else writes.")]
Apply = Annotated[bool, typer.Option("--apply", help="Remove them. Without --apply nothing is removed.")]


def prune(
    feed: FeedName,
    partition: Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="By default all of them.")] = None,
    keep: Keep = None,
    older_than: Age = None,
    foreign: Foreign = False,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Remove old updates that no run reads, or list them.

    If both limits are given, an update stays if either limit keeps it.
    """
    from feed_assets.runs.prune import prune, prune_feed

    policy = Retention(keep, parse_age(older_than) if older_than else None)
    services, parsed = _services(), Feed.parse(feed)
    _refuse_foreign(services, parsed, foreign)
    if partition is None:
        results = [*prune_feed(services, parsed, policy, apply=apply)]
    else:
        results = [prune(services, partition_of(feed, partition), policy, apply=apply)]
    gone = sum(len(pruned.gone) for pruned in results)
    note = f"{gone} updates pruned" if apply else f"{gone} updates would be removed: add --apply"
    show(PrunedView.each(results if as_json else (each.brief for each in results if each.brief.judged)), as_json, note)


def revalidate(
    feed: FeedName,
    partition: PartitionKey,
    update: Annotated[str, typer.Argument(metavar="UPDATE", help="The update's id: 20191125.060000.")],
    as_json: AsJson = False,
) -> None:
    """Make an invalidated update valid again, if its files are exactly the published ones."""
    from feed_assets.runs.revalidate import revalidate

    result = revalidate(_services(), partition_of(feed, partition), update)
    show(RevalidatedView.model_validate(result), as_json, "it is valid again")


def _services() -> "Services":
    from feed_assets.settings import settings

    echo(f"blackboard: {settings().blackboard}", err=True)
    return open_services(makes=False)


def _refuse_foreign(services: "Services", feed: Feed, foreign: bool) -> None:
    from feed_assets.ledger.pruned_updates import is_ours

    with services.ledger.read() as connection:
        is_own = is_ours(connection, feed)
    if not is_own and not foreign:
        raise NotOurs(
            f"No run of this ledger has written {feed}: its updates belong to somebody else. Ask its producer, or add "
            "--foreign if they are yours to remove."
        )
