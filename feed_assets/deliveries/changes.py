"""Changes of a dataset that a subscription may be notified of: transitions of its updates and windows in the log."""

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.delivery_targets import Subscription
from feed_assets.core.feeds import Partition
from feed_assets.core.sub_partitions import ALL
from feed_assets.ledger import batch_partitions, increment_base, log, updates
from feed_assets.ledger.tables import change, consumed, update


@dataclass(frozen=True)
class DatasetChange:
    """One transition. `subject` is an update id, or the grain of a window; `at` is in UTC."""

    sequence: int
    partition: Partition
    transition: str
    at: datetime
    subject: str
    before: str | None = None
    why: str | None = None
    by: str | None = None


def changes_between(
    connection: sa.Connection, subscription: Subscription, after: int, upto: int, *, limit: int
) -> list[DatasetChange]:
    """Return the first `limit` changes for a subscription with log numbers in `(after, upto]`, in order.

    Changes of an update that change no rows are left out.
    """
    dataset = subscription.dataset
    # Without `concat`, SQLite would use the index of partitions, and read all changes of the dataset.
    condition = (change.c.feed.concat("") == str(dataset)) & (change.c.sequence > after) & (change.c.sequence <= upto)
    condition &= change.c.kind.in_([log.UPDATE, log.WINDOW]) & change.c.after.in_(sorted(subscription.transitions))
    condition &= (change.c.kind == log.UPDATE) | _is_chosen(subscription)
    condition &= ~_is_old_batch() & ~_is_compaction()
    query = sa.select(change).where(condition).order_by(change.c.sequence).limit(limit)
    return [
        DatasetChange(
            row.sequence,
            Partition(dataset, row.partition),
            row.after,
            row.at,
            row.subject,
            before=row.before,
            why=row.why,
            by=row.who,
        )
        for row in connection.execute(query)
    ]


def _is_chosen(subscription: Subscription) -> sa.ColumnElement[bool]:
    """Return the condition that a window has the grain and the level of a subscription."""
    is_chosen = sa.true() if subscription.grain is None else change.c.subject == subscription.grain
    if subscription.level is None:
        return is_chosen
    at = change.c.partition  # such as hour@2026-01-01-15:00/region=apac/country=sg
    if subscription.level == ALL:
        return is_chosen & ~at.contains("/")
    name = f"%/{subscription.level.replace('_', '!_')}="
    return is_chosen & at.like(f"{name}%", escape="!") & ~at.like(f"{name}%/%", escape="!")


def _is_old_batch() -> sa.ColumnElement[bool]:
    """Return the condition that a change only repeats an update's state, because it became known as a batch."""
    why = sa.func.coalesce(change.c.why, "")
    return (change.c.kind == log.UPDATE) & (change.c.before == change.c.after) & why.startswith(batch_partitions.JOINS)


def _is_compaction() -> sa.ColumnElement[bool]:
    """Return the condition that a change concerns an update that a compaction wrote, and changes no rows.

    Such an update has the rows of the updates it replaces. Its own changes are left out while the replaced update of a
    whole partition is valid, or if a later change invalidates that one, which is delivered instead. A range is
    different: it may have rows of a batch that is invalid now.
    """
    its_update = (update.c.feed == change.c.feed) & (update.c.partition == change.c.partition)
    its_update &= (update.c.id == change.c.subject) & (update.c.origin == updates.COMPACTED)
    is_new = sa.func.coalesce(change.c.before, updates.CLAIMED) == updates.CLAIMED
    replaced, later = update.alias(), change.alias()
    its_base = (consumed.c.feed == change.c.feed) & (consumed.c.partition == change.c.partition)
    its_base &= (consumed.c.id == change.c.subject) & increment_base.ADDS_TO
    its_base &= (replaced.c.feed == consumed.c.feed) & (replaced.c.partition == consumed.c.partition)
    its_base &= replaced.c.id == consumed.c.position
    is_later = (later.c.feed == change.c.feed) & (later.c.partition == change.c.partition)
    is_later &= (later.c.kind == log.UPDATE) & (later.c.subject == replaced.c.id) & (later.c.after == change.c.after)
    is_later &= later.c.sequence > change.c.sequence
    is_valid = (replaced.c.state == updates.PUBLISHED) | sa.exists().where(is_later).correlate(change, replaced)
    has_base = sa.exists().where(its_base, is_valid).correlate(change)
    return (change.c.kind == log.UPDATE) & sa.exists().where(its_update).correlate(change) & (is_new | has_base)
