"""Comparison of the offsets that parts and sources report: which ones no part holds, and which several do."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0018"
down_revision = "0017"

_DATASET = ("dataset", "sub_partition")


def upgrade() -> None:
    """Compare what is reported from now on: a part that was reported before counts once it is reported again."""
    uncovered = "offsets between those that it names that no part holds, in words"
    op.add_column("window", sa.Column("uncovered", TEXT, comment=uncovered))
    op.add_column("window", sa.Column("doubled", TEXT, comment="offsets that several of its parts hold, in words"))
    # Existing reports name offsets that no table below has: these would be taken back without having been added.
    op.execute(sa.text("UPDATE report SET offsets = NULL WHERE offsets IS NOT NULL"))
    op.create_table(
        "coverage",
        *(sa.Column(name, TEXT, primary_key=True) for name in _DATASET),
        sa.Column("partition", TEXT, primary_key=True, comment="of a topic, as parts name it"),
        sa.Column("offset", sa.BigInteger(), primary_key=True, comment="from which on, up to the next row"),
        sa.Column("depth", sa.BigInteger(), nullable=False, comment="parts that hold these offsets; 0: none does"),
    )
    op.create_table(
        "window_offsets",
        *(sa.Column(name, TEXT, primary_key=True) for name in (*_DATASET, "grain", "key")),
        sa.Column("partition", TEXT, primary_key=True, comment="of a topic, as parts and sources name it"),
        sa.Column("low", sa.BigInteger(), nullable=False, comment="least offset that a part or source of it names"),
        sa.Column("high", sa.BigInteger(), nullable=False, comment="greatest one"),
        sa.Column("level", sa.Integer(), nullable=False, comment="of high - low: four bits each"),
        sa.Column("parts", TEXT, comment="JSON: at which offset how many more of its parts hold it, or fewer"),
        sa.Column("sources", TEXT, comment="JSON: the same by tier"),
    )
    reach = ["dataset", "sub_partition", "partition", "level", "low"]
    op.create_index("window_offsets_by_reach", "window_offsets", reach)
