"""The tables of the ledger, and the view `partition_state` that engines and catalogs read (docs/state.md).

A later migration that alters a table of the view drops the view first and creates it again. On PostgreSQL,
CREATE OR REPLACE VIEW keeps the grants of roles; SQLite has no roles.
"""

import sqlalchemy as sa
from alembic import op

from feed_assets.ledger.tables import TEXT, UtcDateTime

revision = "0020"
down_revision = None

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


def upgrade() -> None:
    """Create all tables. `log_lock` may exist: on PostgreSQL it lets only one process run the migration at a time."""
    _log()
    _updates()
    _events()
    _windows()
    _services()
    op.execute(f"CREATE VIEW partition_state AS {_WINDOWS} UNION ALL {_PARTITIONS}")


def _log() -> None:
    """Create the tables of the log and its readers, of the due list, and of pauses, closures and waivers."""
    op.create_table(
        "change",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="commit order"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column(
            "kind", TEXT, nullable=False, comment="update, event, quality, window, run, closed, unchanged, …, late"
        ),
        sa.Column("subject", TEXT, nullable=False, comment="what changed: update id, marker, check or grain"),
        sa.Column("before", TEXT, comment="the state before; NULL if it was unknown"),
        sa.Column("after", TEXT, comment="the state after"),
        sa.Column("why", TEXT),
        sa.Column("who", TEXT, comment="run, event source or person"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("detail", TEXT, comment="JSON: the facts of a decision about late data; NULL for other kinds"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index(
        "change_late",
        "change",
        ["feed", "partition", "sequence"],
        sqlite_where=sa.text("kind = 'late'"),
        postgresql_where=sa.text("kind = 'late'"),
    )
    op.create_index("change_of_partition", "change", ["feed", "partition", "sequence"])
    op.create_table(
        "log_lock",
        sa.Column("n", sa.Integer(), comment="always without rows: a writer of the log locks the table"),
        if_not_exists=True,
    )
    op.create_table(
        "subscription",
        sa.Column("subscriber", TEXT, nullable=False, comment="a consumer, or another reader of the log"),
        sa.Column("feed", TEXT, nullable=False, comment="the feed whose changes are read; '' for all feeds"),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="sequence of the last change that was read"),
        sa.PrimaryKeyConstraint("subscriber", "feed"),
    )
    op.create_table(
        "cursor",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "awaited",
        sa.Column("subscriber", TEXT, nullable=False, comment="consumer that has not received the change"),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False, comment="changed partition that cannot be mapped to outputs yet"),
        sa.Column("sequence", sa.BigInteger(), nullable=False, comment="first change that has not been fanned out"),
        sa.Column("look_at", UtcDateTime(), nullable=False),
        sa.Column("reason", TEXT, comment="error of the mapping; NULL if a dynamic partition does not exist yet"),
        sa.PrimaryKeyConstraint("subscriber", "feed", "partition"),
    )
    op.create_table(
        "due",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column(
            "changed",
            sa.BigInteger(),
            nullable=False,
            comment="number of the change that made it due; a later change replaces it",
        ),
        sa.Column("since", UtcDateTime(), nullable=False),
        sa.Column("requested", sa.Integer(), nullable=False, comment="number of runs requested since that change"),
        sa.Column("look_at", UtcDateTime(), comment="when to decide again; NULL: at the next change"),
        sa.Column("state", TEXT, comment="the last verdict, for people"),
        sa.Column("reason", TEXT),
        sa.Column("told", TEXT, comment="the reason that was last reported to Dagster"),
        sa.Column("ends", UtcDateTime(), comment="end of its time window; NULL if it has none"),
        sa.Column("bytes", sa.BigInteger(), comment="bytes that its run would read, by the last verdict"),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )
    op.create_index("due_next", "due", ["feed", "look_at"])
    op.create_index(
        "due_untold",
        "due",
        ["feed", "partition"],
        sqlite_where=sa.text("told IS DISTINCT FROM reason"),
        postgresql_where=sa.text("told IS DISTINCT FROM reason"),
    )
    op.create_table(
        "pause",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("who", TEXT),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed"),
    )
    op.create_table(
        "closure",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column(
            "partition", TEXT, nullable=False, comment="a final partition: no run builds it, and late data are ignored"
        ),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )
    op.create_table(
        "waiver",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("problem", TEXT, nullable=False, comment="the waived problem; another problem blocks again"),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column(
            "position",
            sa.BigInteger(),
            nullable=False,
            comment="number of the log at that time; a later change ends the waiver",
        ),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )


def _updates() -> None:
    """Create the tables of updates and their inputs, of runs, and of checks."""
    op.create_table(
        "update_",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column(
            "state", TEXT, nullable=False, comment="claimed, published, refused, abandoned, invalidated or pruned"
        ),
        sa.Column("run", TEXT, comment="our run that writes it; NULL if there is none, or it is unknown"),
        sa.Column("version", TEXT, comment="data version: a digest of rows for our updates, of files for foreign ones"),
        sa.Column("size", sa.BigInteger(), comment="bytes of all files"),
        sa.Column("files", sa.BigInteger()),
        sa.Column("records", sa.BigInteger()),
        sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags"),
        sa.Column("listing", TEXT, comment="JSON: name, size and etag of each file; NULL after a prune"),
        sa.Column("first", UtcDateTime(), comment="smallest event time"),
        sa.Column("last", UtcDateTime(), comment="largest event time"),
        sa.Column("code_version", TEXT),
        sa.Column("correlation", TEXT, comment="correlation id of its write event; NULL if a lost ledger had it"),
        sa.Column("parents", TEXT, comment="JSON: the correlation ids of its inputs, if there were several"),
        sa.Column("reason", TEXT, comment="why it was refused, abandoned or invalidated"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when the ledger first recorded it"),
        sa.Column("changed", sa.BigInteger(), nullable=False, comment="sequence of its last change"),
        sa.Column("origin", TEXT, nullable=False, comment="the writer: foreign, run, rebuilt, intake or compacted"),
        sa.Column("windows", TEXT, comment="JSON: number of records by base window, if its feed is counted"),
        sa.Column("without", TEXT, comment="JSON: the required inputs that were left out; NULL if none was"),
        sa.Column("audit", TEXT, comment="JSON: state and reason of each check of its run; NULL if none ran"),
        sa.Column("columns", TEXT, comment="JSON: names and types of the columns; NULL if no run of ours wrote it"),
        sa.Column("modified", UtcDateTime(), comment="when its newest file was written, by the clock of the store"),
        sa.Column("figures", TEXT, comment="JSON: key figures by name; NULL if there are none"),
        sa.PrimaryKeyConstraint("feed", "partition", "id"),
    )
    op.create_index("update_by_state", "update_", ["feed", "partition", "state", "id"])
    op.create_index("update_of_run", "update_", ["run", "state"])
    op.create_table(
        "batch",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column(
            "partition", TEXT, nullable=False, comment="partition that holds the batch, if the feed is appendable"
        ),
        sa.Column(
            "key", TEXT, nullable=False, comment="key of the batch, with one more segment: `partition` of its updates"
        ),
        sa.PrimaryKeyConstraint("feed", "partition", "key"),
    )
    op.create_table(
        "consumed",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False, comment="the update that was built"),
        sa.Column("input_feed", TEXT, nullable=False),
        sa.Column("input_partition", TEXT, nullable=False),
        sa.Column("position", TEXT, nullable=False, comment="the input's update that was read"),
        sa.Column("slice_from", TEXT, comment="for an event table: the marker after which it was read, up to position"),
        sa.Column("version", TEXT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column(
            "is_input",
            sa.Boolean(),
            nullable=False,
            comment="false: rejects written beside it, or an update that it extends or replaces",
        ),
        sa.Column("modified", UtcDateTime(), comment="when the newest of these files was written; NULL if unknown"),
        sa.PrimaryKeyConstraint("feed", "partition", "id", "input_feed", "input_partition"),
    )
    op.create_index("consumed_by_input", "consumed", ["input_feed", "input_partition", "position"])
    op.create_table(
        "run",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False, comment="running, published, unchanged, refused, failed, abandoned"),
        sa.Column("pins", TEXT, comment="digest of the pins; NULL before they are recorded"),
        sa.Column("dagster_run", TEXT),
        sa.Column("process", TEXT, nullable=False, comment="host, pid and start of the process"),
        sa.Column("started", UtcDateTime(), nullable=False),
        sa.Column("ended", UtcDateTime()),
        sa.Column("reason", TEXT),
        sa.Column("began", sa.BigInteger(), comment="number of the last change when it started"),
        sa.Column("finished", sa.BigInteger(), comment="number of the last change when it ended"),
        sa.Column(
            "made_with", TEXT, comment="digest of the recipe and the Spark configuration; NULL before schema 0004"
        ),
        sa.Column("asked_by", TEXT, comment="the person who requested it; NULL for a sensor, condition or schedule"),
        sa.Column("cluster", TEXT, comment="Spark master or Connect server of the run, without secrets"),
        sa.Column("parameters", TEXT, comment="JSON: parameters beside the partition; NULL if there are none"),
        sa.Column("why", TEXT, comment="the verdict that requested it, in words; NULL if a person requested it"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("run_by_end", "run", ["ended"])
    op.create_index("run_by_state", "run", ["state"])
    op.create_index("run_of_feed_by_end", "run", ["feed", "state", "ended"])
    op.create_index("run_of_output", "run", ["feed", "partition", "state", "began"])
    op.create_index(
        "run_one_at_a_time",
        "run",
        ["feed", "partition"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )
    op.create_table(
        "profile",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("position", TEXT, nullable=False, comment="update or transition that was measured"),
        sa.Column("measures", TEXT, nullable=False, comment="JSON: numbers by name"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )
    op.create_table(
        "quality",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("check", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False, comment="passed, warned, failed, stale or marked"),
        sa.Column("reason", TEXT),
        sa.Column("by", TEXT, comment="run or person that reported it"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.Column("version", TEXT, comment="the greatest reported version; NULL if none was reported"),
        sa.Column("digest", TEXT, comment="digest of the content of that version"),
        sa.PrimaryKeyConstraint("feed", "partition", "check"),
    )


def _events() -> None:
    """Create events and inboxes."""
    op.create_table(
        "event",
        sa.Column(
            "sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("source", TEXT, nullable=False, comment="event source of the event; '' for our own"),
        sa.Column("feed", TEXT, nullable=False, comment="table_name"),
        sa.Column("partition", TEXT, nullable=False, comment="partition_key"),
        sa.Column(
            "marker", TEXT, nullable=False, comment="sorts like the times or versions; the update id for our feeds"
        ),
        sa.Column(
            "previous",
            TEXT,
            comment="the preceding marker in its table and partition; the event covers the data between",
        ),
        sa.Column("start", TEXT, comment="the event covers updates after this marker; NULL: from the beginning"),
        sa.Column("event_marker", TEXT, nullable=False),
        sa.Column("correlation", TEXT, nullable=False),
        sa.Column("operation", TEXT, nullable=False),
        sa.Column("context", TEXT, nullable=False, comment="JSON"),
        sa.Column("flag", TEXT, comment="'out of order' if its marker is before the last one of its table"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when the ledger recorded it"),
        sa.PrimaryKeyConstraint("sequence"),
    )
    op.create_index("event_by_correlation", "event", ["correlation", "feed"])
    op.create_index("event_by_table", "event", ["feed", "sequence"])
    op.create_index("event_once", "event", ["feed", "partition", "marker", "correlation", "source"], unique=True)
    op.create_table(
        "event_reject",
        sa.Column("source", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False, comment="digest of the text; a text that is read again is kept once"),
        sa.Column("raw", TEXT, nullable=False, comment="the event as it was read"),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("source", "digest"),
    )
    op.create_table(
        "forgotten",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("marker", TEXT, nullable=False, comment="the greatest marker of the old events that were removed"),
        sa.Column("event_marker", TEXT, nullable=False, comment="the greatest event marker of the same events"),
        sa.PrimaryKeyConstraint("feed", "partition"),
    )
    op.create_table(
        "inbox",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False, comment="the consumer's partition that the event concerns"),
        sa.Column(
            "sequence",
            sa.BigInteger(),
            autoincrement=False,
            nullable=False,
            comment="number of an event that is not consumed yet",
        ),
        sa.Column("run", TEXT, comment="run that last claimed it"),
        sa.PrimaryKeyConstraint("feed", "partition", "sequence"),
    )
    op.create_index("inbox_of_run", "inbox", ["run"])
    op.create_table(
        "taken",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column(
            "sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="number of a consumed event"
        ),
        sa.Column("run", TEXT, nullable=False, comment="run whose update contains the event's data"),
        sa.PrimaryKeyConstraint("feed", "partition", "sequence", "run"),
    )
    op.create_index("taken_by_event", "taken", ["sequence"])
    op.create_index("taken_by_run", "taken", ["run"])
    op.create_table(
        "marker",
        sa.Column("feed", TEXT, nullable=False, comment="consumer"),
        sa.Column("partition", TEXT, nullable=False),
        sa.Column("input_feed", TEXT, nullable=False),
        sa.Column("input_partition", TEXT, nullable=False),
        sa.Column("marker", TEXT, nullable=False, comment="marker of the table up to which events were consumed"),
        sa.Column("event_marker", TEXT, nullable=False, comment="event marker of the last consumed event"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "partition", "input_feed", "input_partition"),
    )


def _windows() -> None:
    """Create the tables of windows and of the reports that are counted in them."""
    op.create_table(
        "dataset",
        sa.Column("name", TEXT, nullable=False),
        sa.Column(
            "declared", TEXT, comment="JSON: grains, ratio, tiers, zone, sub-partitions; NULL if nothing is declared"
        ),
        sa.Column("schema", TEXT, comment="the schema that was reported last"),
        sa.Column("version", TEXT, comment="version of the report with this schema"),
        sa.Column("reported", sa.Boolean(), comment="true if its producer reports ingested parts"),
        sa.Column("at", UtcDateTime(), nullable=False, comment="when it was first recorded"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "report",
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("sub_partition", TEXT, nullable=False, comment="region=apac/country=sg; '' is all"),
        sa.Column("tier", TEXT, nullable=False, comment="tier that counted; '' for ingested parts"),
        sa.Column("part", TEXT, nullable=False),
        sa.Column(
            "version",
            TEXT,
            nullable=False,
            comment="version of the report, which sorts like versions; the greatest replaces others",
        ),
        sa.Column(
            "digest", TEXT, nullable=False, comment="digest of the content; an equal version must have the same content"
        ),
        sa.Column("windows", TEXT, nullable=False, comment="JSON: start and records of each base window"),
        sa.Column("records", sa.BigInteger()),
        sa.Column("first", UtcDateTime(), comment="least event time"),
        sa.Column("last", UtcDateTime(), comment="greatest event time"),
        sa.Column("offsets", TEXT, comment="JSON: offsets by partition of a topic"),
        sa.Column("snapshot", TEXT),
        sa.Column("batch", TEXT),
        sa.Column("schema", TEXT),
        sa.Column("by", TEXT, comment="who reported it"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "sub_partition", "tier", "part"),
    )
    op.create_table(
        "window",
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("sub_partition", TEXT, nullable=False),
        sa.Column("grain", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False, comment="2026-01-01-15:00 in UTC; of a day its batch date"),
        sa.Column("start", UtcDateTime(), nullable=False),
        sa.Column("end", UtcDateTime(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False, comment="number of ingested records"),
        sa.Column(
            "parts",
            sa.BigInteger(),
            nullable=False,
            comment="number of reports about it, or about a smaller window in it",
        ),
        sa.Column("sources", TEXT, comment="JSON: for a base window, records and number of reports by tier"),
        sa.Column(
            "state", TEXT, nullable=False, comment="open, complete, complete_with_issue, invalid, backfilling, …"
        ),
        sa.Column("changed", sa.BigInteger(), comment="sequence of its last transition; NULL if it was always open"),
        sa.Column("since", UtcDateTime(), comment="when the window got its state"),
        sa.Column("accepted", TEXT, comment="who accepted the window as it is, and why"),
        sa.Column("issue", TEXT, comment="why a check of the window failed"),
        sa.Column("marked", TEXT, comment="problem of the window's inputs"),
        sa.Column("flagged", TEXT, comment="problem of a larger window that contains it"),
        sa.Column("stale", TEXT, comment="why a check failed before the window was made again; it has not run since"),
        sa.Column("held", TEXT, comment="problem in the window, if nothing else keeps it open"),
        sa.Column(
            "folded",
            sa.Boolean(),
            nullable=False,
            comment="true if its reports were merged into one row; it takes no more reports",
        ),
        sa.Column("data", sa.BigInteger(), server_default="0", nullable=False, comment="digest of its reports"),
        sa.Column("told", sa.BigInteger(), comment="`data` at the last change of its state: the version of its data"),
        sa.Column("uncovered", TEXT, comment="missing offsets between its first and last offset, in words"),
        sa.Column("doubled", TEXT, comment="offsets that several of its parts have, in words"),
        sa.PrimaryKeyConstraint("dataset", "sub_partition", "grain", "key"),
    )
    op.create_index(
        "window_backfilling",
        "window",
        ["dataset"],
        sqlite_where=sa.text("state = 'backfilling'"),
        postgresql_where=sa.text("state = 'backfilling'"),
    )
    op.create_index("window_by_state", "window", ["dataset", "sub_partition", "grain", "state", "key"])
    op.create_table(
        "watermark",
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("sub_partition", TEXT, nullable=False),
        sa.Column("grain", TEXT, nullable=False),
        sa.Column("first", TEXT, nullable=False, comment="key of the first known window"),
        sa.Column("contiguous", TEXT, comment="key of the last window before the first hole"),
        sa.Column(
            "reached", TEXT, comment="the furthest value of `contiguous`; before it, only open windows are holes"
        ),
        sa.Column("latest", TEXT, comment="key of the last complete window"),
        sa.PrimaryKeyConstraint("dataset", "sub_partition", "grain"),
    )
    op.create_table(
        "coverage",
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("sub_partition", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False, comment="partition of a topic, as parts name it"),
        sa.Column(
            "offset", sa.BigInteger(), nullable=False, comment="first offset of a range that ends at the next row"
        ),
        sa.Column("depth", sa.BigInteger(), nullable=False, comment="number of parts that have these offsets"),
        sa.PrimaryKeyConstraint("dataset", "sub_partition", "partition", "offset"),
    )
    op.create_table(
        "window_offsets",
        sa.Column("dataset", TEXT, nullable=False),
        sa.Column("sub_partition", TEXT, nullable=False),
        sa.Column("grain", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("partition", TEXT, nullable=False, comment="partition of a topic, as parts and sources name it"),
        sa.Column("low", sa.BigInteger(), nullable=False, comment="least offset of its parts and sources"),
        sa.Column("high", sa.BigInteger(), nullable=False, comment="greatest offset of its parts and sources"),
        sa.Column("level", sa.Integer(), nullable=False, comment="size class of high - low, one for each four bits"),
        sa.Column("parts", TEXT, comment="JSON: changes in the number of its parts by offset"),
        sa.Column("sources", TEXT, comment="JSON: the same for each tier"),
        sa.PrimaryKeyConstraint("dataset", "sub_partition", "grain", "key", "partition"),
    )
    op.create_index(
        "window_offsets_by_reach", "window_offsets", ["dataset", "sub_partition", "partition", "level", "low"]
    )


def _services() -> None:
    """Create the tables of alerts, and of the keys, requests and files of partners."""
    op.create_table(
        "alert",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("opened", UtcDateTime(), nullable=False),
        sa.Column("resolved", UtcDateTime()),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("log", TEXT, comment="the state last written to the log: opened or resolved; NULL if none was"),
        sa.Column("webhook", TEXT, comment="the same for the webhook"),
        sa.Column("mail", TEXT, comment="the same for mail"),
        sa.Column("receivers", TEXT, comment="JSON: receivers beside those of the settings; NULL if there are none"),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "alert_said",
        sa.Column("name", TEXT, nullable=False, comment="name of the alert"),
        sa.Column("channel", TEXT, nullable=False, comment="a channel without a column in `alert`"),
        sa.Column("state", TEXT, nullable=False, comment="the state last delivered: opened, resolved or report"),
        sa.PrimaryKeyConstraint("name", "channel"),
    )
    op.create_table(
        "api_key",
        sa.Column("id", TEXT, nullable=False, comment="the public part of the key"),
        sa.Column("partner", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False, comment="SHA-256 of the key"),
        sa.Column("scopes", TEXT, nullable=False, comment="JSON: the feeds and event sources that its owner may write"),
        sa.Column("made", UtcDateTime(), nullable=False),
        sa.Column("ends", UtcDateTime(), comment="when it ends by revocation or rotation; NULL if it does not end"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("api_key_of_partner", "api_key", ["partner"])
    op.create_table(
        "idempotency",
        sa.Column("feed", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False, comment="Idempotency-Key of a request, as the partner chose it"),
        sa.Column("digest", TEXT, nullable=False, comment="digest of the body of its first request"),
        sa.Column(
            "receiver", TEXT, nullable=False, comment="receiver whose spool has the request until the answer is stored"
        ),
        sa.Column("answer", TEXT, comment="the answer; NULL until the events are published"),
        sa.Column("at", UtcDateTime(), nullable=False),
        sa.PrimaryKeyConstraint("feed", "key"),
    )
    op.create_index("idempotency_by_time", "idempotency", ["at"])
    op.create_table(
        "intake_file",
        sa.Column("feed", TEXT, nullable=False, comment="the feed of its batches"),
        sa.Column("name", TEXT, nullable=False, comment="key of the file on the partner's blackboard"),
        sa.Column("size", sa.BigInteger(), nullable=False, comment="bytes when it was pulled or refused"),
        sa.Column("etag", TEXT, nullable=False),
        sa.Column("time", UtcDateTime(), comment="start of the day or hour in its name; NULL if there is none"),
        sa.Column(
            "state", TEXT, nullable=False, comment="done; changed: the pulled content is kept; refused: never pulled"
        ),
        sa.Column("reason", TEXT, comment="why it was refused, or what has its name now"),
        sa.Column("batch", TEXT, comment="key of its batch; NULL if it was never pulled"),
        sa.Column("update_id", TEXT, comment="the update of that batch"),
        sa.Column(
            "at", UtcDateTime(), nullable=False, comment="when it was pulled or refused, or its change was found"
        ),
        sa.PrimaryKeyConstraint("feed", "name"),
    )
    op.create_index("intake_file_by_content", "intake_file", ["feed", "time", "etag"])
    op.create_index("intake_file_by_state", "intake_file", ["feed", "state", "at"])
