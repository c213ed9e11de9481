"""Quality that spreads, waivers, closures, profiles, and the verdict that asked for a run.

The view is replaced, which keeps the grants of roles. SQLite has no roles, and creates it again.
"""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0008"
down_revision = "0007"

_END = """
    (SELECT reached."end" FROM "window" AS reached WHERE reached.dataset = of_window.dataset
        AND reached.sub_partition = of_window.sub_partition AND reached.grain = of_window.grain
        AND reached."key" = watermark.{name}) AS {name}"""

_WINDOWS = f"""
SELECT of_window.dataset AS dataset, of_window.sub_partition AS sub_partition, of_window.grain AS grain,
    of_window."key" AS "partition", of_window.start AS start, of_window."end" AS "end",
    of_window.state IN ('complete', 'complete_with_issue', 'backfilled') AS complete,
    of_window.state NOT IN ('complete_with_issue', 'invalid') AND of_window.issue IS NULL
        AND of_window.stale IS NULL AND of_window.held IS NULL AND of_window.marked IS NULL AS good,
    substr('00000000000000000000' || of_window.changed, length(CAST(of_window.changed AS VARCHAR)) + 1) AS version,
    {_END.format(name="contiguous")}, {_END.format(name="latest")}
FROM "window" AS of_window LEFT JOIN watermark ON watermark.dataset = of_window.dataset
    AND watermark.sub_partition = of_window.sub_partition AND watermark.grain = of_window.grain
"""  # noqa: S608 (no value of anybody's)

_PARTITIONS = """
SELECT newest.feed, '', '', newest."partition", NULL, NULL, newest.version IS NOT NULL,
    NOT EXISTS (SELECT 1 FROM quality WHERE quality.feed = newest.feed
        AND quality."partition" = newest."partition" AND quality.state IN ('failed', 'stale', 'marked')),
    newest.version, NULL, NULL
FROM (SELECT feed, "partition", max(CASE WHEN state = 'published' THEN id END) AS version
    FROM update_ GROUP BY feed, "partition") AS newest
"""

_POSITION = "number of the log then: what changes later ends it"


def upgrade() -> None:
    """Add columns and tables, which are empty. Windows that were counted before have no digest."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    if is_sqlite:
        op.execute("DROP VIEW partition_state")
    _columns()
    _tables()
    replaced = "" if is_sqlite else "OR REPLACE "
    op.execute(f"CREATE {replaced}VIEW partition_state AS {_WINDOWS} UNION ALL {_PARTITIONS}")
    if op.get_bind().dialect.supports_comments:
        op.alter_column("change", "kind", comment="update, event, quality, window, run, closed, unchanged, counted")
        op.alter_column("quality", "state", comment="passed, warned, failed, stale or marked")


def _columns() -> None:
    without = "JSON: the required inputs that it went without; NULL: none"
    op.add_column("update_", sa.Column("without", TEXT, comment=without))
    audit = "JSON: by check the state and reason that its run found; NULL: none ran"
    op.add_column("update_", sa.Column("audit", TEXT, comment=audit))
    columns = "JSON: names and types of its columns; NULL if a run of ours did not write it"
    op.add_column("update_", sa.Column("columns", TEXT, comment=columns))
    why = "the verdict that asked for it, in words; NULL: somebody did by hand"
    op.add_column("run", sa.Column("why", TEXT, comment=why))
    op.add_column("window", sa.Column("marked", TEXT, comment="what is wrong with what it was made of"))
    op.add_column("window", sa.Column("flagged", TEXT, comment="what is wrong with a larger window that holds it"))
    stale = "why a check of it failed before it was made again; it has not run since"
    op.add_column("window", sa.Column("stale", TEXT, comment=stale))
    held = "what is wrong in it, where nothing else keeps it open"
    op.add_column("window", sa.Column("held", TEXT, comment=held))
    data = "digest of its reports"
    op.add_column("window", sa.Column("data", sa.BigInteger(), nullable=False, server_default="0", comment=data))
    told = "the same when its state changed last: the version of its data"
    op.add_column("window", sa.Column("told", sa.BigInteger(), comment=told))
    is_backfilling = sa.text("state = 'backfilling'")
    op.create_index(
        "window_backfilling", "window", ["dataset"], sqlite_where=is_backfilling, postgresql_where=is_backfilling
    )


def _tables() -> None:
    for name, about in (("waiver", "problem"), ("closure", None)):
        said = [sa.Column("problem", TEXT, nullable=False, comment="what was waived: another problem blocks again")]
        position = sa.Column("position", sa.BigInteger(), nullable=False, comment=_POSITION)
        final = None if about else "that is final: no run, no late data"
        op.create_table(
            name,
            sa.Column("feed", TEXT, primary_key=True),
            sa.Column("partition", TEXT, primary_key=True, comment=final),
            *(said if about else ()),
            sa.Column("why", TEXT, nullable=False),
            sa.Column("who", TEXT, nullable=False),
            sa.Column("at", UtcDateTime(), nullable=False),
            *([position] if about else ()),
        )
    op.create_table(
        "profile",
        sa.Column("feed", TEXT, primary_key=True),
        sa.Column("partition", TEXT, primary_key=True),
        sa.Column("position", TEXT, nullable=False, comment="update or transition whose data these are"),
        sa.Column("measures", TEXT, nullable=False, comment="JSON: numbers by name"),
        sa.Column("at", UtcDateTime(), nullable=False),
    )
