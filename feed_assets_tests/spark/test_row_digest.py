"""The data version computed by numpy equals Spark's, for each type that it supports."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from feed_assets.core.feeds import Update
from feed_assets.reading.pages import read_pages
from feed_assets.reading.row_digest import RowDigest, is_flat
from feed_assets.spark.written_frame import write
from feed_assets_tests.support.spark_updates import PARTITION

SCHEMA = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h date, i timestamp, j timestamp_ntz, "
    "k string, l binary, m decimal(9,2), n decimal(18,0), o decimal(20,4), p decimal(38,18)"
)
LONGEST = (10**38 - 1) / Decimal(10**18)


def _rows(draw: random.Random, number: int) -> list[tuple]:
    def text() -> str:
        length = draw.choice([0, 1, 3, 4, 7, 8, 11, 12, 31, 32, 33, 63, 64, 100, 1000])
        return "".join(draw.choice("aé😀\x00z") for _ in range(length))

    def whole(bits: int) -> int:
        return draw.choice([0, -1, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, draw.randrange(2 ** (bits - 1))])

    def moment() -> dt.datetime:
        return dt.datetime(1600, 1, 1) + dt.timedelta(microseconds=draw.randrange(10**16))  # noqa: DTZ001

    def row() -> tuple:
        floats = [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), draw.random()]
        long = Decimal(draw.choice([0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63), draw.randrange(10**19)]))
        values = (
            draw.random() < 0.5,
            *(whole(bits) for bits in (8, 16, 32, 64)),
            draw.choice([*floats[:-1], 0.25]),
            draw.choice(floats),
            moment().date(),
            moment().replace(tzinfo=dt.UTC),
            moment(),
            text(),
            text().encode(),
            Decimal(whole(30)) / 100,
            Decimal(draw.choice([0, 10**18 - 1, -(10**18) + 1, draw.randrange(10**17)])),
            long / 10000 if abs(long) < 10**19 else Decimal(0),
            draw.choice(
                [long, -long / 10**18, Decimal(draw.randrange(10**37)) / 10**18, Decimal("-0.000000000000000001")]
            ),
        )
        return tuple(None if draw.random() < 0.15 else value for value in values)

    return [row() for _ in range(number)]


@pytest.mark.parametrize("number", [0, 1, 500])
def test_each_type_has_spark_s_digest(spark, local_board, number):
    rows = _rows(random.Random(number), number)  # noqa: S311
    frame = spark.createDataFrame(rows, SCHEMA)
    update_id = f"20210101.{number:06}"
    written = write(frame, local_board, PARTITION, update_id)
    digest = RowDigest(written.columns)
    pages = read_pages(local_board, Update(PARTITION, update_id, written.files), digest)
    assert (pages.rows, digest.records, digest.version) == (number, number, written.data_version)


def test_rows_may_come_in_any_order_and_in_slices():
    table = pa.table(
        {
            "k": ["a", None, "b" * 40, "c"],
            "o": pa.array([Decimal(300), None, Decimal(-1), Decimal(7)], pa.decimal128(20, 0)),
        }
    )
    columns = [("k", "string"), ("o", "decimal(20,0)")]
    one, other = RowDigest(columns), RowDigest(columns)
    for batch in table.to_batches():
        one.add(batch)
    for batch in (*table.slice(2).to_batches(), *table.slice(0, 1).to_batches(), *table.slice(1, 1).to_batches()):
        other.add(batch)
    assert one.version == other.version
    other.add(table.slice(1, 1).to_batches()[0])
    assert one.version != other.version


def test_nested_columns_are_left_to_spark():
    assert is_flat([("a", "string"), ("b", "decimal(38,18)")])
    assert not is_flat([("a", "array<int>")])
    assert not is_flat([("a", "struct<x:int>")])
