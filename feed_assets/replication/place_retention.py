"""Retention in a place: old copies are removed as a prune removes updates, so that readers get whole data or none."""

from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import removal
from feed_assets.ledger import updates
from feed_assets.replication import replicas
from feed_assets.replication.copy_ends import CopyEnds
from feed_assets.runs.prune import holder_of


def remove_old(ends: CopyEnds, partition: Partition) -> list[str]:
    """Remove the copies of a partition that the place does not keep, and return their ids.

    With `keep`, the newest copies stay. Without it, and for a batch whose rows are in another one, the copies go whose
    updates were pruned at the source. The promise is written first, then the oldest copy goes first.
    """
    holder = holder_of(ends.services, partition, ends.board)
    with ends.services.ledger.read() as connection:
        stored = replicas.published(connection, ends.place.name, partition)
        rows = [updates.find(connection, partition, each) for each in stored]
    pruned = {row.id for row in rows if row and row.state == updates.PRUNED}
    keep = ends.place.center.keep
    going = pruned if keep is None or holder else {*stored[:-keep]}
    kept = _kept_from(stored, going, holder)
    if kept is None:
        return []
    ends.turn.keep()
    removal.promise(ends.board, partition, kept)
    ends.services.on_step("promised")
    gone = [each for each in stored if each in going and each < kept]
    removed = [each for each in gone if _remove(ends, partition, each, holder)]
    removal.tidy(ends.board, partition)
    _sweep_unpublished(ends, partition, kept)
    return removed


def _kept_from(stored: list[str], going: set[str], holder: Update | None) -> str | None:
    """Return the id from which on no copy goes. Return None if nothing goes, or nothing newer would be left."""
    staying = [each for each in stored if each not in going]
    staying += [holder.id] if holder else []
    newest = max(staying, default="")
    last = max((each for each in going if each < newest), default=None)
    return min((each for each in staying if last and each > last), default=None)


def _remove(ends: CopyEnds, partition: Partition, update_id: str, holder: Update | None) -> bool:
    if not removal.remove(ends.board, partition, update_id, holder.partition if holder else None):
        return False
    ends.services.on_step("copy removed")
    ends.set_removed(partition, update_id)
    return True


def _sweep_unpublished(ends: CopyEnds, partition: Partition, kept: str) -> None:
    """Remove the files of withdrawn copies, and of those that were never finished, from before `kept`."""
    with ends.services.ledger.read() as connection:
        leftovers = replicas.unpublished_before(connection, ends.place.name, partition, kept)
    for each in leftovers:
        ends.sweep(partition, each)
