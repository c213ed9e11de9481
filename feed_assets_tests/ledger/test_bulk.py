"""Rows that are written together: equal values on both databases, and one statement on PostgreSQL."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from feed_assets.ledger import bulk
from feed_assets.ledger.tables import change, window
from feed_assets_tests.support.ledger_records import NOW, statements

LAST = (1 << 63) - 1
TEXTS = [
    "",
    "plain",
    'a "quoted" one',
    "it's",
    "back\\slash \\u0000",
    "line\nbreak\ttab",
    "Zürich 漢字 🚀",
    "{}",
    "null",
    "%s :x",
]
TWICE = datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"))
ODD_MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=ZoneInfo("Asia/Kolkata"))


def changes(texts, first=1):
    return [
        {
            "sequence": number,
            "feed": text,
            "partition": "p",
            "kind": "k",
            "subject": text,
            "why": None,
            "at": ODD_MOMENT,
        }
        for number, text in enumerate(texts, first)
    ]


def windows(**values):
    common = {"dataset": "d", "sub_partition": "", "grain": "hour", "state": "open", "start": NOW, "end": NOW}
    counts = {"records": 0, "parts": 0, "data": 0, "folded": False, "since": None, "sources": None}
    return [{**common, "key": str(number), **counts, **values} for number in range(3)]


def test_bulk_insert_keeps_odd_texts_and_moments(ledger):
    rows = changes(TEXTS)
    rows[0]["at"], rows[1]["at"] = TWICE, TWICE.replace(fold=1)
    with ledger.write() as connection:
        bulk.insert(connection, change, rows)
        found = connection.execute(sa.select(change).order_by(change.c.sequence)).mappings().all()
    expected = [{**row, "at": row["at"].astimezone(UTC)} for row in rows]
    assert [{name: row[name] for name in rows[0]} for row in found] == expected


def test_bulk_insert_replaces_only_the_named_columns(ledger):
    numbers = {"records": LAST, "data": LAST, "folded": True, "since": ODD_MOMENT, "sources": '{"kafka": [1, 2]}'}
    with ledger.write() as connection:
        bulk.insert(connection, window, windows())
        bulk.insert(connection, window, windows(**numbers, start=NOW + timedelta(hours=1)), replaced=[*numbers])
        found = connection.execute(sa.select(window)).mappings().all()
    assert len(found) == 3
    assert [{name: row[name] for name in numbers} for row in found] == [numbers] * 3
    assert {row["start"] for row in found} == {NOW.astimezone(UTC)}


def test_bulk_insert_of_many_rows_is_one_statement_on_postgresql(postgresql_ledger):
    with statements(postgresql_ledger) as executed, postgresql_ledger.write() as connection:
        bulk.insert(connection, change, changes(map(str, range(1000))))
    inserted = [given for sql, given in executed if sql.startswith("INSERT")]
    assert len(inserted) == 1
    assert isinstance(inserted[0], dict)  # A list would be one statement for each row.
