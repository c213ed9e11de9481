"""Updates, consumed positions, events and inboxes, runs, what is due, alerts, cursors."""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "alert",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("opened", UtcDateTime(), nullable=False),
        sa.Column("resolved", UtcDateTime(), nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column(
            "log",
            TEXT,
            nullable=True,
            comment="what was delivered last to the log: opened or resolved; NULL if nothing was",
        ),
        sa.Column("webhook", TEXT, nullable=True, comment="the same of the webhook"),
        sa.Column("mail", TEXT, nullable=True, comment="the same of mail"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "batch",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False, comment="partition that holds it, if the feed is appendable"),
        sa.Column("key", TEXT, nullable=False, comment="its own key, one segment longer: `partition` of its updates"),
        sa.PrimaryKeyConstraint("feed", "partition", "key"),
    )
    op.create_table(
        "consumed",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False, comment="update that was built"),
        sa.Column("input_feed", TEXT, nullable=False),
        sa.Column("input_partition", TEXT, nullable=False),
        sa.Column("position", TEXT, nullable=False, comment="update of the input that was read"),
        sa.Column(
            "slice_from",
            TEXT,
            nullable=True,
            comment="of an event table: the marker after which it was read, up to position",
        ),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column(
            "is_input", sa.Boolean(), nullable=False, comment="false: written in the same run, named for lineage"
        ),
        sa.PrimaryKeyConstraint("feed", "partition", "id", "input_feed", "input_partition"),
    )
    op.create_table(
        "cursor",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "due",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column(
            "awaited",
            sa.Boolean(),
            nullable=False,
            comment="true: `feed|key` of an input's partition, not yet one",
        ),
        sa.Column("changed", sa.BigInteger(), nullable=False, comment="change that put it here: a later one wins"),
        sa.Column("since", UtcDateTime(), nullable=False),
        sa.Column("requested", sa.Integer(), nullable=False, comment="runs requested since that change"),
        sa.Column(
            "look_at", UtcDateTime(), nullable=True, comment="when to decide again; NULL: when something changes"
        ),
        sa.Column("state", TEXT, nullable=True, comment="the last verdict, for people"),
        sa.Column("reason", TEXT, nullable=True),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )
    op.create_index("due_next", "due", ["feed", "look_at"], unique=False)
    op.create_table(
        "event",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=True),
        sa.Column("source", TEXT, nullable=False, comment="event source that it was read from; '' for our own"),
        sa.Column("feed", TEXT, nullable=False, comment="table_name"),
        sa.Column("partition", TEXT, nullable=False, comment="partition_key"),
        sa.Column(
            "marker", TEXT, nullable=False, comment="sorts as the moments or versions do; of our feeds the update id"
        ),
        sa.Column(
            "previous",
            TEXT,
            nullable=True,
            comment="the marker before it in its table and partition: it covers what is between",
        ),
        sa.Column("event_marker", TEXT, nullable=False),
        sa.Column("correlation", TEXT, nullable=False),
        sa.Column("operation", TEXT, nullable=False),
        sa.Column("context", TEXT, nullable=False, comment="JSON"),
        sa.Column("flag", TEXT, nullable=True, comment="'out of order' if its marker came before its table's last one"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when the ledger heard of it"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("event_once", "event", ["feed", "partition", "marker", "correlation", "source"], unique=True)
    op.create_index("event_by_correlation", "event", ["correlation", "feed"], unique=False)
    op.create_index("event_by_table", "event", ["feed", "sequence"], unique=False)
    op.create_table(
        "event_reject",
        sa.Column("source", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False, comment="of the text: what is read again is kept once"),
        sa.Column("raw", TEXT, nullable=False, comment="the event as it was read"),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("source", "digest"),
    )
    op.create_table(
        "inbox",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False, comment="its partition that the event concerns"),
        sa.Column("sequence", sa.BigInteger(), nullable=False, autoincrement=False, comment="event, not yet consumed"),
        sa.Column("run", TEXT, nullable=True, comment="run that last claimed it"),
        sa.PrimaryKeyConstraint("feed", "partition", "sequence"),
    )
    op.create_index("inbox_of_run", "inbox", ["run"], unique=False)
    op.create_table(
        "marker",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("input_feed", TEXT, nullable=False),
        sa.Column("input_partition", TEXT, nullable=False),
        sa.Column("marker", TEXT, nullable=False, comment="the table's, up to which it was consumed"),
        sa.Column("event_marker", TEXT, nullable=False, comment="of the last event that was consumed"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "partition", "input_feed", "input_partition"),
    )
    op.create_table(
        "run",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False, comment="running, published, unchanged, refused, failed, abandoned"),
        sa.Column("pins", TEXT, nullable=True, comment="digest of what it read; NULL until it pinned"),
        sa.Column("dagster_run", TEXT, nullable=True),
        sa.Column("process", TEXT, nullable=False, comment="host, pid and start of the process"),
        sa.Column("started", UtcDateTime(), nullable=False),
        sa.Column("ended", UtcDateTime(), nullable=True),
        sa.Column("reason", TEXT, nullable=True),
        sa.Column("settled", sa.Boolean(), nullable=False, comment="a later publication: no longer an open attempt"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("run_by_state", "run", ["state"], unique=False)
    op.create_index("run_of_output", "run", ["feed", "partition", "settled"], unique=False)
    op.create_index(
        "run_one_at_a_time",
        "run",
        ["feed", "partition"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "update_",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column(
            "state",
            TEXT,
            nullable=False,
            comment="claimed, published, refused, abandoned, invalidated or pruned",
        ),
        sa.Column("run", TEXT, nullable=True, comment="run that writes it; NULL for a foreign producer's"),
        sa.Column(
            "version",
            TEXT,
            nullable=True,
            comment="data version: row digest of our own, files digest of foreign ones",
        ),
        sa.Column("size", sa.BigInteger(), nullable=True, comment="bytes of all files"),
        sa.Column("files", sa.BigInteger(), nullable=True),
        sa.Column("records", sa.BigInteger(), nullable=True),
        sa.Column("files_digest", TEXT, nullable=True, comment="digest of names, sizes and etags"),
        sa.Column("listing", TEXT, nullable=True, comment="the files as JSON: name, size, etag; NULL once pruned"),
        sa.Column("first", UtcDateTime(), nullable=True, comment="smallest event time"),
        sa.Column("last", UtcDateTime(), nullable=True, comment="largest event time"),
        sa.Column("code_version", TEXT, nullable=True),
        sa.Column(
            "correlation",
            TEXT,
            nullable=True,
            comment="correlation id of its write event; NULL if it was lost with a ledger",
        ),
        sa.Column(
            "parents", TEXT, nullable=True, comment="JSON: the correlation ids that went in, where there were several"
        ),
        sa.Column("reason", TEXT, nullable=True, comment="why it was refused, abandoned or invalidated"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when the ledger first heard of it"),
        sa.Column("changed", sa.BigInteger(), nullable=False, comment="commit order of its last change"),
        sa.Column("told", sa.BigInteger(), nullable=True, comment="sensor tick that told Dagster; NULL if none did"),
        sa.PrimaryKeyConstraint("feed", "partition", "id"),
        sa.UniqueConstraint("changed"),
    )
    op.create_index("update_by_change", "update_", ["feed", "changed"], unique=False)
    op.create_index("update_by_state", "update_", ["feed", "partition", "state", "id"], unique=False)
    op.create_index("update_of_run", "update_", ["run", "state"], unique=False)
    op.create_index("update_to_tell", "update_", ["state", "told"], unique=False)
    op.execute(sa.text("INSERT INTO cursor (name, value) VALUES ('change', '0')"))
