"""The view `replica_state`: which data centers have the newest update of a partition (docs/replication.md)."""

from alembic import op

revision = "0026"
down_revision = "0025"

_VIEW = """
CREATE VIEW replica_state AS
SELECT place.place AS data_center, newest.feed AS dataset, newest."partition" AS "partition", newest.version AS version,
    copy.at IS NOT NULL AS complete, copy.since AS published, copy.at AS copied
FROM (SELECT DISTINCT place, feed FROM replica UNION SELECT DISTINCT place, feed FROM replica_task) AS place
JOIN (SELECT feed, "partition", max(id) AS version FROM update_ WHERE state = 'published' GROUP BY feed, "partition")
    AS newest ON newest.feed = place.feed
LEFT JOIN replica AS copy ON copy.place = place.place AND copy.feed = newest.feed
    AND copy."partition" = newest."partition" AND copy.id = newest.version AND copy.state = 'published'
"""


def upgrade() -> None:
    """Create the view."""
    op.execute(_VIEW)
