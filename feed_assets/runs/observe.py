"""Look at a partition on the blackboard, and let the ledger learn what is there."""

from datetime import datetime

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.positions import Pin
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.ledger.database import Ledger, last_change
from feed_assets.runs.workbench import Workbench


def observe(board: Blackboard, ledger: Ledger, partition: Partition, now: datetime) -> tuple[read.Reading, Pin | None]:
    """Read a partition's newest valid update and record it; newer ones that are no longer valid, too."""
    with ledger.read() as connection:
        as_of, known = last_change(connection), updates.newest(connection, partition)
    reading = read.latest(board, partition, known=known.id if known else None)
    reasons = {skipped.id: skipped.reason for skipped in reading.skipped}
    row = updates.observe(ledger, partition, reading.update, reasons, now, as_of)
    return reading, row.pin if row and reading.update else None


def pin(bench: Workbench, partition: Partition, update_id: str | None) -> tuple[Update, Pin]:
    """The update of an input that a run reads: the newest valid one, or the one named."""
    reading, newest = observe(bench.board, bench.ledger, partition, bench.now())
    if update_id is None or (newest and newest.update_id == update_id):
        found = read.require(reading)
        if newest is None:  # `require` has raised: a reading with an update has its row.
            raise NoValidUpdate(f"{partition}: update {found.id} is not in the ledger. Run it again.")
        return found, newest
    found = read.named(bench.board, partition, update_id)
    with bench.ledger.read() as connection:
        row = updates.find(connection, partition, update_id)
    version = row.version if row and row.version else found.files_digest
    return found, Pin(partition, found.id, version, found.size, len(found.files))
