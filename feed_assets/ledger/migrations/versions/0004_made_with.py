"""Runs record what they were made with, so that a fix is a new start, and who asked for them."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns. Earlier attempts no longer count, as it is unknown what they were made with."""
    digest = "digest of the recipe and the Spark configuration; NULL before schema 0004"
    op.add_column("run", sa.Column("made_with", TEXT, comment=digest))
    op.add_column(
        "run", sa.Column("asked_by", TEXT, comment="who asked for it by hand; NULL: sensor, condition or schedule")
    )
    op.create_index("run_by_end", "run", ["ended"])
