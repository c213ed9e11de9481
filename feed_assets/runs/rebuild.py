"""Rebuild the ledger for our own feeds from the blackboard, as far as the protocol allows.

Each partition is one transaction, and updates already in the ledger are skipped. So after a kill, the next call
continues where the killed call ended.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from feed_assets.core.errors import NoValidUpdate, UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update, is_update_id, parse_update_id
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import Need
from feed_assets.feeds import read
from feed_assets.ledger import batch_partitions, updates
from feed_assets.ledger import recovery as ledger_rebuild
from feed_assets.ledger.recovery import RecoveredUpdate
from feed_assets.runs.services import Services

NeedOf = Callable[[Partition], Need | None]
"""A function that returns the needs of an output.

It returns None if no dataset has this partition (any more).
"""

NOT_KNOWN = (
    "runs and failed audits: they no longer block anything",
    "which invalid updates were refused, abandoned or invalidated, and why",
    "code versions: a partition that is materialized by hand is built again, even from equal inputs",
    "event times, and the row counts of all but the newest updates",
    "what was reported to Dagster: every update is reported again",
)
"""Facts that a rebuilt ledger lacks, because the blackboard does not have them."""


@dataclass(frozen=True)
class Assumed:
    """The pins that an update is assumed to be built from."""

    partition: Partition
    update_id: str
    pins: tuple[Pin, ...]


class NotKnown(NamedTuple):
    """An update that could not be recorded completely, and the reason."""

    partition: Partition
    update_id: str
    why: str


@dataclass
class Rebuilt:
    """The result of a rebuild: what was added, what was assumed, and what remains unknown."""

    added: list[RecoveredUpdate] = field(default_factory=list[RecoveredUpdate])
    assumed: list[Assumed] = field(default_factory=list[Assumed])
    unknown: list[NotKnown] = field(default_factory=list[NotKnown])
    unread: list[NotKnown] = field(default_factory=list[NotKnown])
    invalid: list[NotKnown] = field(default_factory=list[NotKnown])


def rebuild(
    services: Services,
    feeds: Sequence[Feed],
    need_of: NeedOf,
    *,
    rows: bool = False,
    trust: bool = False,
    appendable: Collection[Feed] = (),
) -> Rebuilt:
    """Record every valid update of our own feeds that the ledger lacks.

    `feeds` must have inputs before their consumers. With `rows`, Spark reads the newest update of each partition for
    its row count and data version. All other updates get the digest of their files as data version. With `trust`, an
    update is assumed to be built from the newest inputs with older ids than its own. Without `trust`, the inputs stay
    unknown, and the next tick builds the partition again. `need_of` returns None for rejects and for `appendable`
    feeds. For an appendable feed, the inputs of a batch are unknown, so the next run loads all rows.
    """
    rebuilt = Rebuilt()
    for feed in feeds:
        for partition in read.partitions(services.board_of(feed), feed):
            _add(services, partition, rebuilt, need_of if trust else None, rows)
            if feed in appendable:
                with services.ledger.change() as connection:
                    batch_partitions.join(connection, partition)
        _look_at_lineage(services, feed, need_of, rebuilt, trust)
    return rebuilt


def _add(services: Services, partition: Partition, rebuilt: Rebuilt, need_of: NeedOf | None, rows: bool) -> None:
    valid = [*_missing(services, partition, rebuilt)]
    if not valid:
        return
    with services.ledger.read() as connection:
        newest = updates.newest(connection, [partition]).get(partition)
    is_newest = newest is None or newest.id < valid[-1].id
    entries = [RecoveredUpdate(update) for update in valid]
    if rows and is_newest:
        entries[-1] = _with_rows(services, valid[-1], rebuilt)
    need = need_of(partition) if need_of and is_newest else None
    pins = _older_inputs(services, need, valid[-1].id) if need else ()
    ledger_rebuild.record(services.ledger, entries, pins, services.now())
    rebuilt.added += entries
    if pins:
        rebuilt.assumed.append(Assumed(partition, valid[-1].id, pins))


def _missing(services: Services, partition: Partition, rebuilt: Rebuilt) -> Iterator[Update]:
    """Yield the valid updates that are not in the ledger, oldest first."""
    with services.ledger.read() as connection:
        recorded_ids = ledger_rebuild.known_ids(connection, partition)
    board = services.board_of(partition.feed)
    for update_id in board.children(partition.path):
        if is_update_id(update_id) and update_id not in recorded_ids:
            try:
                yield read.named(board, partition, update_id)
            except NoValidUpdate as error:
                rebuilt.invalid.append(NotKnown(partition, update_id, str(error)))


def _with_rows(services: Services, update: Update, rebuilt: Rebuilt) -> RecoveredUpdate:
    try:
        records, version = services.maker().measure(services.board_of(update.partition.feed), update)
    except (UnreadableUpdate, UpdateChanged) as error:
        rebuilt.unread.append(NotKnown(update.partition, update.id, str(error)))
        return RecoveredUpdate(update)
    return RecoveredUpdate(update, records, version)


def _look_at_lineage(services: Services, feed: Feed, need_of: NeedOf, rebuilt: Rebuilt, trust: bool) -> None:
    """Complete the lineage of a feed's newest updates that have no inputs in the ledger.

    With `trust`, assume that such an update was made from the newest valid update of each input before it. Report its
    inputs as unknown without `trust`, or if a required input has no older valid update.
    """
    with services.ledger.read() as connection:
        rows = ledger_rebuild.without_lineage(connection, str(feed))
    for row in rows:
        if (need := need_of(row.partition)) is None:
            # No decision depends on the lineage of rejects, or of partitions that the dataset no longer has.
            continue
        pins = _older_inputs(services, need, row.id) if trust else ()
        if pins:
            ledger_rebuild.assume(services.ledger, row.partition, row.id, pins)
            rebuilt.assumed.append(Assumed(row.partition, row.id, pins))
        else:
            why = "an input has no older valid update" if trust else "it will be built again, unless --trust is given"
            rebuilt.unknown.append(NotKnown(row.partition, row.id, why))


def _older_inputs(services: Services, need: Need, update_id: str) -> tuple[Pin, ...]:
    """Return for each input the pin of its newest valid update that is older than this update of the output.

    Return () if a required input has no such update. An update of the same second does not count as older: it may have
    arrived after the run pinned its inputs.
    """
    moment = parse_update_id(update_id)
    pins: list[Pin] = []
    for partition in need.partitions:
        before = moment - timedelta(seconds=1) if moment else None
        older = read.latest(services.board_of(partition.feed), partition, before).update
        if older is None and partition in need.optional:
            continue
        if older is None:
            return ()
        with services.ledger.read() as connection:
            row = updates.find(connection, partition, older.id)
        version = row.version if row and row.version else older.files_digest
        pins.append(Pin(partition, older.id, version, older.size, len(older.files)))
    return tuple(pins)
