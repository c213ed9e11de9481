"""Effect of a re-run on a partition, computed from the partition's updates and their inputs in the ledger."""

import json
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Partition
from feed_assets.core.rerun_report import Effect, UpdateFigures, reads
from feed_assets.ledger import updates
from feed_assets.ledger.log import INVALIDATED, PRUNED, PUBLISHED
from feed_assets.ledger.tables import update


def effect(connection: sa.Connection, partition: Partition, update_id: str | None = None) -> Effect | None:
    """Compare an update with the update before it. Return None if there is no update before it.

    By default, compare the newest valid update. Raise NoValidUpdate if the update does not exist.
    """
    after = _version(connection, partition, update.c.id == update_id if update_id else update.c.state == PUBLISHED)
    if after is None:
        raise NoValidUpdate(
            f"{partition} has no {f'update {update_id}' if update_id else 'valid update'} that the ledger knows: there "
            "is nothing to compare. `feed-assets explain` says why."
        )
    before = _version(connection, partition, update.c.id < after.id)
    if before is None:
        return None
    consumed, was = (updates.consumed_by(connection, partition, each.id) for each in (after, before))
    return Effect(partition, before, after, reads(consumed, was))


def _version(connection: sa.Connection, partition: Partition, which: sa.ColumnElement[bool]) -> UpdateFigures | None:
    """Return the figures of the partition's last update that was ever published and meets the condition."""
    columns = [update.c[name] for name in ("id", "size", "files", "records", "figures")]
    was_published = update.c.state.in_([PUBLISHED, INVALIDATED, PRUNED])
    query = (
        sa.select(*columns).where(updates.is_(partition), was_published, which).order_by(update.c.id.desc()).limit(1)
    )
    row = connection.execute(query).first()
    return _as_version(row) if row else None


def _as_version(row: sa.Row[Any]) -> UpdateFigures:
    return UpdateFigures(row.id, row.size or 0, row.files or 0, row.records, json.loads(row.figures or "{}"))
