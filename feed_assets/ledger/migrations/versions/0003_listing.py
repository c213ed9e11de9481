"""The files of each update, so that it can be told what differs before it is made valid again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; updates that the ledger knows already have no listing."""
    op.add_column(
        "update_", sa.Column("listing", sa.Text(), comment="the files as JSON: name, size, etag; NULL once pruned")
    )
