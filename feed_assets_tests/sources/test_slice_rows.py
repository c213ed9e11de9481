"""Rows of a slice by Spark: in parallel ranges, with the values of the database."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructType, TimestampNTZType, TimestampType

from feed_assets import Operation, Partition, Slice
from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed
from feed_assets.sources import slice_rows
from feed_assets_tests.support.each_case import each_case

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
TABLE = sa.Table(
    "orders",
    sa.MetaData(),
    sa.Column("number", sa.BigInteger),
    sa.Column("It`em", sa.Text),
    sa.Column("price", sa.Numeric(10, 2)),
    sa.Column("day", sa.Date),
    sa.Column("paid", sa.Boolean),
    sa.Column("weight", sa.Double),
    sa.Column("at :%x", sa.DateTime),
)
KINDS = "bigint,string,decimal(10,2),date,boolean,double,timestamp"


def row(number: int) -> tuple:
    at = NOON + timedelta(minutes=number)
    values = (number, f"ö'{number}", Decimal(number) / 4, date(2024, 1, 1), number % 2 == 0, number / 3, at)
    return values if number % 5 else (number, *[None] * 5, at)


def made(url: str) -> None:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    TABLE.create(engine)
    naive = [(*row(number)[:-1], row(number)[-1].replace(tzinfo=None)) for number in range(40)]
    with engine.begin() as connection:
        connection.execute(sa.insert(TABLE), [dict(zip(TABLE.columns.keys(), each, strict=True)) for each in naive])


def piece(start: int | None, end: int) -> Slice:
    """Return the slice from behind one minute up to another."""
    markers = [None if each is None else encode(NOON + timedelta(minutes=each)) for each in (start, end)]
    place, operations = Partition(Feed.parse("shop/orders"), ""), frozenset({Operation.UPSERT})
    return Slice(place, *markers, operations, reader=slice_rows.rows_of)


def test_spark_reads_the_rows_of_a_slice_in_ranges_with_their_values(spark, postgresql, tmp_path, monkeypatch):
    monkeypatch.setattr(slice_rows, "ROWS_PER_TASK", 7)
    numbers = sa.select(sa.column("number")).select_from(sa.table("orders"))
    for url in (f"sqlite:///{tmp_path / 'shop.db'}", str(postgresql.database())):
        made(url)
        monkeypatch.setenv("SHOP_URL", url)
        for start, end, expected in ((4, 30, range(5, 31)), (None, 99, range(40)), (60, 99, ())):
            frame = piece(start, end).read(spark, "env:SHOP_URL", "orders", by="at :%x")
            assert ",".join(kind for _, kind in frame.dtypes) == KINDS
            found = [tuple(each) for each in frame.selectExpr("* EXCEPT (`at :%x`)", "string(`at :%x`)").collect()]
            assert sorted(found) == [(*row(each)[:-1], f"{row(each)[-1]:%Y-%m-%d %H:%M:%S}") for each in expected]
        tasks = piece(4, 30).read(spark, url, "orders", by="at :%x").selectExpr("spark_partition_id()")
        assert tasks.distinct().count() == 4
        with monkeypatch.context() as limits:
            limits.setattr(slice_rows, "MOST_TASKS", 2)
            limits.setattr(slice_rows, "ROWS_PER_BATCH", 15)
            assert piece(4, 30).read(spark, url, "orders", by="at :%x").rdd.getNumPartitions() == 2
            read = slice_rows._reader(url, "orders", [numbers], StructType().add("number", LongType()))
            assert [batch.num_rows for batch in read([pa.record_batch([[0]], names=["id"])])] == [15, 15, 10]
        with pytest.raises(
            SourceUnavailable,
            match=r"orders has no column changed_at: found number, It`em.*Declare the name of an existing",
        ):
            piece(4, 30).read(spark, url, "orders", by="changed_at")
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("INSERT INTO orders (day, \"at :%%x\") VALUES ('-infinity', '2024-01-03')")
    with pytest.raises(PySparkException, match=r"column day .*: found '-infinity', expected a day.*Correct the row"):
        piece(60, 9_999).read(spark, url, "orders", by="at :%x").collect()


def test_spark_reads_sqlite_times_in_each_form_and_names_a_wrong_column(spark, tmp_path):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    forms = ["2024-01-01T12:00:00", "2024-01-01 12:01:00", "2024-01-01T14:02:00.5+02:00", "2024-01-01T12:03:00Z"]
    with sa.create_engine(url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (n INTEGER, at TIMESTAMP, day DATE, said TEXT)")
        for number, at in enumerate(forms):
            connection.exec_driver_sql("INSERT INTO orders VALUES (?, ?, '2024-01-01', ?)", (number, at, at))
        connection.exec_driver_sql("INSERT INTO orders VALUES (4, '2024-01-01 12:04:00', '0000-01-01', ?)", (forms[0],))
    for by in ("at", "said"):
        frame = piece(0, 3).read(spark, url, "orders", by=by).selectExpr("n", "string(at)", "day")
        assert sorted(map(tuple, frame.collect())) == [
            (1, "2024-01-01 12:01:00", date(2024, 1, 1)),
            (2, "2024-01-01 12:02:00.5", date(2024, 1, 1)),
            (3, "2024-01-01 12:03:00", date(2024, 1, 1)),
        ]
    with pytest.raises(
        PySparkException, match=r"orders: column day .* found '0000-01-01', expected a day .*Correct the row"
    ):
        piece(3, 9).read(spark, url, "orders", by="at").collect()


class Session:
    """A session whose JVM has every driver, and that records its reads."""

    def __init__(self) -> None:
        self.told: dict = {}
        loader = SimpleNamespace(loadClass=lambda name: name)
        current = SimpleNamespace(getContextClassLoader=lambda: loader)
        thread = SimpleNamespace(currentThread=lambda: current)
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(Thread=thread)))
        self.read = SimpleNamespace(jdbc=self._jdbc)

    def _jdbc(self, url: str, table: str, *, predicates: list, properties: dict) -> "Session":
        self.told = {"url": url, "table": table, "predicates": predicates, **properties}
        return self

    def selectExpr(self, *columns: str) -> "Session":  # noqa: N802  (its name in Spark)
        self.told["columns"] = columns
        return self


@each_case(
    ("url", "expected"),
    [
        (
            "postgresql+psycopg://me:p%40ss@db:5433/shop?sslmode=require",
            {"url": "jdbc:postgresql://db:5433/shop", "user": "me", "password": "p@ss", "sslmode": "require"},
        ),
        ("postgresql+psycopg:///shop", {"url": "jdbc:postgresql://localhost:5432/shop"}),
    ],
)
def test_with_a_jdbc_driver_each_range_is_read_by_a_predicate(spark, url, expected):
    session = Session()
    kinds = StructType().add("number", LongType()).add("seen_at", TimestampType()).add("a`t", TimestampNTZType())
    table = slice_rows._Table(url, sa.table("orders"), '"orders"', {}, kinds)
    assert slice_rows._has_driver(session, "org.postgresql.Driver")
    slice_rows._by_jdbc(session, table, ["at <= '1'", "at > '1'"])
    assert session.told == expected | {
        "table": '"orders"',
        "predicates": ["at <= '1'", "at > '1'"],
        "driver": "org.postgresql.Driver",
        "fetchsize": "10000",
        "customSchema": kinds.toDDL(),
        "columns": ("`number`", "`seen_at`", "CAST(`a``t` AS timestamp) AS `a``t`"),
    }


@each_case(
    ("kind", "value", "expected"),
    [
        (pa.int64(), "one", "column number has a value that is not a valid int64: .*"),
        (pa.int64(), 2.5, "column number has a value that is not a valid int64: .*"),
        (pa.decimal128(10, 2), 9.999, "column number has a value that is not a valid decimal.*: .*"),
        (pa.timestamp("us", "UTC"), 1706680800, "found 1706680800, expected a moment .* as 2024-01-31 06:00:00"),
        (pa.timestamp("us", "UTC"), 1706680800.5, "found 1706680800.5, expected a moment .*"),
        (pa.date32(), 19753, "column number .*: found 19753, expected a day .* as 2024-01-31"),
        (pa.date32(), "infinity", "column number .*: found 'infinity', expected a day of the years 1 to 9999.*"),
    ],
)
def test_a_value_of_another_type_than_its_column_is_refused_with_table_and_column(kind, value, expected):
    schema = pa.schema([("number", kind)])
    with pytest.raises(
        SourceUnavailable, match=rf"orders: .*{expected}\. Correct the row, or read a view that casts it"
    ):
        slice_rows._batch("orders", schema, [(None,), (value,)])
