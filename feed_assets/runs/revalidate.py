"""Make an invalidated update valid again: on the blackboard first, then in the ledger."""

from feed_assets.core.batch_names import overlap
from feed_assets.core.errors import NotRevalidated
from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import read, write
from feed_assets.ledger import batch_sets, compacted_partitions, increment_base, runs, update_changes, updates
from feed_assets.runs import reconcile
from feed_assets.runs.exclusive import alone
from feed_assets.runs.services import Services

_WERE_VALID = (updates.PUBLISHED, updates.INVALIDATED)


def revalidate(services: Services, partition: Partition, update_id: str) -> Update:
    """Make a published and later invalidated update valid again, if its files are unchanged.

    Invalid updates with the same rows, because one was compacted from the other, become valid, too, oldest first.

    Raise NotRevalidated if that is impossible. For a batch, and for a partition with increments or compactions, raise
    AlreadyRunning while a run builds the partition, because that run may read or replace the same rows. The update
    becomes valid on the blackboard first. If the process is killed then, the update is valid only there. The ledger
    records this when the call is repeated, or when the update is found as the newest one.
    """
    with services.ledger.read() as connection:
        same_rows = compacted_partitions.invalid_with_same_rows(connection, partition, update_id)
    revalidated = {each: _revalidate(services, partition, each) for each in sorted({*same_rows, update_id})}
    return revalidated[update_id]


def _revalidate(services: Services, partition: Partition, update_id: str) -> Update:
    recorded = _recorded(services, partition, update_id)
    output = _built_alone(services, partition, update_id)
    if output is None:
        return _revalidated(services, recorded)
    reconcile.reconcile(services, output=output)
    with alone(services, output) as run_id:
        _refuse_read_again(services, output, recorded)
        _refuse_passed(services, recorded)
        return _revalidated(services, recorded, run_id)


def _revalidated(services: Services, recorded: Update, run_id: str | None = None) -> Update:
    partition, update_id = recorded.partition, recorded.id
    board = services.board_of(partition.feed)
    write.revalidate(board, recorded)
    services.on_step("valid on the blackboard")
    update = read.named(board, partition, update_id)
    with services.ledger.change() as connection:
        row = updates.find(connection, partition, update_id)
        if row and row.state == updates.INVALIDATED:
            update_changes.publish(connection, partition, update_id, services.now(), reason=None)
        if run_id:
            runs.end(connection, run_id, updates.PUBLISHED, services.now(), None)
    return update


def _refuse_passed(services: Services, recorded: Update) -> None:
    """Raise NotRevalidated if a later increment, or a later compaction, extends an earlier update.

    It lacks the rows of this update.
    """
    with services.ledger.read() as connection:
        later = increment_base.beside(connection, recorded.partition, recorded.id)
        is_compacted = later in compacted_partitions.replaced_updates(connection, recorded.partition)
    if later and is_compacted:
        raise NotRevalidated(
            f"{recorded.partition} {recorded.id}: readers would still get {later}, which is newer: it has the rows of "
            f"an older update. If these are wrong, invalidate {later} first."
        )
    if later:
        raise NotRevalidated(
            f"{recorded.partition} {recorded.id}: {later} is a later increment of an earlier update: readers get "
            "that increment, and the rows of this update are read again. Nothing needs to be done."
        )


def _built_alone(services: Services, partition: Partition, update_id: str) -> Partition | None:
    """Return the partition that no run may build during the call: it holds the batch, or its updates have bases.

    Return None if there is no such partition.
    """
    with services.ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        output = updates.output_of(connection, row) if row else partition
        return output if output != partition or increment_base.has_increments(connection, output) else None


def _refuse_read_again(services: Services, output: Partition, batch: Update) -> None:
    """Raise NotRevalidated if other batches have read the rows of a batch again. The rows would exist twice."""
    with services.ledger.read() as connection:
        own_pins = updates.consumed_by(connection, batch.partition, batch.id)
        read = batch_sets.read_by_batch(connection, output)
    overlapping = sorted(at.name for at, pins in read.items() if at != batch.partition and overlap(own_pins, pins))
    if overlapping:
        raise NotRevalidated(
            f"{batch.partition} {batch.id}: its input has been read again, by {overlapping[0]}: its rows "
            "would exist twice. Nothing needs to be done."
        )


def _recorded(services: Services, partition: Partition, update_id: str) -> Update:
    with services.ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        recorded = updates.recorded(connection, partition, update_id)
    if row is None:
        raise NotRevalidated(f"{partition} {update_id} is not in the ledger: expected an update that was valid once.")
    if row.state not in _WERE_VALID:
        raise NotRevalidated(
            f"{partition} {update_id} is {row.state} ({row.reason or 'no reason given'}): expected an update that was "
            "published and then invalidated. Build or publish it again."
        )
    if recorded is None:
        raise NotRevalidated(
            f"{partition} {update_id} was recorded without a list of its files, by an older version of feed_assets: "
            "there is nothing to compare with. Publish it again."
        )
    return recorded
