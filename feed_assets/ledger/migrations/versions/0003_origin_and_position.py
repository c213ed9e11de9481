"""Dagster keeps its own position in the log. Updates have an origin. Checks can warn."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0003"
down_revision = "0002"

_ORIGIN = "CASE WHEN run IS NULL THEN 'foreign' WHEN run = 'rebuilt' THEN 'rebuilt' ELSE 'run' END"


def upgrade() -> None:
    """Replace the column `told` by `origin`. Dagster gets the newest update of each partition once more."""
    op.drop_index("update_to_tell", "update_")
    op.add_column("update_", sa.Column("origin", TEXT, comment="who writes it: foreign, run or rebuilt"))
    op.execute(f"UPDATE update_ SET origin = {_ORIGIN}")  # noqa: S608 (no value of anybody's)
    op.execute("UPDATE update_ SET run = NULL WHERE run = 'rebuilt'")
    with op.batch_alter_table("update_") as table:
        table.drop_column("told")
        table.alter_column("origin", existing_type=TEXT, nullable=False)
        whose = "run that writes it, if one of ours does and it is known"
        table.alter_column("run", existing_type=TEXT, existing_nullable=True, comment=whose)
    _awaited_by_each_reader()
    with op.batch_alter_table("awaited") as table:
        table.alter_column(
            "subscriber", existing_type=TEXT, existing_nullable=False, comment="consumer that has not got it"
        )
    with op.batch_alter_table("quality") as table:
        states = "passed, warned or failed"
        table.alter_column("state", existing_type=TEXT, existing_nullable=False, comment=states)


def _awaited_by_each_reader() -> None:
    """Give each reader its own row of what all awaited: one of them may get it before another."""
    columns = "feed, partition, sequence, look_at, reason"
    of_all = f"SELECT subscription.subscriber, {', '.join(f'awaited.{name}' for name in columns.split(', '))}"
    joined = "FROM awaited JOIN subscription ON subscription.feed = awaited.feed WHERE awaited.subscriber = ''"
    known = "SELECT 1 FROM awaited AS mine WHERE mine.subscriber = subscription.subscriber"
    same = f"{known} AND mine.feed = awaited.feed AND mine.partition = awaited.partition"
    insert = f"INSERT INTO awaited (subscriber, {columns}) {of_all} {joined} AND NOT EXISTS ({same})"
    op.execute(insert)
    op.execute("DELETE FROM awaited WHERE subscriber = ''")
