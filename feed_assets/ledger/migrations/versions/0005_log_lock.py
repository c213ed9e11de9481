"""A table to lock before appending to the log: an advisory lock can be taken by anyone who may connect."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table if it is missing: on PostgreSQL it keeps two processes from being here at once."""
    what = "there are no rows: who appends to the log locks the table"
    op.create_table("log_lock", sa.Column("n", sa.Integer, comment=what), if_not_exists=True)
