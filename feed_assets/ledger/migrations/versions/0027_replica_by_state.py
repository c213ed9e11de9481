"""An index of copies by their state, so that a tick finds missed copies without reading all rows of a place."""

from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Create the index."""
    op.create_index("replica_by_state", "replica", ["place", "state", "feed"])
