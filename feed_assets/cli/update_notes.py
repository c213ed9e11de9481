"""Facts of the ledger that `feed ls`, `feed show` and `explain` print beside an update: compactions, missing inputs."""

from contextlib import suppress
from typing import TYPE_CHECKING

from feed_assets.cli.loaded_location import ledger_of_settings
from feed_assets.cli.views import HistoryView
from feed_assets.core.data_centers import PRIMARY
from feed_assets.core.errors import LedgerUnavailable
from feed_assets.core.feeds import Partition, Update

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from feed_assets.feeds.blackboard import Blackboard
    from feed_assets.ledger.updates import UpdateRow


def history(board: "Blackboard", partition: Partition, *, is_ours: bool) -> tuple[HistoryView, ...]:
    """Return all updates of a partition. Only the ledger of our own blackboard has their compactions."""
    from feed_assets.feeds import read
    from feed_assets.ledger import compacted_partitions

    replaced = dict[str, str]()
    if is_ours:
        with suppress(LedgerUnavailable), ledger_of_settings(makes=False).read() as connection:
            replaced = compacted_partitions.replaced_updates(connection, partition)
    updates = HistoryView.each(read.history(board, partition))
    return tuple(each.model_copy(update={"compacted_from": replaced.get(each.id, "")}) for each in updates)


def compaction(connection: "Connection", output: Partition, newest: "UpdateRow | None") -> list[str]:
    """Return notes about what the newest update of a partition was compacted from, and about a failed compaction."""
    from feed_assets.compaction.due_partitions import failure
    from feed_assets.ledger import compacted_partitions, updates

    failures = [reason] if (reason := failure(connection, output)) else []
    if newest is None or newest.origin != updates.COMPACTED:
        return failures
    replaced = compacted_partitions.replaced_updates(connection, newest.partition).get(newest.id, "older batches")
    return [f"its update {newest.id} was compacted from {replaced}, with the same rows", *failures]


def copies(connection: "Connection", newest: "UpdateRow | None") -> list[str]:
    """Return a note for each data center that has, or waits for, the newest update of a partition, and where it ran."""
    from feed_assets.replication.place_overview import notes

    return [*notes(connection, newest), *_ran_at(connection, newest)]


def _ran_at(connection: "Connection", newest: "UpdateRow | None") -> list[str]:
    """Return a note about the place where the run of an update computed, if the ledger has it."""
    from feed_assets.ledger import runs

    placed = runs.places_of(connection, [newest.run]).get(newest.run) if newest and newest.run else None
    place = placed.partition(": ")[0] if placed else ""
    return [f"it ran at the {place}"] if place.startswith("data center ") or place == PRIMARY else []


def copies_of(update: Update, *, is_ours: bool) -> list[str]:
    """Return the notes of `copies` about an update that was read from our own blackboard."""
    from feed_assets.ledger import updates

    if is_ours:
        with suppress(LedgerUnavailable), ledger_of_settings(makes=False).read() as connection:
            return copies(connection, updates.find(connection, update.partition, update.id))
    return []


def went_without(update: Update, *, is_ours: bool) -> tuple[tuple[str, ...], int]:
    """Return, from the ledger, the inputs that one of our updates was built without, and how many inputs it needed."""
    from feed_assets.ledger import updates

    if not is_ours:
        return (), 0
    with suppress(LedgerUnavailable), ledger_of_settings(makes=False).read() as connection:
        update_row = updates.find(connection, update.partition, update.id)
        left_out = update_row.went_without if update_row else ()
        return left_out, len(left_out) + len(updates.consumed_by(connection, update.partition, update.id))
    return (), 0
