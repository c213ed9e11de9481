"""`feed-assets feed verify --deep`: updates that are read to the last byte."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from feed_assets.cli import views
from feed_assets.cli.location import ledger_of_settings
from feed_assets.cli.show import show
from feed_assets.core.errors import LedgerUnavailable, UnreadableUpdate

if TYPE_CHECKING:
    from feed_assets.core.feeds import Update
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.runs.deep import Deep, Published


def verify_deep(board: "Blackboard", updates: "Sequence[Update]", *, is_ours: bool, as_json: bool) -> None:
    """Read updates to the last byte and show what is wrong with each. Raises UnreadableUpdate if anything is.

    `is_ours`: the ledger of the settings tells of this blackboard.
    """
    published = _published(is_ours=is_ours)
    found = [_looked(board, update, published) for update in updates]
    show(views.DeepView.each(found), as_json)
    if bad := [each for each in found if each.damage]:
        raise UnreadableUpdate(f"{bad[0].damage} {len(bad)} of {len(found)} updates are damaged.")


def _looked(board: "Blackboard", update: "Update", published: "Callable[[Update], Published]") -> "Deep":
    from feed_assets.runs.deep import look_deep
    from feed_assets.runs.services import spark_maker
    from feed_assets.settings import settings

    return look_deep(board, update, published(update), maker=lambda: spark_maker(settings()))


def _published(*, is_ours: bool) -> "Callable[[Update], Published]":
    """Return a lookup of ledger facts. Without a ledger every update is `UNKNOWN`."""
    from feed_assets.runs.deep import UNKNOWN, published_of

    try:
        ledger = ledger_of_settings(makes=False) if is_ours else None
    except LedgerUnavailable:
        ledger = None
    return lambda update: published_of(ledger, update.partition, update.id) if ledger else UNKNOWN
