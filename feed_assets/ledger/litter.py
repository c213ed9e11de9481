"""What the ledger knows of ids that were claimed on the blackboard."""

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.core.litter import Known, Standing
from feed_assets.ledger import runs, updates
from feed_assets.ledger.tables import run, update

_STANDINGS = {
    updates.CLAIMED: Standing.OPEN,
    updates.ABANDONED: Standing.GIVEN_UP,
    updates.REFUSED: Standing.GIVEN_UP,
}


def known(connection: sa.Connection, partition: Partition, update_id: str) -> Known:
    """The standing of an update and of the run that claimed it: one seek."""
    query = sa.select(update.c.state, update.c.reason, run.c.state.label("run_state"), run.c.ended)
    query = query.select_from(sa.outerjoin(update, run, run.c.id == update.c.run))
    row = connection.execute(query.where(updates.is_(partition, update_id))).first()
    if row is None:
        return Known()
    standing = _STANDINGS.get(row.state, Standing.DONE)
    return Known(standing, row.run_state == runs.RUNNING, row.ended, row.reason)


def claimed_by(connection: sa.Connection, run_id: str) -> Known:
    """An id that the ledger never heard of, claimed by this run: it may have been killed between the two."""
    row = connection.execute(sa.select(run.c.state, run.c.ended).where(run.c.id == run_id)).first()
    return Known(is_running=row.state == runs.RUNNING, ended=row.ended) if row else Known()
