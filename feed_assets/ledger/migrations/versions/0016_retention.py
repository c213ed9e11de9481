"""Positions up to which old events were removed, and an index to find the consumers of an event."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create a table, which is empty until events are removed, and an index: no row changes."""
    op.create_table(
        "forgotten",
        sa.Column("feed", TEXT, primary_key=True),
        sa.Column("partition", TEXT, primary_key=True),
        sa.Column(
            "marker", TEXT, nullable=False, comment="the greatest of its events that were removed, as they were old"
        ),
        sa.Column("event_marker", TEXT, nullable=False, comment="the greatest of the same events"),
    )
    op.create_index("taken_by_event", "taken", ["sequence"])
