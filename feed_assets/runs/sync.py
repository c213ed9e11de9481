"""Record in the ledger which updates a partition has on the blackboard."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Partition, Update, parse_update_id
from feed_assets.core.inputs import SetInput, TableInput, UpdateInput
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import batch_sets, log, update_changes, updates
from feed_assets.ledger.database import Ledger
from feed_assets.runs.services import Services


def sync(
    board: Blackboard, ledger: Ledger, partition: Partition, now: datetime, *, is_batch: bool = False
) -> tuple[read.Reading, Pin | None]:
    """Read a partition's newest valid update and record it. Also record which newer updates are no longer valid."""
    with ledger.read() as connection:
        as_of, recorded = log.last(connection), updates.newest(connection, [partition]).get(partition)
    reading = read.latest(board, partition, known_id=recorded.id if recorded else None)
    return reading, record(ledger, reading, now, as_of, is_batch=is_batch)


def sync_one(board: Blackboard, ledger: Ledger, partition: Partition, update_id: str, now: datetime) -> None:
    """Record an update as invalid if it is not valid any more.

    `sync` alone would miss an update that is not the newest. For example, an update that later increments extend is not
    the newest. If the process is killed, repeat the call to correct the ledger.
    """
    sync(board, ledger, partition, now)
    try:
        read.named(board, partition, update_id)
    except NoValidUpdate as error:
        with ledger.change() as connection:
            row = updates.find(connection, partition, update_id)
            if row and row.state == updates.PUBLISHED:
                update_changes.change(connection, partition, update_id, updates.INVALIDATED, now, reason=str(error))


def sync_batches(
    board: Blackboard, ledger: Ledger, partition: Partition, now: datetime
) -> tuple[batch_set.SetReading, tuple[Pin, ...]]:
    """Read and record the newest valid update of every batch of a partition. Also record which batches are gone."""
    with ledger.read() as connection:
        as_of = log.last(connection)
        recorded = batch_sets.pins_of(connection, [partition])[partition]
    reading = batch_set.latest(board, partition)
    for gone in {pin.partition for pin in recorded} - {each.partition for each in reading.batches}:
        record(ledger, read.Reading(gone, None, ()), now, as_of)
    pins = [record(ledger, each, now, as_of, is_batch=True) for each in reading.batches]
    return reading, tuple(pin for pin in pins if pin)


def sync_needs(services: Services, needs: Iterable[Need]) -> list[batch_set.SetReading]:
    """Record the newest updates of outputs and their inputs. Return the batches that were read of appendable inputs."""
    needs = [*needs]
    inputs = {
        each
        for need in needs
        for each in need.inputs
        if isinstance(each, UpdateInput) and not isinstance(each, TableInput)
    }
    sets = {each.partition for each in inputs if isinstance(each, SetInput)}
    for partition in sorted({each.partition for each in inputs} - sets | {need.output for need in needs}):
        sync(services.board_of(partition.feed), services.ledger, partition, services.now())
    return [
        sync_batches(services.board_of(each.feed), services.ledger, each, services.now())[0] for each in sorted(sets)
    ]


def record(ledger: Ledger, reading: read.Reading, now: datetime, as_of: int, *, is_batch: bool = False) -> Pin | None:
    """Record what was read of a partition. Return the newest update's pin.

    `as_of` is the number of the last log change before the partition was read.
    """
    reasons = {skipped.id: skipped.reason for skipped in reading.skipped}
    row = update_changes.sync(
        ledger, reading.partition, reading.update, reasons=reasons, now=now, as_of=as_of, is_batch=is_batch
    )
    return row.pin if row and reading.update else None


def pin(services: Services, partition: Partition, update_id: str | None) -> tuple[Update, Pin]:
    """Return the update of an input that a run reads, and the pin that records which update was read.

    Without `update_id`, the update is the newest valid one.
    """
    reading, newest = sync(services.board_of(partition.feed), services.ledger, partition, services.now())
    if update_id is None or (newest and newest.update_id == update_id):
        update = read.require(reading)
        if newest is None:  # This cannot happen: if an update was read, its row was recorded.
            raise NoValidUpdate(f"{partition}: update {update.id} is not in the ledger. Start the run again.")
        return update, newest
    update = read.named(services.board_of(partition.feed), partition, update_id)
    return update, _pin_of(services, update)


def pin_batches(
    services: Services, partition: Partition, named: Mapping[Partition, str], *, only_named: bool = False
) -> list[tuple[Update, Pin]]:
    """Return the updates that a run reads of an appendable input: the newest valid update of every batch.

    With `only_named`, read only the named batches, if there are any.

    If `named` has an id for the partition, the id stands for a time: each batch is read as of that time. If it has an
    id for a batch, that update of the batch is read.
    """
    board = services.board_of(partition.feed)
    reading, newest = sync_batches(board, services.ledger, partition, services.now())
    if partition in named:
        reading = batch_set.latest(board, partition, _moment(partition, named[partition]))
    is_decided = only_named and any(batch.parent == partition for batch in named)
    chosen = {} if is_decided else {update.partition: update for update in reading.updates}
    for batch, update_id in named.items():
        if batch.parent == partition:
            chosen[batch] = read.named(board, batch, update_id)
    names = {batch.name for batch in chosen}
    for skipped in (left for left in reading.left_out if left.id not in names):
        services.on_step(f"{skipped.id} of {partition} is left out: {skipped.reason}")
    known_pins = {(pin.partition, pin.update_id): pin for pin in newest}
    pinned = [chosen[batch] for batch in sorted(chosen)] or batch_set.require(reading)
    return [(update, known_pins.get((update.partition, update.id)) or _pin_of(services, update)) for update in pinned]


def _moment(partition: Partition, update_id: str) -> datetime:
    if moment := parse_update_id(update_id):
        return moment
    raise NoValidUpdate(f"{partition}: {update_id!r} is no update id: expected an id whose time is the moment to read.")


def _pin_of(services: Services, update: Update) -> Pin:
    """Return the pin that records that a run read an update.

    Its version is from the ledger or, if unknown, from the files.
    """
    with services.ledger.read() as connection:
        row = updates.find(connection, update.partition, update.id)
    version = row.version if row and row.version else update.files_digest
    return Pin(update.partition, update.id, version, update.size, len(update.files), modified=update.modified)
