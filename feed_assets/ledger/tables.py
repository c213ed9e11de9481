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
    sa.Column("before", TEXT, comment="its state before; NULL if it was not known"),
    sa.Column("after", TEXT, comment="its state after"),
    sa.Column("why", TEXT),
    sa.Column("who", TEXT, comment="run, event source or person"),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("detail", TEXT, comment="JSON: of late data what was weighed; NULL of other kinds"),
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
    sa.Column("subscriber", TEXT, primary_key=True, comment="consumer, or who else listens to the log"),
    sa.Column("feed", TEXT, primary_key=True, comment="whose changes; '' for those of all"),
    sa.Column("position", sa.BigInteger, nullable=False, comment="sequence of the last change that it has"),
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
    sa.Column("version", TEXT, comment="the greatest that was reported; NULL if none was"),
    sa.Column("digest", TEXT, comment="of what that version says"),
)

waiver = sa.Table(
    "waiver",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("problem", TEXT, nullable=False, comment="what was waived: another problem blocks again"),
    sa.Column("why", TEXT, nullable=False),
    sa.Column("who", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False, comment="number of the log then: what changes later ends it"),
)

closure = sa.Table(
    "closure",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="that is final: no run, no late data"),
    sa.Column("why", TEXT, nullable=False),
    sa.Column("who", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
)

profile = sa.Table(
    "profile",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("position", TEXT, nullable=False, comment="update or transition whose data these are"),
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
    sa.Column("subscriber", TEXT, primary_key=True, comment="consumer that has not got it"),
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="that changed, and cannot be mapped to outputs"),
    sa.Column("sequence", sa.BigInteger, nullable=False, comment="first change that has not been fanned out"),
    sa.Column("look_at", UtcDateTime, nullable=False),
    sa.Column("reason", TEXT, comment="error; NULL if it is a dynamic partition that is not there"),
)

update = sa.Table(
    "update_",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("state", TEXT, nullable=False, comment="claimed, published, refused, abandoned, invalidated or pruned"),
    sa.Column("run", TEXT, comment="run that writes it, if one of ours does and it is known"),
    sa.Column("version", TEXT, comment="data version: row digest of our own, files digest of foreign ones"),
    sa.Column("size", sa.BigInteger, comment="bytes of all files"),
    sa.Column("files", sa.BigInteger),
    sa.Column("records", sa.BigInteger),
    sa.Column("files_digest", TEXT, comment="digest of names, sizes and etags"),
    sa.Column("listing", TEXT, comment="the files as JSON: name, size, etag; NULL once pruned"),
    sa.Column("first", UtcDateTime, comment="smallest event time"),
    sa.Column("last", UtcDateTime, comment="largest event time"),
    sa.Column("code_version", TEXT),
    sa.Column("correlation", TEXT, comment="correlation id of its write event; NULL if it was lost with a ledger"),
    sa.Column("parents", TEXT, comment="JSON: the correlation ids that went in, where there were several"),
    sa.Column("reason", TEXT, comment="why it was refused, abandoned or invalidated"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the ledger first heard of it"),
    sa.Column("changed", sa.BigInteger, nullable=False, comment="sequence of its last change"),
    sa.Column("origin", TEXT, nullable=False, comment="who writes it: foreign, run, rebuilt, intake or compacted"),
    sa.Column("windows", TEXT, comment="JSON: its records by base window, where its feed is counted"),
    sa.Column("without", TEXT, comment="JSON: the required inputs that it went without; NULL: none"),
    sa.Column("audit", TEXT, comment="JSON: by check the state and reason that its run found; NULL: none ran"),
    sa.Column("columns", TEXT, comment="JSON: names and types of its columns; NULL if a run of ours did not write it"),
    sa.Column("modified", UtcDateTime, comment="when the newest of its files was written, by the store's clock"),
    sa.Column("figures", TEXT, comment="JSON: its key figures by name; NULL: it has none"),
)
sa.Index("update_by_state", update.c.feed, update.c.partition, update.c.state, update.c.id)
sa.Index("update_of_run", update.c.run, update.c.state)

batch = sa.Table(
    "batch",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="partition that holds it, if the feed is appendable"),
    sa.Column("key", TEXT, primary_key=True, comment="its own key, one segment longer: `partition` of its updates"),
)

consumed = sa.Table(
    "consumed",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("id", TEXT, primary_key=True, comment="update that was built"),
    sa.Column("input_feed", TEXT, primary_key=True),
    sa.Column("input_partition", TEXT, primary_key=True),
    sa.Column("position", TEXT, nullable=False, comment="update of the input that was read"),
    sa.Column("slice_from", TEXT, comment="of an event table: the marker after which it was read, up to position"),
    sa.Column("version", TEXT, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column("is_input", sa.Boolean, nullable=False, comment="false: written beside it, added to, or put together"),
    sa.Column("modified", UtcDateTime, comment="when the newest of these files was written; NULL if it is not known"),
)
sa.Index("consumed_by_input", consumed.c.input_feed, consumed.c.input_partition, consumed.c.position)

run = sa.Table(
    "run",
    metadata,
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("feed", TEXT, nullable=False),
    sa.Column("partition", TEXT, nullable=False),
    sa.Column("state", TEXT, nullable=False, comment="running, published, unchanged, refused, failed, abandoned"),
    sa.Column("pins", TEXT, comment="digest of what it read; NULL until it pinned"),
    sa.Column("dagster_run", TEXT),
    sa.Column("process", TEXT, nullable=False, comment="host, pid and start of the process"),
    sa.Column("started", UtcDateTime, nullable=False),
    sa.Column("ended", UtcDateTime),
    sa.Column("reason", TEXT),
    sa.Column("began", sa.BigInteger, comment="last change when it started"),
    sa.Column("finished", sa.BigInteger, comment="last change when it ended"),
    sa.Column("made_with", TEXT, comment="digest of the recipe and the Spark configuration; NULL before schema 0004"),
    sa.Column("asked_by", TEXT, comment="who asked for it by hand; NULL: sensor, condition or schedule"),
    sa.Column("cluster", TEXT, comment="Spark master or Connect server that ran it, without secrets"),
    sa.Column("parameters", TEXT, comment="JSON: what it was asked to do beside its partition; NULL: nothing"),
    sa.Column("why", TEXT, comment="the verdict that asked for it, in words; NULL: somebody did by hand"),
    sa.Column("placed", TEXT, comment="the compute target that it was given, and why; NULL: none is configured"),
    sa.Column("cores", sa.BigInteger, comment="that it had there; NULL: no target gave it any"),
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
    sa.Column("changed", sa.BigInteger, nullable=False, comment="change that put it here: a later one wins"),
    sa.Column("since", UtcDateTime, nullable=False),
    sa.Column("requested", sa.Integer, nullable=False, comment="runs requested since that change"),
    sa.Column("look_at", UtcDateTime, comment="when to decide again; NULL: when something changes"),
    sa.Column("state", TEXT, comment="the last verdict, for people"),
    sa.Column("reason", TEXT),
    sa.Column("told", TEXT, comment="the reason that Dagster was told last"),
    sa.Column("ends", UtcDateTime, comment="end of its window of time; NULL: it has none"),
    sa.Column("bytes", sa.BigInteger, comment="what its run would read, by the last verdict"),
    sa.Column("allocation", TEXT, comment="the last row of `allocation` of its runs; the row may be gone"),
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
    sa.Column("source", TEXT, nullable=False, comment="event source that it was read from; '' for our own"),
    sa.Column("feed", TEXT, nullable=False, comment="table_name"),
    sa.Column("partition", TEXT, nullable=False, comment="partition_key"),
    sa.Column(
        "marker", TEXT, nullable=False, comment="sorts as the moments or versions do; of our feeds the update id"
    ),
    sa.Column("previous", TEXT, comment="the marker before it in its table and partition: it covers what is between"),
    sa.Column("start", TEXT, comment="it covers what was updated after this, up to marker; NULL: from the beginning"),
    sa.Column("event_marker", TEXT, nullable=False),
    sa.Column("correlation", TEXT, nullable=False),
    sa.Column("operation", TEXT, nullable=False),
    sa.Column("context", TEXT, nullable=False, comment="JSON"),
    sa.Column("flag", TEXT, comment="'out of order' if its marker came before its table's last one"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when the ledger heard of it"),
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
    sa.Column("marker", TEXT, nullable=False, comment="the greatest of its events that were removed, as they were old"),
    sa.Column("event_marker", TEXT, nullable=False, comment="the greatest of the same events"),
)

event_reject = sa.Table(
    "event_reject",
    metadata,
    sa.Column("source", TEXT, primary_key=True),
    sa.Column("digest", TEXT, primary_key=True, comment="of the text: what is read again is kept once"),
    sa.Column("raw", TEXT, nullable=False, comment="the event as it was read"),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
)

intake_file = sa.Table(
    "intake_file",
    metadata,
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
sa.Index("intake_file_by_content", intake_file.c.feed, intake_file.c.time, intake_file.c.etag)
sa.Index("intake_file_by_state", intake_file.c.feed, intake_file.c.state, intake_file.c.at)

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("partition", TEXT, primary_key=True, comment="its partition that the event concerns"),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False, comment="event, not yet consumed"),
    sa.Column("run", TEXT, comment="run that last claimed it"),
)
sa.Index("inbox_of_run", inbox.c.run)

taken_event = sa.Table(
    "taken",
    metadata,
    sa.Column("feed", TEXT, primary_key=True, comment="consumer"),
    sa.Column("partition", TEXT, primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False, comment="event, consumed"),
    sa.Column("run", TEXT, primary_key=True, comment="run whose update it went into"),
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
    sa.Column("marker", TEXT, nullable=False, comment="the table's, up to which it was consumed"),
    sa.Column("event_marker", TEXT, nullable=False, comment="of the last event that was consumed"),
    sa.Column("at", UtcDateTime, nullable=False),
)

alert = sa.Table(
    "alert",
    metadata,
    sa.Column("name", TEXT, primary_key=True),
    sa.Column("opened", UtcDateTime, nullable=False),
    sa.Column("resolved", UtcDateTime),
    sa.Column("reason", TEXT, nullable=False),
    sa.Column("log", TEXT, comment="what was delivered last to the log: opened or resolved; NULL if nothing was"),
    sa.Column("webhook", TEXT, comment="the same of the webhook"),
    sa.Column("mail", TEXT, comment="the same of mail"),
    sa.Column("receivers", TEXT, comment="JSON: whom it is sent to beside those of the settings; NULL: nobody"),
)

alert_said = sa.Table(
    "alert_said",
    metadata,
    sa.Column("name", TEXT, primary_key=True, comment="of the alert"),
    sa.Column("channel", TEXT, primary_key=True, comment="one of those that have no column there"),
    sa.Column("state", TEXT, nullable=False, comment="what was delivered last: opened, resolved or report"),
)

log_lock = sa.Table(
    "log_lock",
    metadata,
    sa.Column("n", sa.Integer, comment="there are no rows: who appends to the log locks the table"),
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
    sa.Column("declared", TEXT, comment="JSON: grains, ratio, tiers, zone, sub-partitions; NULL: nothing is declared"),
    sa.Column("schema", TEXT, comment="as it was reported last"),
    sa.Column("version", TEXT, comment="of the report that said so"),
    sa.Column("reported", sa.Boolean, comment="whether its producer reports what was ingested"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when it was first heard of"),
)

report = sa.Table(
    "report",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True, comment="region=apac/country=sg; '' is all"),
    sa.Column("tier", TEXT, primary_key=True, comment="source that counted; '': what was ingested"),
    sa.Column("part", TEXT, primary_key=True),
    sa.Column("version", TEXT, nullable=False, comment="the greatest wins; sorts as the versions do"),
    sa.Column("digest", TEXT, nullable=False, comment="of what it says: an equal version must say the same"),
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
    sa.Column("records", sa.BigInteger, nullable=False, comment="that were ingested"),
    sa.Column("parts", sa.BigInteger, nullable=False, comment="reports that name it, or a smaller window in it"),
    sa.Column("sources", TEXT, comment="JSON: of a base window by tier the records, and how many reports name it"),
    sa.Column("state", TEXT, nullable=False, comment="open, complete, complete_with_issue, invalid, backfilling, …"),
    sa.Column("changed", sa.BigInteger, comment="sequence of its last transition; NULL if it was always open"),
    sa.Column("since", UtcDateTime, comment="when its state became what it is"),
    sa.Column("accepted", TEXT, comment="who accepted it as it is, and why"),
    sa.Column("issue", TEXT, comment="why a check of it failed"),
    sa.Column("marked", TEXT, comment="what is wrong with what it was made of"),
    sa.Column("flagged", TEXT, comment="what is wrong with a larger window that holds it"),
    sa.Column("stale", TEXT, comment="why a check of it failed before it was made again; it has not run since"),
    sa.Column("held", TEXT, comment="what is wrong in it, where nothing else keeps it open"),
    sa.Column("folded", sa.Boolean, nullable=False, comment="its reports are one row: it takes no more"),
    sa.Column("data", sa.BigInteger, nullable=False, server_default="0", comment="digest of its reports"),
    sa.Column("told", sa.BigInteger, comment="the same when its state changed last: the version of its data"),
    sa.Column("uncovered", TEXT, comment="offsets between those that it names that no part holds, in words"),
    sa.Column("doubled", TEXT, comment="offsets that several of its parts hold, in words"),
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
    sa.Column("first", TEXT, nullable=False, comment="key of the first window that is known"),
    sa.Column("contiguous", TEXT, comment="key of the last window before which no hole is"),
    sa.Column("reached", TEXT, comment="how far it was without a hole: up to there only what is open now is one"),
    sa.Column("latest", TEXT, comment="key of the last complete window"),
)

coverage = sa.Table(
    "coverage",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="of a topic, as parts name it"),
    sa.Column("offset", sa.BigInteger, primary_key=True, comment="from which on, up to the next row"),
    sa.Column("depth", sa.BigInteger, nullable=False, comment="parts that hold these offsets; 0: none does"),
)

window_offsets = sa.Table(
    "window_offsets",
    metadata,
    sa.Column("dataset", TEXT, primary_key=True),
    sa.Column("sub_partition", TEXT, primary_key=True),
    sa.Column("grain", TEXT, primary_key=True),
    sa.Column("key", TEXT, primary_key=True),
    sa.Column("partition", TEXT, primary_key=True, comment="of a topic, as parts and sources name it"),
    sa.Column("low", sa.BigInteger, nullable=False, comment="least offset that a part or source of it names"),
    sa.Column("high", sa.BigInteger, nullable=False, comment="greatest one"),
    sa.Column("level", sa.Integer, nullable=False, comment="of high - low: four bits each"),
    sa.Column("parts", TEXT, comment="JSON: at which offset how many more of its parts hold it, or fewer"),
    sa.Column("sources", TEXT, comment="JSON: the same by tier"),
)
sa.Index(
    "window_offsets_by_reach",
    *(window_offsets.c[name] for name in ("dataset", "sub_partition", "partition", "level", "low")),
)

api_key = sa.Table(
    "api_key",
    metadata,
    sa.Column("id", TEXT, primary_key=True, comment="the part of the key that is no secret"),
    sa.Column("partner", TEXT, nullable=False),
    sa.Column("digest", TEXT, nullable=False, comment="SHA-256 of the key"),
    sa.Column("scopes", TEXT, nullable=False, comment="JSON: the feeds and event sources that it may write"),
    sa.Column("made", UtcDateTime, nullable=False),
    sa.Column("ends", UtcDateTime, comment="when it was revoked, or rotation lets it end; NULL: it does not"),
)
sa.Index("api_key_of_partner", api_key.c.partner)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("feed", TEXT, primary_key=True),
    sa.Column("key", TEXT, primary_key=True, comment="Idempotency-Key of a request, as its partner chose it"),
    sa.Column("digest", TEXT, nullable=False, comment="of the body that came with it first"),
    sa.Column("receiver", TEXT, nullable=False, comment="whose spool has it, until it is answered from here"),
    sa.Column("answer", TEXT, comment="what was answered; NULL until its events are published"),
    sa.Column("at", UtcDateTime, nullable=False),
)
sa.Index("idempotency_by_time", idempotency.c.at)

probe = sa.Table(
    "probe",
    metadata,
    sa.Column("target", TEXT, primary_key=True, comment="compute target, by its name in the settings"),
    sa.Column("asked", UtcDateTime, comment="when a process last began to ask it"),
    sa.Column("at", UtcDateTime, comment="when the process of the last answer began to ask; NULL: none has answered"),
    sa.Column("cores", sa.BigInteger, comment="all that it has"),
    sa.Column("memory", sa.BigInteger, comment="bytes, all that it has"),
    sa.Column("free_cores", sa.BigInteger),
    sa.Column("free_memory", sa.BigInteger),
    sa.Column("queued", sa.BigInteger, comment="applications that wait there"),
    sa.Column("offline", TEXT, comment="why it gives no answer; NULL: it does"),
    sa.Column("since", UtcDateTime, comment="since when it gives none"),
    sa.Column("lost", UtcDateTime, comment="when a run last lost it: it gets no run for a while"),
    sa.Column("workers", TEXT, comment="JSON: of each machine cores, memory, free cores, free memory; NULL: unknown"),
    sa.Column("unstarted", TEXT, comment="dataset whose Spark last could not start there; NULL: one has started since"),
)

allocation = sa.Table(
    "allocation",
    metadata,
    sa.Column("id", TEXT, primary_key=True),
    sa.Column("target", TEXT, comment="compute target that a run has; NULL: its request waits"),
    sa.Column("cores", sa.BigInteger, comment="that it has there; NULL: its request waits"),
    sa.Column("memory", sa.BigInteger, comment="bytes that it has there"),
    sa.Column("resources", TEXT, nullable=False, comment="JSON: what its dataset needs"),
    sa.Column("history", sa.Boolean, nullable=False, comment="whether it comes after all new partitions"),
    sa.Column("output", TEXT, nullable=False, comment="first partition that the run builds"),
    sa.Column("since", UtcDateTime, nullable=False, comment="since when the request waits, or waited"),
    sa.Column("at", UtcDateTime, nullable=False, comment="when it was given, or last looked at"),
    sa.Column("targets", TEXT, nullable=False, comment="JSON: targets that the process of the request can use"),
    sa.Column("reason", TEXT, nullable=False, comment="why this target, or what it waits for"),
    sa.Column("dagster_run", TEXT, comment="Dagster run that uses it; NULL: it has not begun"),
    sa.Column("started", UtcDateTime, comment="when the run's Spark session was up"),
)

delivery = sa.Table(
    "delivery",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("lane", TEXT, primary_key=True, comment="partition or window; '' if one call serves all changes"),
    sa.Column("sequence", sa.BigInteger, primary_key=True, comment="number of the change in the log"),
    sa.Column("event", TEXT, nullable=False, comment="JSON: the CloudEvent"),
    sa.Column("due", UtcDateTime, nullable=False, comment="when it is tried next"),
    sa.Column("tries", sa.Integer, nullable=False, comment="failed ones in a row, outages too"),
    sa.Column("refusals", sa.Integer, nullable=False, comment="failed ones that count"),
    sa.Column("error", TEXT, comment="why the last try failed; NULL: it was not tried"),
    sa.Column("is_down", sa.Boolean, nullable=False, comment="whether the target gave no answer then"),
    sa.Column("is_dead", sa.Boolean, nullable=False, comment="whether it waits for a person, and its lane with it"),
)

delivery_turn = sa.Table(
    "delivery_turn",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("holder", TEXT, nullable=False, comment="process that delivers"),
    sa.Column("until", UtcDateTime, nullable=False, comment="when another process may deliver"),
)

delivery_owner = sa.Table(
    "delivery_owner",
    metadata,
    sa.Column("subscription", TEXT, primary_key=True),
    sa.Column("location", TEXT, nullable=False, comment="code location; '': it has no name, such as in `run`"),
    sa.Column("declaration", TEXT, nullable=False, comment="the declaration, to compare"),
    sa.Column("seen", UtcDateTime, nullable=False, comment="last tick with this declaration, to half a minute"),
)
