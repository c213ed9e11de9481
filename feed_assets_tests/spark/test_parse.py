"""Texts that each declared type accepts, as literal tables: text, value or reason."""

from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.message_words import with_article
from feed_assets.spark.input_frames import ddl
from feed_assets.spark.parse import complaint, value

REFUSED = object()
FINE = "more than"

INTEGERS = {
    "7": 7, "-7": -7, "007": 7, "0": 0, "2147483647": 2147483647,
    " 7": REFUSED, "7 ": REFUSED, "7\n": REFUSED, "+7": REFUSED, "7.0": REFUSED, "1e3": REFUSED, "1_0": REFUSED,
    "٣": REFUSED, "2147483648": REFUSED, "seven": REFUSED, "-": REFUSED, "0x1F": REFUSED, "7L": REFUSED,
}  # fmt: skip
SMALL = {"127": 127, "-128": -128, "128": REFUSED}
BIG = {"9223372036854775807": 9223372036854775807, "9223372036854775808": REFUSED}
DOUBLES = {
    "1": 1.0, "1.5": 1.5, "-0.25": -0.25, "1e3": 1000.0, "1.5E-3": 0.0015, "0.1": 0.1, "1e-999": 0.0,
    "NaN": REFUSED, "Infinity": REFUSED, "-inf": REFUSED, "1e999": REFUSED, ".5": REFUSED, "5.": REFUSED,
    "1d": REFUSED, "1,5": REFUSED, " 1": REFUSED, "1.5\n": REFUSED, "+1.5": REFUSED,
}  # fmt: skip
FLOATS = {"0.5": 0.5, "1e39": REFUSED}
DECIMALS = {
    "1.55": Decimal("1.55"), "1.5": Decimal("1.50"), "1.5500": Decimal("1.55"), "-3": Decimal("-3.00"),
    "999.99": Decimal("999.99"),
    "1.555": FINE, "1.0000000000000000000001": FINE, "1e3": REFUSED, "1000": REFUSED, "1000000000000000000000": REFUSED,
    "NaN": REFUSED, " 1": REFUSED, "1.": REFUSED, ".5": REFUSED, "1.55\n": REFUSED, "1.5555x": REFUSED,
    "1." + "0" * 998: Decimal("1.00"), "1." + "0" * 999: REFUSED,  # 1,000 bytes, and one more
    "1." + "0" * 400_000 + "1": FINE, "1" * 400_000: REFUSED,  # hours, if the time grew with the square
}  # fmt: skip
BOOLEANS = {
    "true": True, "False": False, "TRUE": True,
    "1": REFUSED, "0": REFUSED, "t": REFUSED, "yes": REFUSED, " true": REFUSED,
}  # fmt: skip
DATES = {
    "2020-02-29": date(2020, 2, 29),
    "2020": REFUSED, "2020-02": REFUSED, "2020-1-1": REFUSED, "2019-02-29": REFUSED, "2020-01-01 00:00:00": REFUSED,
    "20200101": REFUSED, " 2020-01-01": REFUSED, "12020-01-01": REFUSED,
}  # fmt: skip
MOMENTS = {
    "2019-11-24 00:01:03.979311+00:00": "2019-11-24 00:01:03.979311",
    "2019-11-24 00:01:03+00:00": "2019-11-24 00:01:03",
    "2019-11-24T00:01:03.9Z": "2019-11-24 00:01:03.9",
    "2019-11-24T00:01:03": "2019-11-24 00:01:03",
    "2019-11-24 00:01:03.979": "2019-11-24 00:01:03.979",
    "2019-11-24 05:31:03+05:30": "2019-11-24 00:01:03",
    "2019-11-23 19:01:03-0500": "2019-11-24 00:01:03",
    "2019-11-24 02:01:03+02": "2019-11-24 00:01:03",
    "2019-11-24 00:01:03.9793110Z": FINE, "2019-11-24 00:01:03.979311001+00:00": FINE,
    "2019-11-24 00:01:03.9793110": FINE,
    "2020": REFUSED, "2019-11-24": REFUSED, "2019-11-24 00:01": REFUSED, "2019-1-1 00:00:00": REFUSED,
    "2019-11-24 24:00:00": REFUSED, "2019-11-24 00:00:60": REFUSED, "2019-02-29 00:00:00": REFUSED,
    "2019-11-24 00:01:03 UTC": REFUSED, "2019-11-24 00:01:03 Europe/Berlin": REFUSED, "2019-11-24 00:01:03.Z": REFUSED,
    "2019-11-24 00:01:03+25:00": REFUSED, " 2019-11-24 00:01:03": REFUSED, "2019-11-24 00:01:03Z\n": REFUSED,
    "1574553663": REFUSED, "now": REFUSED, "epoch": REFUSED, "00:01:03": REFUSED,
}  # fmt: skip
LOCAL_MOMENTS = {
    "2019-11-24T00:01:03.5": "2019-11-24 00:01:03.5",
    "2019-11-24T00:01:03Z": REFUSED, "2019-11-24 00:01:03+01:00": REFUSED, "2019-11-24 00:01:03.1234567": FINE,
}  # fmt: skip
STRINGS = {"": "", " a ": " a ", "NULL": "NULL", "a\nb": "a\nb"}


def _reported(answer, kind):
    if answer is REFUSED:
        return None, f"c: not {with_article(str(kind))}"
    if answer is FINE:
        return None, f"c: more than {2 if kind.startswith('decimal') else 6} digits after the point"
    if kind.startswith("timestamp"):
        return datetime.fromisoformat(answer).isoformat(" ", "microseconds"), None
    return answer, None


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        ("int", INTEGERS), ("tinyint", SMALL), ("bigint", BIG), ("double", DOUBLES), ("float", FLOATS),
        ("decimal(5,2)", DECIMALS), ("boolean", BOOLEANS), ("date", DATES),
        pytest.param("timestamp", MOMENTS, marks=pytest.mark.connect),
        ("timestamp_ntz", LOCAL_MOMENTS), ("string", STRINGS),
    ],
)  # fmt: skip
def test_text_is_exactly_of_its_type_or_has_a_reason(spark, kind, table):
    texts = spark.createDataFrame([(text,) for text in table], "text string")
    declared = ddl(spark, f"c {kind}")["c"].dataType
    found = value(sf.col("text"), declared)
    shown = sf.date_format(found, "yyyy-MM-dd HH:mm:ss.SSSSSS") if kind.startswith("timestamp") else found
    rows = texts.select(
        "text", shown.alias("value"), complaint("c", sf.col("text"), declared, found).alias("reason")
    ).collect()
    assert {text: (got, reason) for text, got, reason in rows} == {
        text: _reported(answer, kind) for text, answer in table.items()
    }


def test_null_is_missing_and_no_error(spark):
    kind = ddl(spark, "c int")["c"].dataType
    rows = spark.createDataFrame([(None,)], "text string").select(
        value(sf.col("text"), kind), complaint("c", sf.col("text"), kind, value(sf.col("text"), kind))
    )
    assert rows.collect() == [(None, None)]


def test_a_timestamp_without_an_offset_is_utc_whatever_the_sessions_zone(spark):
    kind = ddl(spark, "c timestamp")["c"].dataType
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = spark.createDataFrame([("1970-01-01 00:00:01",)], "text string")
        assert rows.select(sf.unix_micros(value(sf.col("text"), kind))).collect() == [(1_000_000,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
