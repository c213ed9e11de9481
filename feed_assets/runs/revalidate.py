"""Take an invalidation back: the blackboard first, then the ledger."""

from feed_assets.core.errors import NotRevalidated
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.increments import overlap
from feed_assets.feeds import read, write
from feed_assets.ledger import runs, sets, updates
from feed_assets.runs import reconcile
from feed_assets.runs.alone import alone
from feed_assets.runs.services import Services

_WERE_VALID = (updates.PUBLISHED, updates.INVALIDATED)


def revalidate(services: Services, partition: Partition, update_id: str) -> Update:
    """Make an update valid again that was published and then invalidated, if its files are those of its publication.

    Raises NotRevalidated, and for a batch of ours AlreadyRunning while a run builds its partition, which may read the
    same rows. Killed between blackboard and ledger it is valid, and the ledger records that when it next is the newest
    one, or by the same call again.
    """
    recorded = _recorded(services, partition, update_id)
    output = _output_of(services, partition, update_id)
    if output == partition:
        return _revalidated(services, recorded)
    reconcile.reconcile(services, output=output)
    with alone(services, output) as run_id:
        _refuse_read_again(services, output, recorded)
        return _revalidated(services, recorded, run_id)


def _revalidated(services: Services, recorded: Update, run_id: str | None = None) -> Update:
    partition, update_id = recorded.partition, recorded.id
    write.revalidate(services.board, recorded)
    services.on_step("valid on the blackboard")
    found = read.named(services.board, partition, update_id)
    with services.ledger.change() as connection:
        row = updates.find(connection, partition, update_id)
        if row and row.state == updates.INVALIDATED:
            updates.publish(connection, partition, update_id, services.now(), reason=None)
        if run_id:
            runs.end(connection, run_id, updates.PUBLISHED, services.now(), None)
    return found


def _output_of(services: Services, partition: Partition, update_id: str) -> Partition:
    """The partition that a run of ours builds: of one of its batches the one that holds it."""
    with services.ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        return updates.output_of(connection, row) if row else partition


def _refuse_read_again(services: Services, output: Partition, batch: Update) -> None:
    """Raise NotRevalidated for a batch whose rows others hold by now: they would be there twice."""
    with services.ledger.read() as connection:
        mine = updates.consumed_by(connection, batch.partition, batch.id)
        read = sets.read_by_batch(connection, output)
    others = sorted(at.name for at, pins in read.items() if at != batch.partition and overlap(mine, pins))
    if others:
        raise NotRevalidated(
            f"{batch.partition} {batch.id}: what it was made of has been read again, by {others[0]}: its rows would be "
            "there twice. Nothing is to be done."
        )


def _recorded(services: Services, partition: Partition, update_id: str) -> Update:
    with services.ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
        recorded = updates.recorded(connection, partition, update_id)
    if row is None:
        raise NotRevalidated(
            f"{partition} {update_id} is not in the ledger: expected an update that it saw valid once."
        )
    if row.state not in _WERE_VALID:
        raise NotRevalidated(
            f"{partition} {update_id} is {row.state} ({row.reason or 'no reason given'}): expected one that was "
            "published and then invalidated. Build or publish it again."
        )
    if recorded is None:
        raise NotRevalidated(
            f"{partition} {update_id} was recorded without a list of its files, by an older version of feed_assets: "
            "nothing to compare with. Publish it again."
        )
    return recorded
