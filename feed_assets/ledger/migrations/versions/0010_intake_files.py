"""A registry of the files that were pulled from partners."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the registry: a file is pulled once, by its name; size and etag show whether it is another one."""
    op.create_table(
        "intake_file",
        sa.Column("feed", TEXT, primary_key=True, comment="that its batches are of"),
        sa.Column("name", TEXT, primary_key=True, comment="the file's key on the partner's blackboard"),
        sa.Column("size", sa.BigInteger, nullable=False, comment="bytes, as it was pulled or refused"),
        sa.Column("etag", TEXT, nullable=False),
        sa.Column("time", UtcDateTime, comment="start of the day or hour that its name says; NULL if it says none"),
        sa.Column("state", TEXT, nullable=False, comment="done; changed: kept as it was pulled; refused: never pulled"),
        sa.Column("reason", TEXT, comment="why it was refused, or what is under its name now"),
        sa.Column("batch", TEXT, comment="key of the batch that it is; NULL if it was never pulled"),
        sa.Column("update_id", TEXT, comment="the update of that batch"),
        sa.Column("at", UtcDateTime, nullable=False, comment="when it was pulled, refused, or seen to be another one"),
    )
    op.create_index("intake_file_by_content", "intake_file", ["feed", "time", "etag"])
    op.create_index("intake_file_by_state", "intake_file", ["feed", "state", "at"])
