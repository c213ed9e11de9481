"""Code locations that declare subscriptions, and what they declare."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "delivery_owner",
        sa.Column("subscription", TEXT, nullable=False),
        sa.Column("location", TEXT, nullable=False, comment="code location; '' if it has no name, such as in `run`"),
        sa.Column("declaration", TEXT, nullable=False, comment="the declaration, for comparison"),
        sa.Column(
            "seen",
            UtcDateTime(),
            nullable=False,
            comment="time of the last tick with this declaration, within half a minute",
        ),
        sa.PrimaryKeyConstraint("subscription"),
    )
