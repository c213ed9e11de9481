"""Key figures of updates, and receivers of reports."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns. Updates that were built before have no figures, and no reports."""
    op.add_column("update_", sa.Column("figures", TEXT, comment="JSON: its key figures by name; NULL: it has none"))
    to = "JSON: whom it is sent to beside those of the settings; NULL: nobody"
    op.add_column("alert", sa.Column("receivers", TEXT, comment=to))
