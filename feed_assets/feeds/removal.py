"""Remove old updates from a blackboard: no kill leaves a torn one, and no reader meanwhile meets one.

The order is: promise from where on history is whole, then of each update the manifest, then its files. Every step may
be repeated.
"""

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import MANIFEST, Partition, Skipped, Update, is_update_id
from feed_assets.core.retention import StoredUpdate
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard


def find(board: Blackboard, partition: Partition) -> tuple[StoredUpdate, ...]:
    """Return every update on the blackboard, valid or not, newest first: two requests for each, or three."""
    updates = (each for each in read.history(board, partition) if is_update_id(each.id))
    updates_found = (_update_under(board, partition, each) for each in updates)
    return tuple(each for each in updates_found if each)


def _update_under(board: Blackboard, partition: Partition, entry: Update | Skipped) -> StoredUpdate | None:
    """Return what lies under an id; None if nothing does: folders (local and SeaweedFS's) outlive their objects."""
    if isinstance(entry, Update):
        return StoredUpdate(entry.id, valid=True)
    try:
        written = board.last_write(f"{partition.path}/{entry.id}")
        return StoredUpdate(entry.id, valid=False, written=written) if written else None
    except InvalidName as error:
        return StoredUpdate(entry.id, valid=False, problem=str(error))


def promise(board: Blackboard, partition: Partition, kept: str) -> None:
    """Promise that from an update on nothing valid is missing; the last of several promises holds."""
    board.put(f"{read.PRUNED}/{partition.path}/{kept}", b"")


def remove(board: Blackboard, partition: Partition, update_id: str, replaced_by: Partition | None = None) -> bool:
    """Remove an update that a newer valid one has replaced, manifest first; if none has, do nothing and return False.

    The newer one may be that of another batch, which holds the rows of this one.

    A kill after the manifest leaves it invalid, as while it was written. With files gone and the manifest there, a
    count that was wrong could become right.
    """
    newest = [read.latest(board, at).update for at in (partition, replaced_by) if at]
    if not any(each and each.id > update_id for each in newest):
        return False
    path = f"{partition.path}/{update_id}"
    board.delete([f"{path}/{MANIFEST}"])
    board.sweep(path)
    return True


def tidy(board: Blackboard, partition: Partition) -> None:
    """Remove the promises that a later one has replaced."""
    board.delete(f"{read.PRUNED}/{partition.path}/{kept}" for kept in read.promises(board, partition)[:-1])
