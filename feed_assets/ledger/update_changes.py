"""State changes of updates, with the events and checks that follow, in one transaction."""

import json
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.events import foreign_correlation
from feed_assets.core.feeds import Partition, Update
from feed_assets.ledger import batch_partitions, compacted_partitions, inbox, log, quality, replaced_updates
from feed_assets.ledger.announce import announce
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.log import INVALIDATED, PRUNED, PUBLISHED, Change
from feed_assets.ledger.tables import update
from feed_assets.ledger.updates import (
    ABANDONED,
    CLAIMED,
    COMPACTED,
    FOREIGN,
    LOGGED,
    NOT_THERE,
    REFUSED,
    UpdateRow,
    agrees,
    files_of,
    find,
    is_,
    newest,
    output_of,
)


def change(
    connection: sa.Connection, partition: Partition, update_id: str, state: str, now: datetime, **values: Any
) -> str | None:
    """Change the state of an update. Return the state before the change, or None if the update is not recorded.

    If the update is invalidated, the events that its run consumed return to the inbox, until it is revalidated.
    """
    before = find(connection, partition, update_id)
    if before:
        values |= {"state": state, "changed": _log(connection, before, state, values.get("reason"), now)}
        connection.execute(sa.update(update).where(is_(partition, update_id)).values(values))
    if before and before.run and state == INVALIDATED:
        replaced = compacted_partitions.replaced_by(connection, before)
        rows = [row for each in replaced if (row := find(connection, partition, each)) and row.state == PRUNED]
        # Of the updates that this one replaced, some were pruned. Nothing else has their rows, so their events return,
        # too.
        for run in [before.run, *(row.run for row in rows if row.run)]:
            inbox.give_back(connection, output_of(connection, before), run)
    return before.state if before else None


def _log(connection: sa.Connection, before: UpdateRow, state: str, why: str | None, now: datetime) -> int:
    """Append the new state of an update to the log, if it is one of the states that are logged.

    Return the number of the last change in the log.
    """
    if state not in LOGGED:
        return log.last(connection)
    return log.append(
        connection,
        [
            Change(
                before.partition,
                log.UPDATE,
                before.id,
                at=now,
                before=before.state,
                after=state,
                why=why,
                who=before.run,
            )
        ],
    )


def publish(connection: sa.Connection, partition: Partition, update_id: str, now: datetime, **values: Any) -> None:
    """Publish an update with its write event, and consume the events of its run."""
    before = newest(connection, [partition]).get(partition)
    was = change(connection, partition, update_id, PUBLISHED, now, **values)
    row = find(connection, partition, update_id)
    if row and row.origin == COMPACTED:
        return  # A compacted update needs no event or check result: what it replaces was published before.
    if row:
        announce(connection, row, now)
    if row and row.run:
        output = output_of(connection, row)
        is_other = output != partition or before is None or before.version != row.version
        _judge(connection, row, output, row.run, now, has_other_data=is_other)
        inbox.consume(connection, output, row.run, now)
    if before and was == CLAIMED:
        replaced_updates.made_again(connection, replaced_updates.Again(partition, update_id), now)


def _judge(
    connection: sa.Connection, row: UpdateRow, output: Partition, run_id: str, now: datetime, *, has_other_data: bool
) -> None:
    """Record the check results of a published run, and end the failures that earlier runs reported.

    If the run's data differ from the output's earlier data, other failed checks become stale.
    """
    audit = connection.execute(sa.select(update.c.audit).where(is_(row.partition, row.id))).scalar()
    quality.audited(connection, output, json.loads(audit or "{}"), run_id, now)
    quality.release(connection, [output], run_id, now)
    if has_other_data:
        quality.make_stale(connection, output, run_id, now)


def insert(
    connection: sa.Connection,
    partition: Partition,
    update_id: str,
    origin: str,
    state: str,
    at: datetime,
    **values: Any,
) -> None:
    """Record a new update. If it is published, record its write event, too."""
    key = {"feed": str(partition.feed), "partition": partition.key, "id": update_id}
    number, by, why = log.last(connection), values.get("run"), values.get("reason")
    if state in LOGGED:
        number = log.append(connection, [Change(partition, log.UPDATE, update_id, at=at, after=state, why=why, who=by)])
    values |= {"origin": origin, "state": state, "at": at, "changed": number}
    connection.execute(sa.insert(update).values({**key, **values}))
    row = find(connection, partition, update_id) if state == PUBLISHED else None
    if row:
        announce(connection, row, row.at)


def sync(
    ledger: Ledger,
    partition: Partition,
    valid: Update | None,
    reasons: dict[str, str],
    now: datetime,
    as_of: int,
    *,
    is_batch: bool = False,
) -> UpdateRow | None:
    """Record the newest valid update of a partition, which was just read from the blackboard.

    Newer published updates are invalidated, with the reason in `reasons`. Claimed updates are not touched. `as_of` is
    the number of the last change before the reading began. Updates with a later change are not touched. A new batch is
    recorded under its parent partition.
    """
    with ledger.read() as connection:
        recorded_row = newest(connection, [partition]).get(partition)
        if agrees(recorded_row, valid) and (
            recorded_row is None or not is_batch or batch_partitions.has_joined(connection, partition)
        ):
            return recorded_row
    with ledger.change() as connection:
        _invalidate_after(connection, partition, valid.id if valid else "", reasons=reasons, as_of=as_of, now=now)
        if valid is None:
            return None
        if is_batch and batch_partitions.join(connection, partition):
            _tell_of(connection, partition, now)
        _ingest(connection, valid, now, as_of)
        return find(connection, partition, valid.id)


def _tell_of(connection: sa.Connection, batch: Partition, now: datetime) -> None:
    """Log the update of a batch that is new in its partition, so that readers of the partition get this update."""
    if recorded_row := newest(connection, [batch]).get(batch):
        why = f"{batch_partitions.JOINS}{batch.parent}"
        log.append(
            connection,
            [
                Change(
                    batch,
                    log.UPDATE,
                    recorded_row.id,
                    at=now,
                    before=recorded_row.state,
                    after=recorded_row.state,
                    why=why,
                )
            ],
        )


def _invalidate_after(
    connection: sa.Connection, partition: Partition, update_id: str, reasons: dict[str, str], as_of: int, now: datetime
) -> None:
    newer = sa.select(update.c.id).where(is_(partition), update.c.state == PUBLISHED, update.c.id > update_id)
    for gone in connection.execute(newer.where(update.c.changed <= as_of)).scalars().all():
        reason = reasons.get(gone, NOT_THERE)
        change(connection, partition, gone, INVALIDATED, now, reason=reason)


def _ingest(connection: sa.Connection, valid: Update, now: datetime, as_of: int) -> None:
    recorded_row = find(connection, valid.partition, valid.id)
    if recorded_row and recorded_row.changed > as_of:
        return
    values = {"version": valid.files_digest, **files_of(valid)}
    if recorded_row is None:
        correlation = foreign_correlation(valid.partition, valid.id)
        insert(
            connection,
            valid.partition,
            valid.id,
            origin=FOREIGN,
            state=PUBLISHED,
            at=now,
            correlation=correlation,
            **values,
        )
    elif recorded_row.is_foreign and (recorded_row.state, recorded_row.version) != (PUBLISHED, valid.files_digest):
        other_data = {} if recorded_row.version == valid.files_digest else {"windows": None}
        publish(connection, valid.partition, valid.id, now, reason=None, **values, **other_data)
    elif recorded_row.state in (INVALIDATED, ABANDONED, REFUSED, PRUNED):
        missing_values = values if recorded_row.version is None else {}
        publish(connection, valid.partition, valid.id, now, reason=None, **missing_values)
