"""Prune partitions: decide from the blackboard and the ledger which updates to remove, and remove them.

The ledger is changed first. If a run later claims a pruned update, the run fails. If a prune is killed, the next prune
finishes it, whatever policy the next prune has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from feed_assets.core.batch_names import numbers_in, replaced
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.retention import Judgement, Retention, StoredUpdate, judge, kept_from
from feed_assets.feeds import read, removal
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import batch_partitions, compacted_partitions, pruned_updates, updates
from feed_assets.runs.orphan_sweep import forget_claims
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync


@dataclass(frozen=True)
class Pruned:
    """Decisions about the updates of a partition, newest first. `applied` is True if the removals were done."""

    partition: Partition
    judged: tuple[Judgement, ...]
    applied: bool

    @property
    def gone(self) -> tuple[Judgement, ...]:
        """Return the updates to remove."""
        return tuple(each for each in self.judged if each.goes)

    @property
    def brief(self) -> "Pruned":
        """Return the decisions, but leave out the updates that stay as expected."""
        return replace(self, judged=tuple(each for each in self.judged if each.goes or each.surprising))

    @property
    def lines(self) -> tuple[str, ...]:
        """Return lines about the updates to remove and the updates that stay unexpectedly, each with the reason."""
        at, goes = self.partition, "pruned" if self.applied else "would be pruned"
        return tuple(f"{at} {each.id} {goes if each.goes else 'stays'}: {each.reason}" for each in self.brief.judged)


def prune_feed(services: Services, feed: Feed, policy: Retention, *, apply: bool = False) -> Iterator[Pruned]:
    """Prune every partition of a feed, lazily and in order."""
    for partition in read.partitions(services.board_of(feed), feed):
        yield prune(services, partition, policy, apply=apply)


def prune(services: Services, partition: Partition, policy: Retention, *, apply: bool = False) -> Pruned:
    """Decide which updates of a partition to remove. With `apply`, remove them. The call may be killed and repeated."""
    stored = _stored_updates(services, partition)
    holder = holder_of(services, partition, services.board_of(partition.feed))
    judged = judge(stored, policy, services.now(), holder and holder.id)
    if not apply:
        return Pruned(partition, judged, applied=False)
    stays = _remove(services, partition, stored, {each.id: each.reason for each in judged if each.goes}, holder)
    forget_claims(services, partition)
    removal.tidy(services.board_of(partition.feed), partition)
    corrected = {
        update_id: {"goes": False, "reason": reason, "surprising": True} for update_id, reason in stays.items()
    }
    return Pruned(partition, tuple(replace(each, **corrected.get(each.id, {})) for each in judged), applied=True)


def holder_of(services: Services, partition: Partition, board: Blackboard) -> Update | None:
    """Return the valid compacted update on `board` that replaces this partition, if it is one of our batches.

    Return None if there is no such update.
    """
    if partition.parent is None or numbers_in(partition.name) is None:
        return None
    with services.ledger.read() as connection:
        held = batch_partitions.recorded_batches(connection, [partition.parent])[partition.parent]
        valid = updates.newest(connection, held)
    # Include this batch even if it was pruned before and is not valid any more.
    holder = replaced({*valid, partition}).get(partition)
    return read.latest(board, holder).update if holder else None


def _stored_updates(services: Services, partition: Partition) -> tuple[StoredUpdate, ...]:
    """Return the updates on the blackboard with the ledger's facts about them.

    The ledger is read last, so it has the claim of every update that was being written when the blackboard was listed.
    """
    stored = removal.find(services.board_of(partition.feed), partition)
    with services.ledger.read() as connection:
        recorded = pruned_updates.recorded_updates(connection, partition, stored[-1].id if stored else "")
        readers = pruned_updates.readers(connection, partition)
        replaced = compacted_partitions.replaced_updates(connection, partition)
    return tuple(_with(each, recorded.get(each.id), readers.get(each.id), replaced.get(each.id)) for each in stored)


def _with(
    stored: StoredUpdate, recorded: tuple[str, str | None] | None, reader: str | None, replaced: str | None
) -> StoredUpdate:
    state, run = recorded or (None, None)
    writer = run if state == updates.CLAIMED else None
    return replace(stored, reader=reader, writer=writer, given_up=state == updates.PRUNED, compacted_from=replaced)


def _remove(
    services: Services,
    partition: Partition,
    stored: tuple[StoredUpdate, ...],
    going: dict[str, str],
    holder: Update | None,
) -> dict[str, str]:
    """Remove updates, oldest first, so that the remaining ones have no gap.

    Return the reasons for updates that stay.
    """
    board = services.board_of(partition.feed)
    valid = {each.id: going[each.id] for each in stored if each.valid and each.id in going}
    pinned = pruned_updates.give_up(services.ledger, partition, valid, services.now())
    services.on_step("given up in the ledger")
    going = {update_id: reason for update_id, reason in going.items() if update_id not in pinned}
    if kept := kept_from(stored, going, holder and holder.id):
        removal.promise(board, partition, kept)
        services.on_step(f"promised from {kept}")
    stays = {update_id: f"run {reader} reads it" for update_id, reader in pinned.items()}
    for update_id in sorted(going):
        if not removal.remove(board, partition, update_id, holder and holder.partition):
            stays[update_id] = "the newer updates were invalidated meanwhile"
            sync(board, services.ledger, partition, services.now())
        elif update_id not in valid:
            pruned_updates.removed(services.ledger, partition, update_id)
        services.on_step(f"removed {update_id}")
    return stays
