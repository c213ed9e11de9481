"""Reading JSON lines: no value changes its type, no line holds more or less than one record."""

import gzip
from decimal import Decimal

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.spark.input_frames import read
from feed_assets.spark.spark_errors import reading
from feed_assets_tests.support.spark_updates import put_update

SCHEMA = "i int, b bigint, d double, m decimal(5,2), s string, t timestamp, o boolean"
MALFORMED = ["malformed: expected one JSON object"]

CLEAN = {
    '{"i": 7, "b": 9223372036854775807, "d": 1e3, "m": 1.50, "s": "x", "t": "2019-11-24T00:00:00Z", "o": true}': (
        7, 9223372036854775807, 1000.0, Decimal("1.50"), "x", "2019-11-24 00:00:00", True,
    ),
    '{"m": "1.50", "s": null}': (None, None, None, Decimal("1.50"), None, None, None),
    '  {"i": 7.0, "d": 1, "s": "a\\nb\\u00e9\\ud83d\\ude00 }"}\t': (7, None, 1.0, None, "a\nbé😀 }", None, None),
    "{}": (None,) * 7,
}  # fmt: skip

REJECTED = {
    '{"i": "7"}': ["i: not an int"],
    '{"i": 7.5}': ["i: not an int"],
    '{"i": 1e3}': ["i: not an int"],
    '{"i": 2147483648}': ["i: not an int"],
    '{"b": 9223372036854775808}': ["b: not a bigint"],
    '{"d": "1.5"}': ["d: not a double"],
    '{"d": 1e999}': ["d: not a double"],
    '{"d": NaN}': MALFORMED,
    '{"m": 1.555}': ["m: more than 2 digits after the point"],
    '{"m": 1e1}': ["m: not a decimal(5,2)"],
    '{"m": 1.00000000000000000000000000000000000000000000001}': ["m: not a decimal(5,2)"],
    '{"s": 7}': ["s: not a string"],
    '{"s": {"a": 1}}': ["s: not a string"],
    '{"s": ["a"]}': ["s: not a string"],
    '{"o": "true"}': ["o: not a boolean"],
    '{"o": 1}': ["o: not a boolean"],
    '{"t": 1574553663}': ["t: not a timestamp"],
    '{"t": "2019-11-24 00:00:00.1234567Z", "i": "x"}': ["i: not an int", "t: more than 6 digits after the point"],
    '{"i": 1, "x": 2, "y": 3}': ["unknown fields: x, y"],
    '{"I": 1}': ["unknown fields: I"],
    '{"i": 1, "i": 2}': MALFORMED,
    '{"i": 1}{"i": 2}': MALFORMED,
    '{"i": 1} {"i": 2}': MALFORMED,
    '{"i": 1}, {"i": 2}': MALFORMED,
    '{"i": 1}] x': MALFORMED,
    '{"i": 1}} x': MALFORMED,
    '{"i": 1}, "i": 2': MALFORMED,
    '{"i": 1': MALFORMED,
    "{'i': 1}": MALFORMED,
    '{"i": 01}': MALFORMED,
    '{"i": 1,}': MALFORMED,
    '{"s": "a\tb"}': MALFORMED,
    '{"s": "\\ud83d"}': MALFORMED,
    '[{"i": 1}]': MALFORMED,
    "7": MALFORMED,
    "null": MALFORMED,
    "i,b,d": MALFORMED,
}


def _values(row):
    return (*row[:5], row["at"], row["o"])


@pytest.mark.connect
def test_every_line_is_clean_or_rejected_with_its_text_and_reasons(spark, local_board):
    lines = [*CLEAN, *REJECTED]
    update = put_update(local_board, {"part.json": "\ufeff" + "\r\n".join([*lines, "", "  "])})
    rows = read(spark, local_board, [update], "json", SCHEMA).withColumn("at", sf.col("t").cast("string")).collect()
    told = {row["_raw"].removesuffix("\r").removeprefix("\ufeff"): row for row in rows}
    assert {line: sorted(row["_reasons"]) for line, row in told.items()} == {**{line: [] for line in CLEAN}, **REJECTED}
    assert {line: _values(told[line]) for line in CLEAN} == CLEAN
    assert len(rows) == len(lines)
    assert {row["_file"] for row in rows} == {update.files[0].key}


def test_invalid_utf8_is_rejected_and_a_real_replacement_character_accepted(spark, local_board):
    update = put_update(local_board, {"part.json": b'{"s": "\xff"}\n{"s": "\xef\xbf\xbd"}\n'})
    rows = read(spark, local_board, [update], "json", "s string").select("s", "_raw", "_reasons").collect()
    assert rows == [("\ufffd", '{"s": "\ufffd"}', ["not UTF-8"]), ("\ufffd", '{"s": "\ufffd"}', [])]


def test_null_and_absence_are_both_missing_but_a_wrong_type_is_only_wrong(spark, local_board):
    update = put_update(local_board, {"part.json": '{"i": null}\n{}\n{"i": "7"}\n{"i": 7}\n'})
    rows = read(spark, local_board, [update], "json", "i int", required=["i"]).select("_reasons").collect()
    assert [row[0] for row in rows] == [["i: missing"], ["i: missing"], ["i: not an int"], []]


def test_an_empty_file_has_no_lines_but_an_empty_packed_one_was_cut(spark, local_board):
    assert read(spark, local_board, [put_update(local_board, {"a.json": ""})], "json", "i int").count() == 0
    with pytest.raises(UnreadableUpdate, match="is empty"):
        read(spark, local_board, [put_update(local_board, {"a.json.gz": ""})], "json", "i int")
    update = put_update(local_board, {"a.json.gz": gzip.compress(b'{"i": 1}\n' * 1000)[:-12]})
    with pytest.raises(UnreadableUpdate, match=r"a\.json\.gz cannot be read"), reading([update]):
        read(spark, local_board, [update], "json", "i int").collect()


def test_columns_may_have_the_names_of_internal_ones(spark, local_board):
    update = put_update(local_board, {"a.json": '{"_id": 1, "_record": 2, "_keys": "x", "_texts": 3, "_wrong": 4}\n'})
    frame = read(spark, local_board, [update], "json", "_id int, _record int, _keys int, _texts int, _wrong int")
    assert [(*row[:5], row["_reasons"]) for row in frame.collect()] == [(1, 2, None, 3, 4, ["_keys: not an int"])]


def test_a_dot_in_a_json_field_name_is_part_of_the_name(spark, local_board):
    update = put_update(local_board, {"a.json": '{"a.b": 1, "c d": 2}\n'})
    frame = read(spark, local_board, [update], "json", "`a.b` int, `c d` int")
    assert frame.select("`a.b`", "`c d`", "_reasons").collect() == [(1, 2, [])]
