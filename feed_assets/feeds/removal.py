"""Removal of old updates from a blackboard. No reader ever uses a half-removed update, not even after a kill.

First a promise is written. It names the update from which on the history is complete. Then each old update is removed:
first the manifest, then the files. Every step may be repeated.
"""

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import MANIFEST, Partition, Skipped, Update, is_update_id
from feed_assets.core.retention import StoredUpdate
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard


def find(board: Blackboard, partition: Partition) -> tuple[StoredUpdate, ...]:
    """Return every update of a partition on the blackboard, valid or not, newest first.

    This costs two or three requests for each update.
    """
    updates = (each for each in read.history(board, partition) if is_update_id(each.id))
    updates_found = (_update_under(board, partition, each) for each in updates)
    return tuple(each for each in updates_found if each)


def _update_under(board: Blackboard, partition: Partition, entry: Update | Skipped) -> StoredUpdate | None:
    """Return the stored update that an entry of a listing stands for. Return None if only an empty folder is left."""
    if isinstance(entry, Update):
        return StoredUpdate(entry.id, valid=True)
    try:
        written = board.last_write(f"{partition.path}/{entry.id}")
        return StoredUpdate(entry.id, valid=False, written=written) if written else None
    except InvalidName as error:
        return StoredUpdate(entry.id, valid=False, problem=str(error))


def promise(board: Blackboard, partition: Partition, kept: str) -> None:
    """Write the promise that no valid update from `kept` on is missing. Only the last of several promises is valid."""
    board.put(f"{read.PRUNED}/{partition.path}/{kept}", b"")


def remove(board: Blackboard, partition: Partition, update_id: str, replaced_by: Partition | None = None) -> bool:
    """Remove an update, manifest first. Return False, and do nothing, if no newer valid update replaces it.

    The newer update may be in the range (`replaced_by`) that holds the rows of this batch.

    After a kill between the two steps, the update has no manifest, so it is invalid. If files were removed first, the
    number in the manifest of an invalid update could become right, and readers would use the update.
    """
    newest = [read.latest(board, at).update for at in (partition, replaced_by) if at]
    if not any(each and each.id > update_id for each in newest):
        return False
    path = f"{partition.path}/{update_id}"
    board.delete([f"{path}/{MANIFEST}"])
    board.sweep(path)
    return True


def tidy(board: Blackboard, partition: Partition) -> None:
    """Remove all prune promises of a partition except the last one."""
    board.delete(f"{read.PRUNED}/{partition.path}/{kept}" for kept in read.promises(board, partition)[:-1])
