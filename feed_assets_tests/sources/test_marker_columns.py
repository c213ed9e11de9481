"""Columns of markers: rows of a slice are found for any form of their timestamps, or the column is refused."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from feed_assets import Operation, Partition, Slice
from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed
from feed_assets.sources.databases import columns_of, reading
from feed_assets.sources.marker_columns import marker_column
from feed_assets_tests.support.each_case import each_case

START = datetime(2025, 12, 31, 23, 58, tzinfo=UTC)
ROWS = [START + timedelta(seconds=30 * number, microseconds=number % 3) for number in range(10)]
EAST = timezone(timedelta(hours=2))
FORMS = {
    "as SQLAlchemy writes it": lambda at: f"{at:%Y-%m-%d %H:%M:%S.%f}",
    "with T": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}{f'.{at.microsecond:06}' if at.microsecond else ''}",
    "with Z": lambda at: f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
    "with an offset": lambda at: at.astimezone(EAST).isoformat(),
    "west of UTC": lambda at: at.astimezone(timezone(-timedelta(hours=11))).isoformat(" "),
    "mixed": lambda at: at.isoformat("T" if at.second else " ").replace("+00:00", "Z" if at.microsecond else ""),
}


def piece(after, upto):
    start = None if after is None else encode(after)
    return Slice(Partition(Feed.parse("shop/orders"), ""), start, encode(upto), frozenset({Operation.UPSERT}))


def column_of(connection, by, cut):
    kind = columns_of(connection, "orders", None, (by,))[by]
    return marker_column(connection, sa.table("orders"), sa.column(by, kind), cut)


def found(url, by, cut):
    """Return the numbers of the rows of a slice."""
    with reading(url) as connection:
        column = column_of(connection, by, cut)
        query = sa.select(sa.column("n")).select_from(sa.table("orders")).where(sa.literal_column(column.where(cut)))
        return sorted(connection.execute(query).scalars())


@pytest.fixture
def database(tmp_path):
    """Make a table of SQLite with a column of a type and these values; its URL."""

    def make(kind, values):
        (path := tmp_path / "shop.db").unlink(missing_ok=True)
        with sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(f"CREATE TABLE orders (n INTEGER, at {kind})")
            connection.exec_driver_sql("INSERT INTO orders VALUES (99, NULL)")
            for row in enumerate(values):
                connection.exec_driver_sql("INSERT INTO orders VALUES (?, ?)", row)
        return f"sqlite:///{path}"

    return make


@each_case(("kind", "form"), [(kind, form) for kind in ("TEXT", "TIMESTAMP") for form in FORMS])
def test_each_slice_has_its_rows_whatever_form_their_moments_have(database, kind, form):
    """Compare moments without a zone as text."""
    url = database(kind, map(FORMS[form], ROWS))
    with reading(url) as connection:
        separator = column_of(connection, "at", piece(None, START)).separator
    assert separator == ("T" if form == "with T" else " ")
    ends = [None, *ROWS, datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
    for after in ends:
        for upto in [*ROWS, datetime.max.replace(tzinfo=UTC)]:
            expected = [n for n, at in enumerate(ROWS) if (after is None or at > after) and at <= upto]
            assert found(url, "at", piece(after, upto)) == expected, (after, upto)


@each_case("good", ["2025-12-31", "2025-12-31 00:00:00", "2025-12-31T00:00:00", "2025-12-31T00:00:00Z"])
@each_case(
    ("kind", "value", "upto"),
    [
        ("TEXT", "yesterday", START),
        ("TIMESTAMP", "0000-01-01T00:00:00Z", START),
        ("TIMESTAMP", "20260101T000000", START),
        ("TIMESTAMP", 1767225600, START),
        ("TIMESTAMP", "2026-02-30T00:00:00Z", START),
        ("TEXT", "2023-02-29", START),
        ("TIMESTAMP", "2024-02-31 00:00:00", START),
        ("TIMESTAMP", "2024-02-31T00:00:00", START),
        ("TEXT", "2024-01-01 25:61:61", START),
        ("TEXT", "2024-01-01 00:00:007", START),
        ("TEXT", "2024-01-01 00:00:00.", START),
        ("TEXT", "2024-01-01 00:00:00.1.2", START),
        ("TEXT", "2024-01-01 00:00:00.1234567", START),
        ("TEXT", "2024-01-01T00:00:00,5", START),
        ("TEXT", "2024-01-01x06:00", START),
        ("TEXT", "2024-01-01 06:00:00 +02:00", START),
        ("TEXT", "2024-01-01+02:00", START),
        ("TEXT", "0000-00-00", START),
        ("TEXT", "0000-01-01 00:00:00", START),
        ("", "7", 9),
    ],
)
def test_a_value_that_is_no_marker_is_refused_with_its_column_and_what_to_do(database, kind, value, upto, good):
    expected = "whole numbers" if upto == 9 else "moments as 2024-01-31 06:00:00, 2024-01-31T06:00:00Z"
    with pytest.raises(
        SourceUnavailable, match=rf"orders: column at has '?{re.escape(str(value))}'?,.*{expected}.*Correct such rows"
    ):
        found(database(kind, [1 if upto == 9 else good, value]), "at", piece(None, upto))


def test_postgresql_dates_are_accepted_as_markers_and_texts_refused(postgresql):
    url = postgresql.database()
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        columns = 'n int, day date, "a%%t" timestamptz, said text, version numeric'
        connection.exec_driver_sql(f"CREATE TABLE orders ({columns})")
        connection.exec_driver_sql(
            "INSERT INTO orders VALUES (0, '2025-12-31', '-infinity', 'x', 1), "
            "(1, '2026-01-01', '2026-01-01', 'x', 2), (2, NULL, 'infinity', 'x', 3)"
        )
    noon, new_year = datetime(2025, 12, 31, 12, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
    assert found(url, "day", piece(noon, new_year)) == [1]
    assert found(url, "day", piece(None, noon)) == [0]
    assert found(url, "a%t", piece(noon, new_year)) == [1]
    assert found(url, "version", piece(1, 3)) == [1, 2]
    for by, upto, expected in (("said", noon, "a timestamp or a date"), ("day", 3, "a whole number")):
        with pytest.raises(SourceUnavailable, match=f"column {by} is .*: expected {expected}.*read a view with CAST"):
            found(url, by, piece(None, upto))
