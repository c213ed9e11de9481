"""Dates of what runs read, and decisions about late data in the log."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns. Inputs that were read before have no date."""
    detail = "JSON: of late data what was weighed; NULL of other kinds"
    op.add_column("change", sa.Column("detail", TEXT, comment=detail))
    modified = "when the newest of its files was written, by the store's clock"
    op.add_column("update_", sa.Column("modified", UtcDateTime(), comment=modified))
    modified = "when the newest of these files was written; NULL if it is not known"
    op.add_column("consumed", sa.Column("modified", UtcDateTime(), comment=modified))
    is_late = sa.text("kind = 'late'")
    key = ["feed", "partition", "sequence"]
    op.create_index("change_late", "change", key, sqlite_where=is_late, postgresql_where=is_late)
    op.create_index("run_of_feed_by_end", "run", ["feed", "state", "ended"])
    if op.get_bind().dialect.supports_comments:
        op.alter_column("change", "kind", comment="update, event, quality, window, run, closed, unchanged, …, late")
