"""Reasons for waiting that Dagster has."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column. The reasons of now are reported once, with the next ticks."""
    op.add_column("due", sa.Column("told", TEXT, comment="the reason that Dagster was told last"))
    told, reason = sa.column("told", TEXT), sa.column("reason", TEXT)
    where = told.is_distinct_from(reason)
    op.create_index("due_untold", "due", ["feed", "partition"], sqlite_where=where, postgresql_where=where)
