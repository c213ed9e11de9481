"""`feed-assets feed verify --deep`: read updates to the last byte, and show their damage."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from feed_assets.cli import views
from feed_assets.cli.loaded_location import ledger_of_settings
from feed_assets.cli.show import show
from feed_assets.core.errors import LedgerUnavailable, UnreadableUpdate

if TYPE_CHECKING:
    from feed_assets.core.feeds import Partition, Update
    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.ledger.database import Ledger
    from feed_assets.runs.deep_verification import Deep, PublishedFacts


def verify_deep(board: "Blackboard", updates: "Sequence[Update]", *, is_ours: bool, as_json: bool) -> None:
    """Read updates to the last byte and show the damage of each. Raise UnreadableUpdate if one is damaged.

    `is_ours` is True if the ledger of the settings belongs to this blackboard.
    """
    published = _published(is_ours=is_ours)
    deep_views = [_looked(board, update, published) for update in updates]
    show(views.DeepView.each(deep_views), as_json)
    if bad := [each for each in deep_views if each.damage]:
        raise UnreadableUpdate(f"{bad[0].damage} {len(bad)} of {len(deep_views)} updates are damaged.")


def edits(updates: "Sequence[Update]", *, is_ours: bool) -> "dict[Partition, tuple[str, str]]":
    """Return, for each partition, an error if its update differs from the ledger's record, or a note if it may differ.

    Each value is the pair (error, note); a missing text is ''.
    """
    from feed_assets.ledger.updates import recorded
    from feed_assets.runs.deep_verification import edits_of

    if (ledger := _ledger(is_ours=is_ours)) is None:
        return {}
    with ledger.read() as connection:
        return {each.partition: edits_of(each, recorded(connection, each.partition, each.id)) for each in updates}


def _looked(board: "Blackboard", update: "Update", published: "Callable[[Update], PublishedFacts]") -> "Deep":
    from feed_assets.runs.deep_verification import look_deep
    from feed_assets.runs.services import spark_maker
    from feed_assets.settings import settings

    return look_deep(board, update, published(update), maker=lambda: spark_maker(settings()))


def _published(*, is_ours: bool) -> "Callable[[Update], PublishedFacts]":
    """Return a function that looks up an update in the ledger. It returns `UNKNOWN` if there is no ledger."""
    from feed_assets.runs.deep_verification import UNKNOWN, published_of

    ledger = _ledger(is_ours=is_ours)
    return lambda update: published_of(ledger, update.partition, update.id) if ledger else UNKNOWN


def _ledger(*, is_ours: bool) -> "Ledger | None":
    """Return the ledger of the settings. Return None if it does not exist, or belongs to another blackboard."""
    try:
        return ledger_of_settings(makes=False) if is_ours else None
    except LedgerUnavailable:
        return None
