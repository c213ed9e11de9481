"""Deliveries of changes to subscriptions, and whose turn it is to deliver."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "delivery",
        sa.Column("subscription", TEXT, nullable=False),
        sa.Column("lane", TEXT, nullable=False, comment="partition or window; '' if one call serves all changes"),
        sa.Column("sequence", sa.BigInteger(), nullable=False, comment="number of the change in the log"),
        sa.Column("event", TEXT, nullable=False, comment="JSON: the CloudEvent"),
        sa.Column("due", UtcDateTime(), nullable=False, comment="when it is tried next"),
        sa.Column("tries", sa.Integer(), nullable=False, comment="number of failed tries in a row, with outages"),
        sa.Column("refusals", sa.Integer(), nullable=False, comment="number of refusals"),
        sa.Column("error", TEXT, comment="why the last try failed; NULL before the first try"),
        sa.Column("is_down", sa.Boolean(), nullable=False, comment="true if the target did not answer the last try"),
        sa.Column(
            "is_dead", sa.Boolean(), nullable=False, comment="true if it, and its lane with it, waits for a person"
        ),
        sa.PrimaryKeyConstraint("subscription", "lane", "sequence"),
    )
    op.create_table(
        "delivery_turn",
        sa.Column("subscription", TEXT, nullable=False),
        sa.Column("holder", TEXT, nullable=False, comment="the process that delivers"),
        sa.Column("until", UtcDateTime(), nullable=False, comment="when another process may deliver"),
        sa.PrimaryKeyConstraint("subscription"),
    )
