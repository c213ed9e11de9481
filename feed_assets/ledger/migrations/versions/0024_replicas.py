"""Copies of updates in data centers: tasks, copies, and the places themselves."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "replica_task",
        sa.Column("place", TEXT, nullable=False, comment="data center, by its name in the settings"),
        sa.Column(
            "lane", TEXT, nullable=False, comment="partition with its batches and rejects; its tasks have an order"
        ),
        sa.Column("sequence", sa.BigInteger(), nullable=False, comment="number of the change in the log"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False, comment="the update"),
        sa.Column("action", TEXT, nullable=False, comment="copy, withdraw or remove"),
        sa.Column(
            "files_digest", TEXT, comment="digest of names, sizes and etags of the files to copy; NULL if unknown"
        ),
        sa.Column("size", sa.BigInteger(), comment="bytes to copy"),
        sa.Column("since", UtcDateTime(), nullable=False, comment="when the source changed"),
        sa.Column("due", UtcDateTime(), nullable=False, comment="when it is tried next"),
        sa.Column("tries", sa.Integer(), nullable=False, comment="number of failed tries"),
        sa.Column("error", TEXT, comment="why the last try failed; NULL before the first try"),
        sa.PrimaryKeyConstraint("place", "lane", "sequence"),
    )
    op.create_table(
        "replica",
        sa.Column("place", TEXT, nullable=False, comment="data center"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False, comment="the update, with the same id as at the source"),
        sa.Column("state", TEXT, nullable=False, comment="copying, published, withdrawn, missed or removed"),
        sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags at the source"),
        sa.Column("size", sa.BigInteger(), nullable=False, comment="bytes of all files"),
        sa.Column(
            "files", TEXT, comment="JSON by name: size, checksum, etag at the source and in the place; NULL if removed"
        ),
        sa.Column("since", UtcDateTime(), nullable=False, comment="when the source changed"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when the place had this state"),
        sa.PrimaryKeyConstraint("place", "feed", "partition", "id"),
    )
    op.create_table(
        "replica_place",
        sa.Column("place", TEXT, nullable=False, comment="data center"),
        sa.Column("holder", TEXT, comment="the process that copies; NULL if none does"),
        sa.Column("until", UtcDateTime(), comment="when another process may copy"),
        sa.Column("paused", TEXT, comment="why nothing is copied; NULL if it is not paused"),
        sa.Column("paused_by", TEXT),
        sa.Column("paused_at", UtcDateTime()),
        sa.PrimaryKeyConstraint("place"),
    )
    op.create_index("replica_task_of_partition", "replica_task", ["feed", "partition"])
