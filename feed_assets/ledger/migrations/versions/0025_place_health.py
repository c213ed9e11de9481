"""Data centers that are down, and the probes of their blackboards."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "place_health",
        sa.Column("place", TEXT, nullable=False, comment="data center, or primary"),
        sa.Column("down", TEXT, comment="why it gets no runs; NULL if it gets some"),
        sa.Column("down_by", TEXT, comment="who marked it down; NULL if its probes did"),
        sa.Column("since", UtcDateTime(), comment="when it was marked down or up"),
        sa.Column("looked", UtcDateTime(), comment="when its blackboard was probed last"),
        sa.Column("failures", sa.Integer(), nullable=False, comment="number of failed probes in a row"),
        sa.Column("failing_since", UtcDateTime(), comment="when the first of them failed"),
        sa.Column("successes", sa.Integer(), nullable=False, comment="number of good probes in a row while it is down"),
        sa.PrimaryKeyConstraint("place"),
    )
