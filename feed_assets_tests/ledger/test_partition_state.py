"""The view `partition_state`, as an SQL client without knowledge of feed_assets reads it."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import quality, update_changes, updates
from feed_assets.ledger.tables import watermark, window
from feed_assets_tests.support.ledger_records import NOW, SHOWN

COLUMNS = [
    "dataset",
    "sub_partition",
    "grain",
    "partition",
    "start",
    "end",
    "complete",
    "good",
    "version",
    "contiguous",
    "latest",
]
FIRST = datetime(2026, 1, 1, 15, tzinfo=UTC)
QUERY = "SELECT * FROM partition_state ORDER BY dataset, sub_partition, grain, partition"
HOUR = timedelta(hours=1)


def asked(ledger):
    """Return the rows that a plain client sees. Moments are UTC without a zone; SQLite returns them as text."""
    url = ledger.engine.url
    if url.get_backend_name() == "sqlite":
        opened = sqlite3.connect(f"file:{url.database}?mode=ro", uri=True)
    else:
        opened = psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))
    with closing(opened) as client, closing(client.cursor()) as cursor:
        cursor.execute(QUERY)
        assert [column[0] for column in cursor.description] == COLUMNS
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()]
    return [row | {name: moment(row[name]) for name in ("start", "end", "contiguous", "latest")} for row in rows]


def moment(value):
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert found is None or found.tzinfo is None
    return found and found.replace(tzinfo=UTC)


def put(connection, state, hours=0, changed=7, **more):
    start = FIRST + hours * HOUR
    row = {"dataset": "web/foo", "sub_partition": "region=apac", "grain": "hour", "key": f"{start:%Y-%m-%d-%H:%M}"}
    row |= {"start": start, "end": start + HOUR, "records": 5, "parts": 1, "folded": False}
    connection.execute(sa.insert(window).values(**row, state=state, changed=changed, **more))


@pytest.mark.parametrize(
    ("state", "complete", "good"),
    [
        ("open", False, True),
        ("complete", True, True),
        ("complete_with_issue", True, False),
        ("invalid", False, False),
        ("backfilling", False, True),
        ("backfilled", True, True),
    ],
)
def test_a_window_is_complete_and_good_by_its_state(ledger, state, complete, good):
    with ledger.write() as connection:
        put(connection, state)
    (row,) = asked(ledger)
    assert [row[name] for name in COLUMNS[:6]] == [
        *("web/foo", "region=apac", "hour", "2026-01-01-15:00"),
        *(FIRST, FIRST + HOUR),
    ]
    assert (row["complete"], row["good"], row["version"]) == (complete, good, "00000000000000000007")


def test_an_open_window_is_not_good_once_a_check_has_failed(ledger):
    with ledger.write() as connection:
        put(connection, "open", issue="half are bots")
    assert [(row["complete"], row["good"]) for row in asked(ledger)] == [(False, False)]


def test_always_open_window_has_no_version(ledger):
    with ledger.write() as connection:
        put(connection, "open", changed=None)
    assert [row["version"] for row in asked(ledger)] == [None]


def test_view_shows_watermarks_as_ends_of_windows(ledger):
    with ledger.write() as connection:
        for hours, state in enumerate(["complete", "open", "complete"]):
            put(connection, state, hours)
        marks = {"contiguous": "2026-01-01-15:00", "latest": "2026-01-01-17:00", "first": "2026-01-01-15:00"}
        line = {"dataset": "web/foo", "sub_partition": "region=apac", "grain": "hour"}
        connection.execute(sa.insert(watermark).values(**line, **marks))
    assert [(row["contiguous"], row["latest"]) for row in asked(ledger)] == [(FIRST + HOUR, FIRST + 3 * HOUR)] * 3


def test_partition_of_a_feed_is_complete_by_its_update_and_good_by_its_checks(ledger):
    other = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-25/men")
    with ledger.change() as connection:
        for update_id in ("20191125.060000", "20191125.070000"):
            update_changes.insert(connection, SHOWN, update_id, updates.FOREIGN, updates.PUBLISHED, NOW)
        update_changes.insert(connection, other, "20191126.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
        update_changes.change(connection, other, "20191126.060000", updates.INVALIDATED, NOW)
        quality.report(connection, SHOWN, "unique", quality.FAILED, "two rows twice", "run", NOW)
    found = {row["partition"]: row for row in asked(ledger)}
    states = {key: (row["complete"], row["good"], row["version"]) for key, row in found.items()}
    assert states == {SHOWN.key: (True, False, "20191125.070000"), other.key: (False, True, None)}
    assert {(row["start"], row["end"], row["contiguous"], row["latest"]) for row in found.values()} == {(None,) * 4}


def test_view_partition_state_is_read_only(ledger):
    with pytest.raises(sa.exc.DBAPIError, match=r"cannot (modify|delete from)"), ledger.write() as connection:
        connection.exec_driver_sql("DELETE FROM partition_state")
