"""The batches of appendable feeds, by the partition that holds them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table, and fill it with every partition that the ledger knows already."""
    op.create_table(
        "batch",
        sa.Column("feed", sa.String(), nullable=False),
        sa.Column(
            "partition", sa.String(), nullable=False, comment="partition that holds it, if the feed is appendable"
        ),
        sa.Column(
            "key", sa.String(), nullable=False, comment="its own key, one segment longer: `partition` of its updates"
        ),
        sa.PrimaryKeyConstraint("feed", "partition", "key"),
    )
    batch = sa.table("batch", *(sa.column(name, sa.String) for name in ("feed", "partition", "key")))
    known = op.get_bind().execute(sa.text("SELECT DISTINCT feed, partition FROM update_ WHERE partition <> ''"))
    rows = [{"feed": feed, "partition": key.rpartition("/")[0], "key": key} for feed, key in known]
    if rows:
        op.bulk_insert(batch, rows)
