"""Rows read by the condition of a slice: none missing, none extra, in any session time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from feed_assets import Slice
from feed_assets.core.events import Operation, encode
from feed_assets.core.feeds import Feed, Partition

ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
NOON = datetime(2024, 3, 10, 12, tzinfo=UTC)
"""A day on which New York changes its clocks, at 7 in UTC."""
NEAR = [timedelta(microseconds=1), timedelta(seconds=1), timedelta(hours=1), timedelta(hours=4, minutes=30)]
AROUND = [timedelta(), *NEAR, *(-each for each in NEAR)]
AFTER, UPTO = NOON - timedelta(hours=6), NOON
ROWS = sorted({bound + each for bound in (AFTER, UPTO) for each in AROUND})


def slice_of(after, upto):
    place = Partition(Feed.parse("shop/orders"))
    return Slice(place, None if after is None else encode(after), encode(upto), frozenset({Operation.UPSERT}))


SLICES = [slice_of(AFTER, UPTO), slice_of(None, UPTO), slice_of(UPTO, UPTO)]


def within(piece):
    return [row for row in ROWS if (piece.after is None or row > piece.after) and row <= piece.upto]


def read_by(connection, piece):
    query = sa.text(f"SELECT n FROM rows WHERE {piece.where('updated_at')} ORDER BY n")  # noqa: S608
    return [ROWS[number] for (number,) in connection.execute(query)]


@pytest.fixture(scope="module")
def database(postgresql):
    engine = sa.create_engine(postgresql.database())
    yield engine
    engine.dispose()


@pytest.mark.parametrize("has_zone", [True, False])
@pytest.mark.parametrize("zone", ZONES)
def test_postgresql_reads_the_rows_of_a_slice_from_columns_with_and_without_a_zone(database, zone, has_zone):
    rows = sa.Table("rows", sa.MetaData(), sa.Column("n", sa.Integer), sa.Column("updated_at", sa.DateTime(has_zone)))
    with database.connect() as connection:
        connection.execute(sa.text(f"SET TIME ZONE '{zone}'"))
        rows.create(connection)
        written = [row if has_zone else row.replace(tzinfo=None) for row in ROWS]
        connection.execute(sa.insert(rows), [{"n": n, "updated_at": at} for n, at in enumerate(written)])
        for piece in SLICES:
            assert read_by(connection, piece) == within(piece)


@pytest.mark.parametrize("zone", ZONES)
def test_sqlite_reads_the_rows_of_a_slice_as_sqlalchemy_writes_them(tmp_path, zone):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    rows = sa.Table("rows", sa.MetaData(), sa.Column("n", sa.Integer), sa.Column("updated_at", sa.DateTime))
    with engine.begin() as connection:
        rows.create(connection)
        here = [row.astimezone(ZoneInfo(zone)).astimezone(UTC).replace(tzinfo=None) for row in ROWS]
        connection.execute(sa.insert(rows), [{"n": n, "updated_at": at} for n, at in enumerate(here)])
        for piece in SLICES:
            assert read_by(connection, piece) == within(piece)
    engine.dispose()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize("zone", ZONES)
def test_spark_reads_the_rows_of_a_slice(spark, zone, kind):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ending = "+00:00" if kind == "TIMESTAMP" else ""
        values = ", ".join(f"({n}, {kind} '{row:%Y-%m-%d %H:%M:%S.%f}{ending}')" for n, row in enumerate(ROWS))
        rows = spark.sql(f"SELECT * FROM VALUES {values} AS rows(n, updated_at)")  # noqa: S608
        for piece in SLICES:
            found = sorted(row.n for row in rows.where(piece.where("updated_at")).collect())
            assert [ROWS[number] for number in found] == within(piece)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_versions_are_compared_as_numbers(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE rows (version INTEGER)"))
        connection.execute(sa.text("INSERT INTO rows VALUES (9), (10), (11), (100)"))
        query = f"SELECT version FROM rows WHERE {slice_of(9, 11).where('version')} ORDER BY version"  # noqa: S608
        assert connection.execute(sa.text(query)).scalars().all() == [10, 11]
    engine.dispose()
