"""Ledger facts about attempts whose update ids are claimed on the blackboard."""

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.core.orphans import AttemptStatus, KnownAttempt
from feed_assets.ledger import runs, updates
from feed_assets.ledger.tables import run, update

_STATUS = {
    updates.CLAIMED: AttemptStatus.OPEN,
    updates.ABANDONED: AttemptStatus.GIVEN_UP,
    updates.REFUSED: AttemptStatus.GIVEN_UP,
}


def attempt(connection: sa.Connection, partition: Partition, update_id: str) -> KnownAttempt:
    """Return the attempt that wrote an update, from the states of the update and its run. Cost: one index lookup."""
    query = sa.select(update.c.state, update.c.reason, run.c.state.label("run_state"), run.c.ended)
    query = query.select_from(sa.outerjoin(update, run, run.c.id == update.c.run))
    row = connection.execute(query.where(updates.is_(partition, update_id))).first()
    if row is None:
        return KnownAttempt()
    status = AttemptStatus.OPEN if row.run_state == runs.RUNNING else _STATUS.get(row.state, AttemptStatus.DONE)
    return KnownAttempt(status, row.ended, row.reason)


def claimed_by(connection: sa.Connection, run_id: str) -> KnownAttempt:
    """Return the attempt of a run that claimed an id only on the blackboard.

    The run may have been killed before it recorded the claim in the ledger.
    """
    row = connection.execute(sa.select(run.c.state, run.c.ended).where(run.c.id == run_id)).first()
    return (
        KnownAttempt(AttemptStatus.OPEN if row.state == runs.RUNNING else AttemptStatus.UNKNOWN, row.ended)
        if row
        else KnownAttempt()
    )
