"""The global state store: what is reported of datasets, and the windows and watermarks that follow from it."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables, which are empty. Updates that were published before are not counted."""
    counts = "JSON: its records by base window, where its feed is counted"
    op.add_column("update_", sa.Column("windows", TEXT, comment=counts))
    cluster = "Spark master or Connect server that ran it, without secrets"
    op.add_column("run", sa.Column("cluster", TEXT, comment=cluster))
    parameters = "JSON: what it was asked to do beside its partition; NULL: nothing"
    op.add_column("run", sa.Column("parameters", TEXT, comment=parameters))
    op.create_table(
        "dataset",
        sa.Column("name", TEXT, primary_key=True),
        sa.Column(
            "declared", TEXT, comment="JSON: grains, ratio, tiers, zone, sub-partitions; NULL: nothing is declared"
        ),
        sa.Column("schema", TEXT, comment="as it was reported last"),
        sa.Column("version", TEXT, comment="of the report that said so"),
        sa.Column("reported", sa.Boolean(), comment="whether its producer reports what was ingested"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when it was first heard of"),
    )
    _reports()
    _windows()
    if op.get_bind().dialect.supports_comments:
        op.alter_column("change", "kind", comment="update, event, quality, window, unchanged or counted")
        op.alter_column("change", "subject", comment="what changed: update id, marker, check or grain")


def _reports() -> None:
    op.create_table(
        "report",
        sa.Column("dataset", TEXT, primary_key=True),
        sa.Column("sub_partition", TEXT, primary_key=True, comment="region=apac/country=sg; '' is all"),
        sa.Column("tier", TEXT, primary_key=True, comment="source that counted; '': what was ingested"),
        sa.Column("part", TEXT, primary_key=True),
        sa.Column("version", TEXT, nullable=False, comment="the greatest wins; sorts as the versions do"),
        sa.Column("digest", TEXT, nullable=False, comment="of what it says: an equal version must say the same"),
        sa.Column("windows", TEXT, nullable=False, comment="JSON: start and records of each base window"),
        sa.Column("records", sa.BigInteger),
        sa.Column("first", UtcDateTime(), comment="least event time"),
        sa.Column("last", UtcDateTime(), comment="greatest event time"),
        sa.Column("offsets", TEXT, comment="JSON: offsets by partition of a topic"),
        sa.Column("snapshot", TEXT),
        sa.Column("batch", TEXT),
        sa.Column("schema", TEXT),
        sa.Column("by", TEXT, comment="who reported it"),
        sa.Column("at", UtcDateTime(), nullable=False),
    )


def _windows() -> None:
    key = "2026-01-01-15:00 in UTC; of a day its batch date"
    op.create_table(
        "window",
        sa.Column("dataset", TEXT, primary_key=True),
        sa.Column("sub_partition", TEXT, primary_key=True),
        sa.Column("grain", TEXT, primary_key=True),
        sa.Column("key", TEXT, primary_key=True, comment=key),
        sa.Column("start", UtcDateTime(), nullable=False),
        sa.Column("end", UtcDateTime(), nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False, comment="that were ingested"),
        sa.Column("parts", sa.BigInteger, nullable=False, comment="reports that name it, or a smaller window in it"),
        sa.Column("sources", TEXT, comment="JSON: of a base window by tier the records, and how many reports name it"),
        sa.Column(
            "state", TEXT, nullable=False, comment="open, complete, complete_with_issue, invalid, backfilling, …"
        ),
        sa.Column("changed", sa.BigInteger, comment="sequence of its last transition; NULL if it was always open"),
        sa.Column("since", UtcDateTime(), comment="when its state became what it is"),
        sa.Column("accepted", TEXT, comment="who accepted it as it is, and why"),
        sa.Column("issue", TEXT, comment="why a check of it failed"),
        sa.Column("folded", sa.Boolean, nullable=False, comment="its reports are one row: it takes no more"),
    )
    op.create_index("window_by_state", "window", ["dataset", "sub_partition", "grain", "state", "key"])
    op.create_table(
        "watermark",
        sa.Column("dataset", TEXT, primary_key=True),
        sa.Column("sub_partition", TEXT, primary_key=True),
        sa.Column("grain", TEXT, primary_key=True),
        sa.Column("first", TEXT, nullable=False, comment="key of the first window that is known"),
        sa.Column("contiguous", TEXT, comment="key of the last window before which no hole is"),
        sa.Column("reached", TEXT, comment="how far it was without a hole: up to there only what is open now is one"),
        sa.Column("latest", TEXT, comment="key of the last complete window"),
    )
