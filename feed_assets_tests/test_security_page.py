"""The bounds that docs/security.md promises are those of the code."""

import re
from datetime import timedelta
from pathlib import Path

from feed_assets.alerts import CHANNEL_SECONDS
from feed_assets.cli.loaded_location import START_SECONDS
from feed_assets.core.events import LAST_VERSION
from feed_assets.core.feeds import MANIFEST_LIMIT
from feed_assets.core.limits import (
    CONTEXT_BYTES,
    CONTEXT_DEPTH,
    NAME_BYTES,
    READ_BYTES,
    REJECT_BYTES,
    ROW_BYTES,
    SEGMENTS,
)
from feed_assets.core.report_lines import PART_BYTES
from feed_assets.feeds import answers
from feed_assets.feeds.footers import FOOTER_BYTES
from feed_assets.feeds.local_disk import DEPTH
from feed_assets.feeds.queues import LONGEST_WAIT, PATIENCE_SECONDS
from feed_assets.feeds.read import MOST_SKIPPED
from feed_assets.feeds.s3_others import BODY_SECONDS, SLOWEST
from feed_assets.feeds.stores import PATIENCE
from feed_assets.feeds.walk_limit import MOST_LISTINGS
from feed_assets.intake.authentication import HOLD_SECONDS, OLD_SECONDS, RELOAD_SECONDS
from feed_assets.intake.connections import CONNECTIONS, PER_PARTNER, PIPELINED, WITHOUT_KEY
from feed_assets.intake.pull import KEY_BYTES, TURN
from feed_assets.intake.pull_room import RESERVE
from feed_assets.intake.unpacking import SPARED_BYTES, SPARED_OF_PARTNER
from feed_assets.kafka import offset_range, service
from feed_assets.kafka.dialect import JSON_CHARACTERS
from feed_assets.kafka.schema_limits import NAME_CHARACTERS
from feed_assets.ledger.event_rejects import REJECTS_KEPT
from feed_assets.ledger.sessions import CONNECT_SECONDS, LOCK_SECONDS
from feed_assets.orchestration.ticks.ingest import ROWS_PER_READ
from feed_assets.runs.notified_partitions import MESSAGES_PER_LOOK
from feed_assets.sources import topic_events
from feed_assets.sources.cells import NUMBER_CHARACTERS
from feed_assets.sources.databases import ANSWER_SECONDS, LATE_SECONDS
from feed_assets.sources.openlineage import EVENT_SECONDS
from feed_assets.sources.parquet_rows import GROUP_BYTES
from feed_assets.sources.sinks import SINK_SECONDS
from feed_assets.sources.sql import ORDER_BYTES, ROWS_OF_ONE_VALUE
from feed_assets.warehouse.defaults import MOST_OF_DEFAULTS
from feed_assets.warehouse.duck import MOST_COPIED_COLUMNS
from feed_assets.warehouse.load_state import MOST_ROWS
from feed_assets.warehouse.postgresql import WAIT_SECONDS
from feed_assets.warehouse.shapes import MOST_COLUMNS
from feed_assets_tests.support.each_case import each_case

PAGE = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")


@each_case(
    ("bounded", "bounds"),
    [
        ("table names, partition keys, correlation ids", f"{NAME_BYTES} bytes in UTF-8, {SEGMENTS} segments"),
        ("an event's context", f"{CONTEXT_BYTES >> 10} KiB of JSON, {CONTEXT_DEPTH} levels"),
        ("a line, record or cell of a source", f"{ROW_BYTES >> 20} MiB;"),
        ("a line of `state report`", f"{ROW_BYTES >> 20} MiB;"),
        ("a row group of a Parquet file of a source, as its footer tells", f"{GROUP_BYTES >> 20} MiB uncompressed"),
        ("one read of a source", f"{ROWS_PER_READ:,} rows, about {READ_BYTES >> 20} MiB"),
        ("rows of a SQL table with one `order_by` value", f"{ROWS_OF_ONE_VALUE:,}"),
        ("an `order_by` value of a SQL table on PostgreSQL", f"{ORDER_BYTES:,} bytes"),
        ("a number without a precision in a SQL table on PostgreSQL", f"{NUMBER_CHARACTERS:,} characters"),
        ("lineage of others, as a table or file", f"{READ_BYTES >> 20} MiB in all, {ROW_BYTES >> 20} MiB a name"),
        ("what is kept of a rejected event", f"{REJECT_BYTES >> 10} KiB, its length and sha256"),
        ("the defaults of a schema, as a loader writes them out", f"{MOST_OF_DEFAULTS:,} values and characters"),
        ("columns of a warehouse table, with those that were dropped", f"{MOST_COLUMNS:,}"),
        ("columns of a DuckDB table, times the statements of a change", f"{MOST_COPIED_COLUMNS:,}"),
        ("rows in the state tables of a warehouse", f"{MOST_ROWS:,}; 16,000 characters of a problem"),
        ("a delivery of an alert, DNS, proxy and TLS included", f"{CHANNEL_SECONDS} s"),
        (
            "what is asked of others' PostgreSQL servers",
            f"{CONNECT_SECONDS} s to connect, {ANSWER_SECONDS} s for a read ({LATE_SECONDS} s if late), "
            f"{SINK_SECONDS} s for a batch of a sink",
        ),
        (
            "arrays, maps and records of a message, as JSON in a chunk",
            f"{JSON_CHARACTERS >> 20} MiB of characters; {NAME_CHARACTERS:,} a field's name or symbol",
        ),
        ("schema ids that the connector looks up for one topic", f"{service.LOOKUPS} in {service.LOOKUP_SECONDS:g} s"),
        (
            "time for these, chunks of another schema, long lines, messages of more than "
            f"{1000 * offset_range.SLOW_SECONDS:g} ms",
            f"{service.EXTRA_SECONDS:g} s in {service.LOOKUP_SECONDS:g} s",
        ),
        ("schema ids that a read of a topic of events looks up", f"{topic_events.LOOKUPS}, "),
        ("an event that is sent to OpenLineage", f"{EVENT_SECONDS} s"),
        ("a try of a request to an object store that is silent", f"{PATIENCE.timeout} s"),
        (
            "an answer of a bucket of others, all tries together",
            f"{answers.ANSWER_SECONDS:g} s, a listing {answers.LISTING_SECONDS:g} s",
        ),
        ("updates without a valid manifest, newer than any valid one, in a partition", f"{MOST_SKIPPED}"),
        ("a load's wait for a lock in PostgreSQL", f"{WAIT_SECONDS} s"),
        ("the footer of a Parquet file of a feed", f"{FOOTER_BYTES >> 20} MiB"),
        ("folders in a row without an update, below one name of a feed", f"{MOST_LISTINGS:,}"),
        ("requests of one partner that are under way", f"{PER_PARTNER}"),
        ("requests that a connection sends before an answer", f"{PIPELINED}"),
        (
            "an object in a bucket of others",
            f"the announced size; {SLOWEST >> 10} KiB a second after {PATIENCE.timeout} s, "
            f"{BODY_SECONDS // 3600} h in all",
        ),
        ("the key of a pulled file", f"{KEY_BYTES:,} bytes"),
        ("disk for a pulled file", f"{RESERVE >> 30} GiB stays free"),
        ("requests to a pulled partner, one after the other", f"{TURN // timedelta(hours=1)} h"),
        (
            "messages of a [queue](operations.md#a-bucket-that-tells) in a look; a request to it",
            f"{MESSAGES_PER_LOOK}; {PATIENCE_SECONDS} s to connect, {LONGEST_WAIT + PATIENCE_SECONDS} s for an answer",
        ),
        (
            "use of a revoked key",
            f"{RELOAD_SECONDS} s; {HOLD_SECONDS // 3600} hour if the ledger does not answer, "
            f"{OLD_SECONDS} s if it answers with an error",
        ),
        ("a wait for a lock of the ledger, for a connection to it", f"{LOCK_SECONDS} s, {CONNECT_SECONDS} s"),
        ("a wait for another first start in a home", f"{START_SECONDS} s"),
        ("folders on a local blackboard", f"{DEPTH} below each other"),
        ("a manifest", f"{MANIFEST_LIMIT} bytes"),
    ],
)
def test_a_bound_of_the_page_is_that_of_the_code(bounded, bounds):
    assert re.search(rf"^\| {re.escape(f'{bounded} | {bounds}')}(?![\d,]*\d)", PAGE, re.MULTILINE)


def test_bounds_that_stand_behind_others_in_their_rows_are_those_of_the_code():
    tries = f"{PATIENCE.retries + 1} tries of an S3 listing, or in a bucket of others"
    for bounds in (f"the newest {REJECTS_KEPT:,} of a source", f"part names up to {PART_BYTES:,} bytes", tries):
        assert bounds in PAGE
    assert (LAST_VERSION, "; 2^63 - 1 |" in PAGE) == (2**63 - 1, True)


def test_as_many_partners_as_the_page_says_take_all_connections():
    assert ((CONNECTIONS - WITHOUT_KEY) // PER_PARTNER, "**Eight partners together**" in PAGE) == (8, True)
    assert (SPARED_BYTES // SPARED_OF_PARTNER, "eight others the last 8 MiB" in PAGE) == (8, True)
