"""What Dagster has of the log is a position that Dagster keeps. Updates say where they come from. Checks can warn."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0003"
down_revision = "0002"

_ORIGIN = "CASE WHEN run IS NULL THEN 'foreign' WHEN run = 'rebuilt' THEN 'rebuilt' ELSE 'run' END"


def upgrade() -> None:
    """An instance that was told of updates hears once more of the newest of each partition."""
    op.drop_index("update_to_tell", "update_")
    op.add_column("update_", sa.Column("origin", TEXT, comment="who writes it: foreign, run or rebuilt"))
    op.execute(f"UPDATE update_ SET origin = {_ORIGIN}")  # noqa: S608 (no value of anybody's)
    op.execute("UPDATE update_ SET run = NULL WHERE run = 'rebuilt'")
    with op.batch_alter_table("update_") as table:
        table.drop_column("told")
        table.alter_column("origin", existing_type=TEXT, nullable=False)
        whose = "run that writes it, if one of ours does and it is known"
        table.alter_column("run", existing_type=TEXT, existing_nullable=True, comment=whose)
    with op.batch_alter_table("quality") as table:
        states = "passed, warned or failed"
        table.alter_column("state", existing_type=TEXT, existing_nullable=False, comment=states)
