"""Rows of a slice, written by Spark into Parquet, against one process that uses SQLAlchemy and Arrow."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Memory, Pair, at_home
from feed_assets import Operation, Partition, Slice
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed
from feed_assets.settings import settings
from feed_assets.sources.slice_rows import ROWS_PER_BATCH, rows_of
from feed_assets.spark.session import session
from feed_assets_tests.support.servers import postgresql_server

ROWS, SERVED_ROWS = 10_000_000, 1_000_000
HEAP = {"spark_conf": '{"spark.driver.memory": "1g"}'}
CONTENT = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
    "INSERT INTO visits SELECT n, strftime('%Y-%m-%d %H:%M:%f', 1767225600 + n * 0.01, 'unixepoch'), n % 1000, n / 7.0 "
    "FROM numbers",
    "postgresql": "INSERT INTO visits SELECT n, to_timestamp(1767225600 + n * 0.01), n %% 1000, n / 7.0 "
    "FROM generate_series(1, {rows}) AS n",
}
"""Statement for each database that fills the table with rows whose markers are distinct."""


def fill(url: str, rows: int) -> None:
    """Create a table of four columns, with an index on its markers."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE visits (n BIGINT, at TIMESTAMP, item INTEGER, price FLOAT)")
        connection.exec_driver_sql(CONTENT[engine.dialect.name].format(rows=rows))
        connection.exec_driver_sql("CREATE INDEX visits_at ON visits (at)")


def by_slice(spark: Any, url: str, folder: Path) -> Memory:
    """Read the whole table as a slice, and write it. Return the memory peaks of the processes that did."""
    place, end = Partition(Feed.parse("b/visits"), ""), encode(datetime(2030, 1, 1, tzinfo=UTC))
    piece = Slice(place, None, end, frozenset({Operation.UPSERT}), reader=rows_of)
    piece.read(spark, url, "visits", by="at").write.mode("overwrite").parquet(str(folder))
    peaks: dict[bool, int] = {}
    for process in psutil.Process().children(recursive=True):
        is_jvm = process.name() == "java"
        peaks[is_jvm] = max(peaks.get(is_jvm, 0), _peak(process.pid))
    return Memory(peaks.get(True, 0), peaks.get(False, 0))


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) // 1_000 for line in lines if line.startswith("VmHWM")), 0)


def by_hand(url: str, file: Path) -> None:
    """Copy the same rows batch by batch in this process."""
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    table = sa.Table("visits", sa.MetaData(), autoload_with=engine)
    kinds: list[tuple[str, Any]] = [
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("item", pa.int64()),
        ("price", pa.float64()),
    ]
    schema = pa.schema(kinds)
    with engine.connect() as connection, pq.ParquetWriter(file, schema) as written:
        for rows in connection.execution_options(yield_per=ROWS_PER_BATCH).execute(sa.select(table)).partitions():
            columns = zip(zip(*rows, strict=True), schema.types, strict=True)
            written.write_batch(pa.record_batch([pa.array(values, kind) for values, kind in columns], schema=schema))


@contextmanager
def of_table(url: str, rows: int, root: Path) -> Iterator[Pair]:
    """Compare both ways on a table of `rows` rows, in a session with a small heap."""
    with at_home(root, **HEAP):
        fill(url, rows)
        spark = session(settings())
        yield Pair(partial(by_slice, spark, url, root / "slice"), partial(by_hand, url, root / "floor.parquet"))


@contextmanager
def of_sqlite() -> Iterator[Pair]:
    """Read 10 million rows of a SQLite file."""
    with TemporaryDirectory() as root, of_table(f"sqlite:///{root}/shop.db", ROWS, Path(root)) as pair:
        yield pair


@contextmanager
def of_postgresql() -> Iterator[Pair]:
    """Read 1 million rows of a PostgreSQL server."""
    with (
        TemporaryDirectory() as root,
        postgresql_server() as server,
        of_table(server.database(), SERVED_ROWS, Path(root)) as pair,
    ):
        yield pair


def _benchmark(name: str, what: str, prepare: Callable[[], AbstractContextManager[Pair]]) -> Benchmark:
    return Benchmark(name, what, "one process, SQLAlchemy and Arrow", Goal(1.5), 5, 2, prepare, large=True)


BENCHMARKS = [
    _benchmark("slice-10m", f"Slice.read of {ROWS:,} rows of SQLite into Parquet, heap of 1 GB", of_sqlite),
    _benchmark("slice-1m", f"Slice.read of {SERVED_ROWS:,} rows of PostgreSQL into Parquet", of_postgresql),
]
