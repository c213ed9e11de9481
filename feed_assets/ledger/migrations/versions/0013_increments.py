"""Increments that are added to an update or are batches, and batches that are put together."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Change comments only: the columns may hold more than before."""
    if op.get_bind().dialect.supports_comments:
        op.alter_column("update_", "origin", comment="who writes it: foreign, run, rebuilt, intake or compacted")
        what = "false: written beside it, added to, or put together"
        op.alter_column("consumed", "is_input", comment=what)
