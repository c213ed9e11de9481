"""An index to find what was built from an update."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Create the index: no row changes."""
    op.create_index("consumed_by_input", "consumed", ["input_feed", "input_partition", "position"])
