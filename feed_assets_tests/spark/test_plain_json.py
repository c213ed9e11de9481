"""The fast path for plain JSON lines: it agrees with the full path on every line, and programs write plain lines."""

import json
import random

import pytest
from pyspark.sql import functions as sf

from feed_assets.spark import plain_json
from feed_assets.spark.input_frames import ddl, read
from feed_assets.spark.plain_json import is_plain, order_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.spark_updates import put_update

SCHEMA = (
    "y tinyint, h smallint, i int, b bigint, f float, d double, m decimal(5,2), w decimal(38,0), "
    "p decimal(38,18), q decimal(38,38), s string, o boolean, a date, t timestamp, n timestamp_ntz"
)
ROW = {
    "y": 1, "h": -12, "i": 7, "b": 123456789012345678, "f": 1.5, "d": -0.1, "m": 1.25, "w": 12, "p": 1, "q": 0,
    "s": 'é "x"\\/\n',
    "o": True, "a": "2024-12-31", "t": "2024-02-28T23:59:59.123456+05:30", "n": "2024-01-30 00:00:00",
}  # fmt: skip
ODD = {
    "y": ["0", "-0", "99", "100", "127", "128", "-128", "-129", "1.0", '"1"', "null"],
    "h": ["9999", "32767", "32768", "-32768", "-32769"],
    "i": ["2147483647", "2147483648", "-2147483648", "1e3", "7.0", "true", "01", "+1"],
    "b": ["999999999999999999", "-9223372036854775808", "9223372036854775807", "9223372036854775808"],
    "f": [
        "0.1", "16777217", "-0.0", "1e30", "1e39", "123456789012345678", "3.4028236e38", "0.30000001192092896",
        "222452.2578125000000001",
    ],
    "d": [
        "0.1", "-0.0", "-0e5", "-0.0E1", "1e22", "1E-7", "1e99", "1e400", "123456789012345678", "4.9e-324", "NaN", "1.",
        ".5",
    ],
    "m": ["1", "999.99", "1000", "1.250", "1.255", '"1.25"', '"01.25"', '"1e1"', "-0.01", '" 1"'],
    "p": ["123456789012345.670123456789012345", "0.1", "-817554615762732073.231952716017553715", '"0.10"', "1e3"],
    "q": ["0." + "123456789" * 4, '"0.' + "987654321" * 4 + '"', "1", "-0.00000000000000000000000000000000000001"],
    "w": ["9" * 37, "9" * 38, "9" * 39, '"7"', "1.0"],
    "s": ['""', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\t"', "7", "{}", "[]", '"null"', '"😀\u2028"', '"\0"'],
    "o": ["false", '"true"', "True", "0"],
    "a": ['"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"0001-01-01"', '"2024-06-31"', '"2024-1-1"', '""'],
    "t": [
        '"2024-01-01 24:00:00"', '"2024-01-01 00:00:00"', '"2024-01-01T00:00:00Z"', '"2024-01-01T00:00:00+18:00"',
        '"2024-01-01T00:00:00-17:59"', '"2024-01-01T00:00:00+19"', '"2024-01-01 00:00:00.1234567"', '"2024-01-01"',
        '"1582-10-10 00:00:00"', '"2024-12-31T23:59:60Z"',
    ],
    "n": ['"2024-01-01 00:00:00Z"', '"0001-12-31 23:59:59.9"'],
}  # fmt: skip


def _line(members, colon=":", comma=",", end=""):
    return "{" + comma.join(f'"{name}"{colon}{value}' for name, value in members) + "}" + end


def _lines(seed):
    """Return lines of all fields in order with one or two odd values, some of them altered."""
    chance = random.Random(seed)  # noqa: S311
    usual = [(name, json.dumps(value, ensure_ascii=chance.random() < 0.5)) for name, value in ROW.items()]
    for name, odd in ODD.items():
        for value in odd:
            yield _line([(each, value if each == name else other) for each, other in usual])
    for _ in range(600):
        members = [(name, chance.choice([value] * 99 + ODD[name])) for name, value in usual if chance.random() < 0.9]
        if chance.random() < 0.3:
            members.insert(chance.randrange(len(members) + 1), chance.choice([("x", "1"), *usual]))
        if chance.random() < 0.2:
            chance.shuffle(members)
        text = _line(
            members,
            chance.choice([":", ": ", " :\t"]),
            chance.choice([",", ", ", " , ", ",", ",,"]),
            chance.choice(["", "", "", "\r", " x"]),
        )
        if chance.random() < 0.2:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice('{}[]",:\\ 0e.x') + text[at + chance.randrange(2) :]
        yield text.replace("\n", "")


@pytest.mark.parametrize("seed", range(3))
def test_the_fast_json_path_agrees_with_the_full_one(spark, local_board, monkeypatch, seed):
    update = put_update(local_board, {"a.json": "\n".join(_lines(seed))})

    def found():
        rows = read(spark, local_board, [update], "json", SCHEMA, required=["i"])
        return rows.select(*(sf.col(name).cast("string") for name in ROW), "_reasons", "_raw").collect()

    quick = found()
    lines = [row["_raw"] for row in quick]
    assert _are_plain(spark, lines, required=["i"]).count(True) > 100
    monkeypatch.setattr(plain_json, "_SIMPLE", 0)
    assert quick == found()


def _are_plain(spark, lines, schema=SCHEMA, required=(), order=()):
    frame = spark.createDataFrame([(line,) for line in lines], "value string")
    return [row[0] for row in frame.select(is_plain(sf.col("value"), ddl(spark, schema), required, order)).collect()]


def test_json_written_by_programs_takes_the_fast_path(spark):
    some = {name: value for name, value in ROW.items() if name not in ("h", "t")}
    lines = [
        json.dumps(ROW),
        json.dumps(ROW, separators=(",", ":")),
        json.dumps(ROW, ensure_ascii=False),
        json.dumps(some),
        json.dumps({**some, "i": None}),
        json.dumps(ROW) + "\r",
        "{}",
        json.dumps({"s": "x" * 1_000_000}),
        json.dumps({"s": "\n" * 90}),
    ]
    assert _are_plain(spark, lines) == [True] * len(lines)


def test_a_long_text_is_no_danger(spark):
    """Avoid recursion: Java's patterns recurse for each repetition of more than a single character."""
    assert _are_plain(spark, [json.dumps({"s": "\n" * 1_000_000}), '{"s": "' + "x" * 1_000_000]) == [False, False]


def test_a_text_that_spark_s_parser_refuses_is_as_it_is_the_long_way(spark, local_board, monkeypatch):
    update = put_update(
        local_board, {"a.json": json.dumps({"s": "x" * 21_000_000}) + "\n" + json.dumps({"s": "y" * 4_000_000})}
    )

    def found():
        rows = read(spark, local_board, [update], "json", "s string")
        return rows.select(sf.length("s"), "_reasons").collect()

    quick = found()
    monkeypatch.setattr(plain_json, "_SIMPLE", 0)
    assert quick == found()
    assert quick[1] == (4_000_000, [])


def test_fields_are_plain_in_the_order_of_the_first_line_alone(spark, local_board):
    update = put_update(local_board, {"a.json": '{"o": true, "i": 7, "new": 1}\n', "b.json": '{"i": 7}\n'})
    order = order_of(local_board, update.files)
    assert order == ["o", "i", "new"]
    plan = read(spark, local_board, [update], "json", SCHEMA)._jdf.queryExecution().toString()
    assert 0 < plan.index(r"\Qo\E") < plan.index(r"\Qi\E")
    assert _are_plain(spark, ['{"o":true,"i":7}', '{"i":7,"o":true}', '{"o":true,"i":7,"y":1}'], order=order) == [
        True, False, True,
    ]  # fmt: skip


@each_case(
    "first",
    [b"", b"{", b"[1]\n", b"\xff\xfe\n", b"{" * 100_000, b"[" * 100_000, b"7\n"],
    ids=lambda first: str(first[:9]),
)
def test_a_first_line_that_is_no_object_has_no_order(local_board, first):
    assert order_of(local_board, put_update(local_board, {"a.json": first}).files) == []


def test_a_required_field_must_be_there_in_a_plain_line(spark):
    lines = ['{"i":7}', '{"i":null}', "{}", '{"y":1,"i":7}']
    assert _are_plain(spark, lines, required=["i"]) == [True, False, False, True]


def test_wide_schemas_and_types_without_a_pattern_are_judged_the_long_way(spark):
    wide = ", ".join(f"c{n} int" for n in range(65))
    assert _are_plain(spark, ['{"c0":1}'], schema=wide) == [False]
    assert _are_plain(spark, ['{"c0":1}'], schema=wide.replace(", c64 int", "")) == [True]
    assert _are_plain(spark, ['{"i":1}'], schema="i int, x binary") == [False]
