"""An increment is added to an update, or is a batch; of batches some are put together."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """The columns are as they were; what may be in them is more."""
    if op.get_bind().dialect.supports_comments:
        op.alter_column("update_", "origin", comment="who writes it: foreign, run, rebuilt, intake or compacted")
        what = "false: written beside it, added to, or put together"
        op.alter_column("consumed", "is_input", comment=what)
