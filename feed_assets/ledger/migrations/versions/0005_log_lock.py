"""Who appends to the log queues for a table, as an advisory lock can be taken by whoever may connect."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """It may be there: on PostgreSQL it is what keeps two processes from being here at once."""
    what = "there are no rows: who appends to the log locks the table"
    op.create_table("log_lock", sa.Column("n", sa.Integer, comment=what), if_not_exists=True)
