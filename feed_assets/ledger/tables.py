"""The ledger's tables. Each change here needs a migration: a test compares the tables with the migrations."""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa


class UtcDateTime(sa.TypeDecorator[datetime]):
    """A timezone-aware moment, stored in UTC, even in databases without time zones."""

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Convert to UTC without a zone. Raise for a naive value, which is a bug."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone: times in feed_assets are timezone-aware.")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002
        """Add the zone UTC."""
        return value.replace(tzinfo=UTC) if value is not None else None


TEXT = sa.String().with_variant(sa.String(collation="C"), "postgresql")
"""A text that PostgreSQL orders by code points, as Python and SQLite do: all three compare positions and keys."""

metadata = sa.MetaData()

change = sa.Table(
    "change",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False, comment="commit order"),
    sa.Column("feed", TEXT, nullable=False),
    sa.Column("partition", TEXT, nullable=False),
    sa.Column("kind", TEXT, nullable=False, comment="update, event, quality, window, run, closed, unchanged, …, late"),
    sa.Column("subject", TEXT, nullable=False, comment="what changed: update id, marker, check or grain"),
    sa.Column("before", TEXT, comment="the state before; NULL if it was unknown"),
    sa.Column("after", TEXT, comment="the state after"),
    sa.Column("why", TEXT),
    sa.Column("who", TEXT, comment="run, event source or person"),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("detail", TEXT, comment="JSON: the facts of a decision about late data; NULL for other kinds"),
)
sa.Index("change_of_partition", change.c.feed, change.c.partition, change.c.sequence)

sa.Index(
    "change_late",
    change.c.feed,
    change.c.partition,
    change.c.sequence,
    sqlite_where=change.c.kind == "late",
    postgresql_where=change.c.kind == "late",
)

subscription = sa.Table(
    "subscription",
    metadata,
    sa.Column("subscriber", TEXT, primary_key=True, comment="a consumer, or another reader of the log"),
    sa.Column("feed", TEXT, primary_key=True, comment="the feed whose changes are read; '' for all feeds"),
    sa.Column("position", sa.BigInteger, nullable=False, comment="sequence of the last change that was read"),
)

quality = sa.Table(
    "quality",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("check", TEXT, primary_key=True),
    sa.Column("state", TEXT, nullable=False, comment="passed, warned, failed, stale or marked"),
    sa.Column("reason", TEXT),
    sa.Column("by", TEXT, comment="run or person that reported it"),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("version", TEXT, comment="the greatest reported version; NULL if none was reported"),
    sa.Column("digest", TEXT, comment="digest of the content of that version"),
)

waiver = sa.Table(
    "waiver",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("problem", TEXT, nullable=False, comment="the waived problem; another problem blocks again"),
    sa.Column("why", TEXT, nullable=False),
    sa.Column("who", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column(
        "position",
        sa.BigInteger,
        nullable=False,
        comment="number of the log at that time; a later change ends the waiver",
    ),
)

closure = sa.Table(
    "closure",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column(
        "partition", TEXT, primary_key=True, comment="a final partition: no run builds it, and late data are ignored"
    ),
    sa.Column("why", TEXT, nullable=False),
    sa.Column("who", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
)

profile = sa.Table(
    "profile",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("position", TEXT, nullable=False, comment="update or transition that was measured"),
    sa.Column("measures", TEXT, nullable=False, comment="JSON: numbers by name"),
    sa.Column("at", UtcDateTime, nullable=False),
)

pause = sa.Table(
    "pause",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("why", TEXT, nullable=False),
    sa.Column("who", TEXT),
    sa.Column("at", UtcDateTime, nullable=False),
)

awaited = sa.Table(
    "awaited",
    metadata,
    sa.Column("subscriber", TEXT, primary_key=True, comment="consumer that has not received the change"),
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="changed partition that cannot be mapped to outputs yet"),
    sa.Column("sequence", sa.BigInteger, nullable=False, comment="first change that has not been fanned out"),
    sa.Column("look_at", UtcDateTime, nullable=False),
    sa.Column("reason", TEXT, comment="error of the mapping; NULL if a dynamic partition does not exist yet"),
)

update = sa.Table(
    "update_",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("state", TEXT, nullable=False, comment="claimed, published, refused, abandoned, invalidated or pruned"),
    sa.Column("run", TEXT, comment="our run that writes it; NULL if there is none, or it is unknown"),
    sa.Column("version", TEXT, comment="data version: a digest of rows for our updates, of files for foreign ones"),
    sa.Column("size", sa.BigInteger, comment="bytes of all files"),
    sa.Column("files", sa.BigInteger),
    sa.Column("records", sa.BigInteger),
    sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags"),
    sa.Column("listing", TEXT, comment="JSON: name, size and etag of each file; NULL after a prune"),
    sa.Column("first", UtcDateTime, comment="smallest event time"),
    sa.Column("last", UtcDateTime, comment="largest event time"),
    sa.Column("code_version", TEXT),
    sa.Column("correlation", TEXT, comment="correlation id of its write event; NULL if a lost ledger had it"),
    sa.Column("parents", TEXT, comment="JSON: the correlation ids of its inputs, if there were several"),
    sa.Column("reason", TEXT, comment="why it was refused, abandoned or invalidated"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the ledger first recorded it"),
    sa.Column("changed", sa.BigInteger, nullable=False, comment="sequence of its last change"),
    sa.Column("origin", TEXT, nullable=False, comment="the writer: foreign, run, rebuilt, intake or compacted"),
    sa.Column("windows", TEXT, comment="JSON: number of records by base window, if its feed is counted"),
    sa.Column("without", TEXT, comment="JSON: the required inputs that were left out; NULL if none was"),
    sa.Column("audit", TEXT, comment="JSON: state and reason of each check of its run; NULL if none ran"),
    sa.Column("columns", TEXT, comment="JSON: names and types of the columns; NULL if no run of ours wrote it"),
    sa.Column("modified", UtcDateTime, comment="when its newest file was written, by the clock of the store"),
    sa.Column("figures", TEXT, comment="JSON: key figures by name; NULL if there are none"),
)
sa.Index("update_by_state", update.c.feed, update.c.partition, update.c.state, update.c.id)
sa.Index("update_of_run", update.c.run, update.c.state)

batch = sa.Table(
    "batch",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="partition that holds the batch, if the feed is appendable"),
    sa.Column(
        "key", TEXT, primary_key=True, comment="key of the batch, with one more segment: `partition` of its updates"
    ),
)

consumed = sa.Table(
    "consumed",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("id", TEXT, primary_key=True, comment="the update that was built"),
    sa.Column("input_feed", TEXT, primary_key=True),
    sa.Column("input_partition", TEXT, primary_key=True),
    sa.Column("position", TEXT, nullable=False, comment="the input's update that was read"),
    sa.Column("slice_from", TEXT, comment="for an event table: the marker after which it was read, up to position"),
    sa.Column("version", TEXT, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column(
        "is_input",
        sa.Boolean,
        nullable=False,
        comment="false: rejects written beside it, or an update that it extends or replaces",
    ),
    sa.Column("modified", UtcDateTime, comment="when the newest of these files was written; NULL if unknown"),
)
sa.Index("consumed_by_input", consumed.c.input_feed, consumed.c.input_partition, consumed.c.position)

run = sa.Table(
    "run",
    metadata,
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("feed", TEXT, nullable=False),
    sa.Column("partition", TEXT, nullable=False),
    sa.Column("state", TEXT, nullable=False, comment="running, published, unchanged, refused, failed, abandoned"),
    sa.Column("pins", TEXT, comment="digest of the pins; NULL before they are recorded"),
    sa.Column("dagster_run", TEXT),
    sa.Column("process", TEXT, nullable=False, comment="host, pid and start of the process"),
    sa.Column("started", UtcDateTime, nullable=False),
    sa.Column("ended", UtcDateTime),
    sa.Column("reason", TEXT),
    sa.Column("began", sa.BigInteger, comment="number of the last change when it started"),
    sa.Column("finished", sa.BigInteger, comment="number of the last change when it ended"),
    sa.Column("made_with", TEXT, comment="digest of the recipe and the Spark configuration; NULL before schema 0004"),
    sa.Column("asked_by", TEXT, comment="the person who requested it; NULL for a sensor, condition or schedule"),
    sa.Column("cluster", TEXT, comment="Spark master or Connect server of the run, without secrets"),
    sa.Column("parameters", TEXT, comment="JSON: parameters beside the partition; NULL if there are none"),
    sa.Column("why", TEXT, comment="the verdict that requested it, in words; NULL if a person requested it"),
    sa.Column("placed", TEXT, comment="its compute target, and why; NULL if none is configured"),
    sa.Column("cores", sa.BigInteger, comment="cores that the target gave it; NULL if no target did"),
)
sa.Index("run_of_output", run.c.feed, run.c.partition, run.c.state, run.c.began)
sa.Index("run_by_state", run.c.state)
sa.Index("run_by_end", run.c.ended)
sa.Index("run_of_feed_by_end", run.c.feed, run.c.state, run.c.ended)
sa.Index(
    "run_one_at_a_time",
    run.c.feed,
    run.c.partition,
    unique=True,
    sqlite_where=run.c.state == "running",
    postgresql_where=run.c.state == "running",
)

due = sa.Table(
    "due",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column(
        "changed",
        sa.BigInteger,
        nullable=False,
        comment="number of the change that made it due; a later change replaces it",
    ),
    sa.Column("since", UtcDateTime, nullable=False),
    sa.Column("requested", sa.Integer, nullable=False, comment="number of runs requested since that change"),
    sa.Column("look_at", UtcDateTime, comment="when to decide again; NULL: at the next change"),
    sa.Column("state", TEXT, comment="the last verdict, for people"),
    sa.Column("reason", TEXT),
    sa.Column("told", TEXT, comment="the reason that was last reported to Dagster"),
    sa.Column("ends", UtcDateTime, comment="end of its time window; NULL if it has none"),
    sa.Column("bytes", sa.BigInteger, comment="bytes that its run would read, by the last verdict"),
    sa.Column("allocation", TEXT, comment="id of the last row of `allocation` for its runs; the row may be removed"),
)
sa.Index("due_next", due.c.feed, due.c.look_at)
sa.Index(
    "due_of_allocation",
    due.c.allocation,
    sqlite_where=due.c.allocation.is_not(None),
    postgresql_where=due.c.allocation.is_not(None),
)
sa.Index(
    "due_untold",
    due.c.feed,
    due.c.partition,
    sqlite_where=due.c.told.is_distinct_from(due.c.reason),
    postgresql_where=due.c.told.is_distinct_from(due.c.reason),
)

event = sa.Table(
    "event",
    metadata,
    sa.Column(
        "sequence",
        sa.BigInteger().with_variant(sa.Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("source", TEXT, nullable=False, comment="event source of the event; '' for our own"),
    sa.Column("feed", TEXT, nullable=False, comment="table_name"),
    sa.Column("partition", TEXT, nullable=False, comment="partition_key"),
    sa.Column("marker", TEXT, nullable=False, comment="sorts like the times or versions; the update id for our feeds"),
    sa.Column(
        "previous", TEXT, comment="the preceding marker in its table and partition; the event covers the data between"
    ),
    sa.Column("start", TEXT, comment="the event covers updates after this marker; NULL: from the beginning"),
    sa.Column("event_marker", TEXT, nullable=False),
    sa.Column("correlation", TEXT, nullable=False),
    sa.Column("operation", TEXT, nullable=False),
    sa.Column("context", TEXT, nullable=False, comment="JSON"),
    sa.Column("flag", TEXT, comment="'out of order' if its marker is before the last one of its table"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the ledger recorded it"),
)
sa.Index(
    "event_once",
    event.c.feed,
    event.c.partition,
    event.c.marker,
    event.c.correlation,
    event.c.source,
    unique=True,
)
sa.Index("event_by_correlation", event.c.correlation, event.c.feed)
sa.Index("event_by_table", event.c.feed, event.c.sequence)

forgotten = sa.Table(
    "forgotten",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("marker", TEXT, nullable=False, comment="the greatest marker of the old events that were removed"),
    sa.Column("event_marker", TEXT, nullable=False, comment="the greatest event marker of the same events"),
)

event_reject = sa.Table(
    "event_reject",
    metadata,
    sa.Column("source", TEXT, primary_key=True),
    sa.Column("digest", TEXT, primary_key=True, comment="digest of the text; a text that is read again is kept once"),
    sa.Column("raw", TEXT, nullable=False, comment="the event as it was read"),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
)

intake_file = sa.Table(
    "intake_file",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="the feed of its batches"),
    sa.Column("name", TEXT, primary_key=True, comment="key of the file on the partner's blackboard"),
    sa.Column("size", sa.BigInteger, nullable=False, comment="bytes when it was pulled or refused"),
    sa.Column("etag", TEXT, nullable=False),
    sa.Column("time", UtcDateTime, comment="start of the day or hour in its name; NULL if there is none"),
    sa.Column(
        "state", TEXT, nullable=False, comment="done; changed: the pulled content is kept; refused: never pulled"
    ),
    sa.Column("reason", TEXT, comment="why it was refused, or what has its name now"),
    sa.Column("batch", TEXT, comment="key of its batch; NULL if it was never pulled"),
    sa.Column("update_id", TEXT, comment="the update of that batch"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when it was pulled or refused, or its change was found"),
)
sa.Index("intake_file_by_content", intake_file.c.feed, intake_file.c.time, intake_file.c.etag)
sa.Index("intake_file_by_state", intake_file.c.feed, intake_file.c.state, intake_file.c.at)

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("partition", TEXT, primary_key=True, comment="the consumer's partition that the event concerns"),
    sa.Column(
        "sequence",
        sa.BigInteger,
        primary_key=True,
        autoincrement=False,
        comment="number of an event that is not consumed yet",
    ),
    sa.Column("run", TEXT, comment="run that last claimed it"),
)
sa.Index("inbox_of_run", inbox.c.run)

taken_event = sa.Table(
    "taken",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False, comment="number of a consumed event"),
    sa.Column("run", TEXT, primary_key=True, comment="run whose update contains the event's data"),
)
sa.Index("taken_by_run", taken_event.c.run)
sa.Index("taken_by_event", taken_event.c.sequence)

marker = sa.Table(
    "marker",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("input_feed", TEXT, primary_key=True),
    sa.Column("input_partition", TEXT, primary_key=True),
    sa.Column("marker", TEXT, nullable=False, comment="marker of the table up to which events were consumed"),
    sa.Column("event_marker", TEXT, nullable=False, comment="event marker of the last consumed event"),
    sa.Column("at", UtcDateTime, nullable=False),
)

alert = sa.Table(
    "alert",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("opened", UtcDateTime, nullable=False),
    sa.Column("resolved", UtcDateTime),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("log", TEXT, comment="the state last written to the log: opened or resolved; NULL if none was"),
    sa.Column("webhook", TEXT, comment="the same for the webhook"),
    sa.Column("mail", TEXT, comment="the same for mail"),
    sa.Column("receivers", TEXT, comment="JSON: receivers beside those of the settings; NULL if there are none"),
)

alert_said = sa.Table(
    "alert_said",
    metadata,
    sa.Column("name", TEXT, primary_key=True, comment="name of the alert"),
    sa.Column("channel", TEXT, primary_key=True, comment="a channel without a column in `alert`"),
    sa.Column("state", TEXT, nullable=False, comment="the state last delivered: opened, resolved or report"),
)

log_lock = sa.Table(
    "log_lock",
    metadata,
    sa.Column("n", sa.Integer, comment="always without rows: a writer of the log locks the table"),
)

cursor = sa.Table(
    "cursor",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("value", TEXT, nullable=False),
)

dataset = sa.Table(
    "dataset",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column(
        "declared", TEXT, comment="JSON: grains, ratio, tiers, zone, sub-partitions; NULL if nothing is declared"
    ),
    sa.Column("schema", TEXT, comment="the schema that was reported last"),
    sa.Column("version", TEXT, comment="version of the report with this schema"),
    sa.Column("reported", sa.Boolean, comment="true if its producer reports ingested parts"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when it was first recorded"),
)

report = sa.Table(
    "report",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True, comment="region=apac/country=sg; '' is all"),
    sa.Column("tier", TEXT, primary_key=True, comment="tier that counted; '' for ingested parts"),
    sa.Column("part", TEXT, primary_key=True),
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
    sa.Column("records", sa.BigInteger),
    sa.Column("first", UtcDateTime, comment="least event time"),
    sa.Column("last", UtcDateTime, comment="greatest event time"),
    sa.Column("offsets", TEXT, comment="JSON: offsets by partition of a topic"),
    sa.Column("snapshot", TEXT),
    sa.Column("batch", TEXT),
    sa.Column("schema", TEXT),
    sa.Column("by", TEXT, comment="who reported it"),
    sa.Column("at", UtcDateTime, nullable=False),
)

window = sa.Table(
    "window",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("grain", TEXT, primary_key=True),
    sa.Column("key", TEXT, primary_key=True, comment="2026-01-01-15:00 in UTC; of a day its batch date"),
    sa.Column("start", UtcDateTime, nullable=False),
    sa.Column("end", UtcDateTime, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False, comment="number of ingested records"),
    sa.Column(
        "parts", sa.BigInteger, nullable=False, comment="number of reports about it, or about a smaller window in it"
    ),
    sa.Column("sources", TEXT, comment="JSON: for a base window, records and number of reports by tier"),
    sa.Column("state", TEXT, nullable=False, comment="open, complete, complete_with_issue, invalid, backfilling, …"),
    sa.Column("changed", sa.BigInteger, comment="sequence of its last transition; NULL if it was always open"),
    sa.Column("since", UtcDateTime, comment="when the window got its state"),
    sa.Column("accepted", TEXT, comment="who accepted the window as it is, and why"),
    sa.Column("issue", TEXT, comment="why a check of the window failed"),
    sa.Column("marked", TEXT, comment="problem of the window's inputs"),
    sa.Column("flagged", TEXT, comment="problem of a larger window that contains it"),
    sa.Column("stale", TEXT, comment="why a check failed before the window was made again; it has not run since"),
    sa.Column("held", TEXT, comment="problem in the window, if nothing else keeps it open"),
    sa.Column(
        "folded",
        sa.Boolean,
        nullable=False,
        comment="true if its reports were merged into one row; it takes no more reports",
    ),
    sa.Column("data", sa.BigInteger, nullable=False, server_default="0", comment="digest of its reports"),
    sa.Column("told", sa.BigInteger, comment="`data` at the last change of its state: the version of its data"),
    sa.Column("uncovered", TEXT, comment="missing offsets between its first and last offset, in words"),
    sa.Column("doubled", TEXT, comment="offsets that several of its parts have, in words"),
)
sa.Index("window_by_state", window.c.dataset, window.c.sub_partition, window.c.grain, window.c.state, window.c.key)
sa.Index(
    "window_backfilling",
    window.c.dataset,
    sqlite_where=window.c.state == "backfilling",
    postgresql_where=window.c.state == "backfilling",
)

watermark = sa.Table(
    "watermark",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("grain", TEXT, primary_key=True),
    sa.Column("first", TEXT, nullable=False, comment="key of the first known window"),
    sa.Column("contiguous", TEXT, comment="key of the last window before the first hole"),
    sa.Column("reached", TEXT, comment="the furthest value of `contiguous`; before it, only open windows are holes"),
    sa.Column("latest", TEXT, comment="key of the last complete window"),
)

coverage = sa.Table(
    "coverage",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="partition of a topic, as parts name it"),
    sa.Column("offset", sa.BigInteger, primary_key=True, comment="first offset of a range that ends at the next row"),
    sa.Column("depth", sa.BigInteger, nullable=False, comment="number of parts that have these offsets"),
)

window_offsets = sa.Table(
    "window_offsets",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("grain", TEXT, primary_key=True),
    sa.Column("key", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="partition of a topic, as parts and sources name it"),
    sa.Column("low", sa.BigInteger, nullable=False, comment="least offset of its parts and sources"),
    sa.Column("high", sa.BigInteger, nullable=False, comment="greatest offset of its parts and sources"),
    sa.Column("level", sa.Integer, nullable=False, comment="size class of high - low, one for each four bits"),
    sa.Column("parts", TEXT, comment="JSON: changes in the number of its parts by offset"),
    sa.Column("sources", TEXT, comment="JSON: the same for each tier"),
)
sa.Index(
    "window_offsets_by_reach",
    *(window_offsets.c[name] for name in ("dataset", "sub_partition", "partition", "level", "low")),
)

api_key = sa.Table(
    "api_key",
    metadata,
    sa.Column("id", TEXT, primary_key=True, comment="the public part of the key"),
    sa.Column("partner", TEXT, nullable=False),
    sa.Column("digest", TEXT, nullable=False, comment="SHA-256 of the key"),
    sa.Column("scopes", TEXT, nullable=False, comment="JSON: the feeds and event sources that its owner may write"),
    sa.Column("made", UtcDateTime, nullable=False),
    sa.Column("ends", UtcDateTime, comment="when it ends by revocation or rotation; NULL if it does not end"),
)
sa.Index("api_key_of_partner", api_key.c.partner)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("key", TEXT, primary_key=True, comment="Idempotency-Key of a request, as the partner chose it"),
    sa.Column("digest", TEXT, nullable=False, comment="digest of the body of its first request"),
    sa.Column(
        "receiver", TEXT, nullable=False, comment="receiver whose spool has the request until the answer is stored"
    ),
    sa.Column("answer", TEXT, comment="the answer; NULL until the events are published"),
    sa.Column("at", UtcDateTime, nullable=False),
)
sa.Index("idempotency_by_time", idempotency.c.at)

probe = sa.Table(
    "probe",
    metadata,
    sa.Column("target", TEXT, primary_key=True, comment="compute target, by its name in the settings"),
    sa.Column("asked", UtcDateTime, comment="when a process last began a probe"),
    sa.Column("at", UtcDateTime, comment="when the last answered probe began; NULL if none was answered"),
    sa.Column("cores", sa.BigInteger, comment="all cores of the target"),
    sa.Column("memory", sa.BigInteger, comment="all memory of the target, in bytes"),
    sa.Column("free_cores", sa.BigInteger),
    sa.Column("free_memory", sa.BigInteger),
    sa.Column("queued", sa.BigInteger, comment="number of applications that wait there"),
    sa.Column("offline", TEXT, comment="why it does not answer; NULL if it answers"),
    sa.Column("since", UtcDateTime, comment="since when it does not answer"),
    sa.Column("lost", UtcDateTime, comment="when a run last lost it; it gets no run for a while"),
    sa.Column("workers", TEXT, comment="JSON: cores, memory and free parts of each machine; NULL if unknown"),
    sa.Column("unstarted", TEXT, comment="dataset whose Spark last failed to start there; NULL after a start"),
)

allocation = sa.Table(
    "allocation",
    metadata,
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("target", TEXT, comment="compute target of a run; NULL if the request waits"),
    sa.Column("cores", sa.BigInteger, comment="cores of the run there; NULL if the request waits"),
    sa.Column("memory", sa.BigInteger, comment="memory of the run there, in bytes"),
    sa.Column("resources", TEXT, nullable=False, comment="JSON: the resources that its dataset needs"),
    sa.Column("history", sa.Boolean, nullable=False, comment="true if it comes after all new partitions"),
    sa.Column("output", TEXT, nullable=False, comment="first partition that the run builds"),
    sa.Column("since", UtcDateTime, nullable=False, comment="when the request began to wait"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the target was given, or the request was last checked"),
    sa.Column("targets", TEXT, nullable=False, comment="JSON: targets that the requesting process can use"),
    sa.Column("reason", TEXT, nullable=False, comment="why it has this target, or what it waits for"),
    sa.Column("dagster_run", TEXT, comment="Dagster run that uses the resources; NULL before it begins"),
    sa.Column("started", UtcDateTime, comment="when the run's Spark session had started"),
)

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("lane", TEXT, primary_key=True, comment="partition or window; '' if one call serves all changes"),
    sa.Column("sequence", sa.BigInteger, primary_key=True, comment="number of the change in the log"),
    sa.Column("event", TEXT, nullable=False, comment="JSON: the CloudEvent"),
    sa.Column("due", UtcDateTime, nullable=False, comment="when it is tried next"),
    sa.Column("tries", sa.Integer, nullable=False, comment="number of failed tries in a row, with outages"),
    sa.Column("refusals", sa.Integer, nullable=False, comment="number of refusals"),
    sa.Column("error", TEXT, comment="why the last try failed; NULL before the first try"),
    sa.Column("is_down", sa.Boolean, nullable=False, comment="true if the target did not answer the last try"),
    sa.Column("is_dead", sa.Boolean, nullable=False, comment="true if it, and its lane with it, waits for a person"),
)

delivery_turn = sa.Table(
    "delivery_turn",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("holder", TEXT, nullable=False, comment="the process that delivers"),
    sa.Column("until", UtcDateTime, nullable=False, comment="when another process may deliver"),
)

delivery_owner = sa.Table(
    "delivery_owner",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("location", TEXT, nullable=False, comment="code location; '' if it has no name, such as in `run`"),
    sa.Column("declaration", TEXT, nullable=False, comment="the declaration, for comparison"),
    sa.Column(
        "seen", UtcDateTime, nullable=False, comment="time of the last tick with this declaration, within half a minute"
    ),
)


replica_task = sa.Table(
    "replica_task",
    metadata,
    sa.Column("place", TEXT, primary_key=True, comment="data center, by its name in the settings"),
    sa.Column(
        "lane", TEXT, primary_key=True, comment="partition with its batches and rejects; its tasks have an order"
    ),
    sa.Column("sequence", sa.BigInteger, primary_key=True, comment="number of the change in the log"),
    sa.Column("feed", TEXT, nullable=False),
    sa.Column("partition", TEXT, nullable=False),
    sa.Column("id", TEXT, nullable=False, comment="the update"),
    sa.Column("action", TEXT, nullable=False, comment="copy, withdraw or remove"),
    sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags of the files to copy; NULL if unknown"),
    sa.Column("size", sa.BigInteger, comment="bytes to copy"),
    sa.Column("since", UtcDateTime, nullable=False, comment="when the source changed"),
    sa.Column("due", UtcDateTime, nullable=False, comment="when it is tried next"),
    sa.Column("tries", sa.Integer, nullable=False, comment="number of failed tries"),
    sa.Column("error", TEXT, comment="why the last try failed; NULL before the first try"),
)
sa.Index("replica_task_of_partition", replica_task.c.feed, replica_task.c.partition)

replica = sa.Table(
    "replica",
    metadata,
    sa.Column("place", TEXT, primary_key=True, comment="data center"),
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("id", TEXT, primary_key=True, comment="the update, with the same id as at the source"),
    sa.Column("state", TEXT, nullable=False, comment="copying, published, withdrawn, missed or removed"),
    sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags at the source"),
    sa.Column("size", sa.BigInteger, nullable=False, comment="bytes of all files"),
    sa.Column(
        "files", TEXT, comment="JSON by name: size, checksum, etag at the source and in the place; NULL if removed"
    ),
    sa.Column("since", UtcDateTime, nullable=False, comment="when the source changed"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the place had this state"),
)
sa.Index("replica_by_state", replica.c.place, replica.c.state, replica.c.feed)

replica_place = sa.Table(
    "replica_place",
    metadata,
    sa.Column("place", TEXT, primary_key=True, comment="data center"),
    sa.Column("holder", TEXT, comment="the process that copies; NULL if none does"),
    sa.Column("until", UtcDateTime, comment="when another process may copy"),
    sa.Column("paused", TEXT, comment="why nothing is copied; NULL if it is not paused"),
    sa.Column("paused_by", TEXT),
    sa.Column("paused_at", UtcDateTime),
)

place_health = sa.Table(
    "place_health",
    metadata,
    sa.Column("place", TEXT, primary_key=True, comment="data center, or primary"),
    sa.Column("down", TEXT, comment="why it gets no runs; NULL if it gets some"),
    sa.Column("down_by", TEXT, comment="who marked it down; NULL if its probes did"),
    sa.Column("since", UtcDateTime, comment="when it was marked down or up"),
    sa.Column("looked", UtcDateTime, comment="when its blackboard was probed last"),
    sa.Column("failures", sa.Integer, nullable=False, comment="number of failed probes in a row"),
    sa.Column("failing_since", UtcDateTime, comment="when the first of them failed"),
    sa.Column("successes", sa.Integer, nullable=False, comment="number of good probes in a row while it is down"),
)
