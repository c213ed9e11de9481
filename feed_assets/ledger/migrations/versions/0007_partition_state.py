"""A view for engines and catalogs: what is complete, what is good, which version it is (docs/state.md).

Its tables cannot be altered while it exists: a later migration drops it first, and creates it again.
"""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT

revision = "0007"
down_revision = "0006"

_END = """
    (SELECT reached."end" FROM "window" AS reached WHERE reached.dataset = of_window.dataset
        AND reached.sub_partition = of_window.sub_partition AND reached.grain = of_window.grain
        AND reached."key" = watermark.{name}) AS {name}"""

_WINDOWS = f"""
SELECT of_window.dataset AS dataset, of_window.sub_partition AS sub_partition, of_window.grain AS grain,
    of_window."key" AS "partition", of_window.start AS start, of_window."end" AS "end",
    of_window.state IN ('complete', 'complete_with_issue', 'backfilled') AS complete,
    of_window.state NOT IN ('complete_with_issue', 'invalid') AND of_window.issue IS NULL AS good,
    substr('00000000000000000000' || of_window.changed, length(CAST(of_window.changed AS VARCHAR)) + 1) AS version,
    {_END.format(name="contiguous")}, {_END.format(name="latest")}
FROM "window" AS of_window LEFT JOIN watermark ON watermark.dataset = of_window.dataset
    AND watermark.sub_partition = of_window.sub_partition AND watermark.grain = of_window.grain
"""  # noqa: S608 (no value of anybody's)

_PARTITIONS = """
SELECT newest.feed, '', '', newest."partition", NULL, NULL, newest.version IS NOT NULL,
    NOT EXISTS (SELECT 1 FROM quality WHERE quality.feed = newest.feed
        AND quality."partition" = newest."partition" AND quality.state = 'failed'),
    newest.version, NULL, NULL
FROM (SELECT feed, "partition", max(CASE WHEN state = 'published' THEN id END) AS version
    FROM update_ GROUP BY feed, "partition") AS newest
"""


def upgrade() -> None:
    """Create the view that engines read: tables may change. The greatest version of a check counts, in any order."""
    greatest = "the greatest that was reported; NULL if none was"
    op.add_column("quality", sa.Column("version", TEXT, comment=greatest))
    op.add_column("quality", sa.Column("digest", TEXT, comment="of what that version says"))
    op.execute(f"CREATE VIEW partition_state AS {_WINDOWS} UNION ALL {_PARTITIONS}")
