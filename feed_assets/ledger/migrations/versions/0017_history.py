"""Columns of `due`: the end of the window of time, which orders history, and the bytes that a run would read."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import UtcDateTime

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add the columns. Outputs on the list count as new until their next change."""
    ends = "end of its window of time; NULL: it has none"
    op.add_column("due", sa.Column("ends", UtcDateTime(), comment=ends))
    size = "what its run would read, by the last verdict"
    op.add_column("due", sa.Column("bytes", sa.BigInteger(), comment=size))
