"""Channels of alerts beside the log, webhook and mail: what each has delivered of an alert."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Create the table. A channel that is configured from now on delivers the open alerts."""
    op.create_table(
        "alert_said",
        sa.Column("name", TEXT, primary_key=True, comment="of the alert"),
        sa.Column("channel", TEXT, primary_key=True, comment="one of those that have no column there"),
        sa.Column("state", TEXT, nullable=False, comment="what was delivered last: opened, resolved or report"),
    )
