"""The CSV dialect of chunks, by round trip: through our own reader, PostgreSQL's COPY and DuckDB."""

import json
import math
import subprocess
import sys
import tracemalloc
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.core.topics import Topic
from feed_assets.kafka import dialect
from feed_assets.kafka.dialect import Unwritable
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import ROOT

TEXTS = [
    "",
    " ",
    " both ",
    "a,b",
    'say "hi"',
    '"',
    '""',
    "a\nb",
    "a\rb",
    "a\r\nb",
    "\n",
    "\r",
    ",",
    "\\N",
    "\\",
    "\\.",
    "NULL",
    "null",
    "nan",
    "1",
    "007",
    "true",
    "2026-01-31",
    "\t",
    "\x01\x1f\x7f",
    "\x85\u2028\ufeff",
    "ünïcode",
    "👩‍👩‍👧‍👦🇩🇪",
    "\U0010ffff",
    "#",
    "'",
    "a;b|c",
    "x" * 1_000_000,
    ',"\n' * 300_000,
    None,
]
LONGS = [0, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), None]
DOUBLES = [0.0, -0.0, 0.1, 1.5e308, 5e-324, -1e-300, 0.10000000149011612, math.inf, -math.inf, math.nan, None]
DECIMALS = ["0", "0.0000000001", "-12345678901234567890123456.0123456789", "1E+3", "1E-9", None]
DATES = [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31), None]
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
    None,
]
TIMES = [time(0), time(23, 59, 59, 999_999), time(12, 0, 0, 1), None]
BYTES = [b"", b"\x00\xff", b"abc", bytes(range(256)), None]
COLUMNS = {
    "text": (TEXTS, "text"),
    "long": (LONGS, "bigint"),
    "double": (DOUBLES, "double precision"),
    "decimal": ([value and Decimal(value) for value in DECIMALS], "decimal(38, 10)"),
    "boolean": ([True, False, None], "boolean"),
    "date": (DATES, "date"),
    "timestamp": (MOMENTS, "timestamptz"),
    "local": ([value and value.replace(tzinfo=None) for value in MOMENTS], "timestamp"),
    "time": (TIMES, "time"),
    "uuid": ([UUID(int=0), UUID(int=2**128 - 1), None], "uuid"),
    "hex": ([value and value.hex() if value else value for value in (*BYTES[1:],)], "text"),
}


def table(values, name="value"):
    """Return a chunk with numbered lines: a file of one empty column would have empty lines."""
    return b"".join([dialect.line(["n", name]), *(dialect.line(each) for each in enumerate(values))])


def cells(content):
    return [cell for _, cell in [*dialect.read(content)][1:]]


def same(found, expected):
    """Compare values: NaN equals NaN, and 0.0 differs from -0.0."""
    return [repr(each) for each in found] == [repr(each) for each in expected]


def test_texts_come_back_as_they_were():
    assert cells(table(TEXTS)) == TEXTS
    for content in (table(["x" * 1_000_000]), table(['"' * 500_000])):
        tracemalloc.start()
        assert sum(map(len, dialect.lines(content))) == len(content)
        assert len([*dialect.read(content)]) == 2
        assert tracemalloc.get_traced_memory()[1] < 4 * len(content)  # Producers make cells of 32 MB.
        tracemalloc.stop()


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))))
def test_any_text_survives_the_dialect(texts):
    content = table(texts)
    assert cells(content) == texts
    assert [*dialect.lines(content)][1:] == [dialect.line(each) for each in enumerate(texts)]


@each_case(
    ("value", "written"),
    [
        (None, "\\N"),
        ("\\N", '"\\N"'),
        ("", '""'),
        ('a"b', '"a""b"'),
        (True, "true"),
        (False, "false"),
        (-(2**63), "-9223372036854775808"),
        (0.1, "0.1"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1.10"), "1.10"),
        (b"\x00\xff", '"00ff"'),
        (b"", '""'),
        (date(2026, 1, 31), '"2026-01-31"'),
        (time(1, 2, 3), '"01:02:03.000000"'),
        (datetime(2026, 1, 31, 1, 2, 3, tzinfo=UTC), '"2026-01-31 01:02:03.000000+00:00"'),
        (datetime(2026, 1, 31, 1, 2, 3, tzinfo=UTC).replace(tzinfo=None), '"2026-01-31 01:02:03.000000"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (["a", 1, None, True], '"[""a"",1,null,true]"'),
        ({"b": 1, "a": {"é": b"\x01"}}, '"{""b"":1,""a"":{""é"":""01""}}"'),
        ({"d": Decimal("1.10"), "t": date(2026, 1, 31)}, '"{""d"":""1.10"",""t"":""2026-01-31""}"'),
    ],
)
def test_each_value_is_written_in_its_tabled_form(value, written):
    assert dialect.line([value]).decode() == f"{written}\n"


DEEP = reduce(lambda value, _: [value], range(100_000), 1)
LONG, MANY = "x" * 1000, 40_000
"""A symbol or name that one byte of a message stands for, and more of them than a line has room for."""

REFUSED = [
    *(
        [each]
        for each in ("\0", "a\0b", "\ud800", "a\udfff", ["\ud800"], {"\udc00": 1}, ["\0"], [{"a\0": "\\\0"}], DEEP)
    ),
    [[LONG] * MANY],
    [{"a": [{LONG: True}] * MANY}],
    [[Decimal("1E-1000"), Decimal("0E-1000")] * (MANY // 2)],
    [[LONG] * (MANY // 2), {"a": [[LONG] * (MANY // 2)]}],
]
"""Cells of one line."""


@each_case("number", range(len(REFUSED)))
def test_values_that_no_database_accepts_are_refused(number):
    with pytest.raises(Unwritable, match=r"NUL|not valid Unicode|nested too deeply|more than 33,554,432 characters"):
        dialect.line([1, *REFUSED[number]])


NESTED = [
    [math.nan, {"up": math.inf, "down": [-math.inf, None, 0.5, {"deep": math.nan}]}],
    {"no NUL": ["\\u0000", "\\\\u0000"], "at": [date(2026, 1, 31), math.inf]},
]
"""Numbers that JSON does not have, and texts that look like a NUL."""


def test_json_cells_are_valid_for_every_database(connection):
    texts = cells(table(NESTED))
    assert [json.loads(each, parse_constant=pytest.fail) for each in texts] == [
        ["nan", {"up": "inf", "down": ["-inf", None, 0.5, {"deep": "nan"}]}],
        {"no NUL": ["\\u0000", "\\\\u0000"], "at": ["2026-01-31", "inf"]},
    ]
    assert copied(connection, table(NESTED), "jsonb") == [json.loads(each) for each in texts]
    queries = [f"SELECT json_extract_string($json${each}$json$::JSON, '$')" for each in texts]
    assert [json.loads(rows[0][0]) for rows in asked(queries)] == [json.loads(each) for each in texts]


@each_case("content", [b'"a\n', b'"a"b\n', b'a"b\n', b"1,2", b'1,"2"'])
def test_text_outside_of_the_dialect_is_refused(content):
    with pytest.raises(ValueError, match=r"not begin a cell|no newline"):
        [*dialect.read(content)]


@pytest.fixture(scope="module")
def connection(postgresql):
    with psycopg.connect(postgresql.uri, autocommit=True, prepare_threshold=None) as opened:
        opened.execute("SET timezone = 'Asia/Kolkata'")
        yield opened


def copied(connection, content, kind):
    """Return the values that PostgreSQL reads by COPY, from its driver; columns beyond Python's dates as text."""
    connection.execute("DROP TABLE IF EXISTS chunk")
    connection.execute(f"CREATE TEMP TABLE chunk (n int, value {kind})")
    with connection.cursor().copy(f"COPY chunk FROM STDIN ({POSTGRESQL})") as copy:
        copy.write(content)
    return [row[0] for row in connection.execute("SELECT value FROM chunk ORDER BY n")]


POSTGRESQL = f"FORMAT csv, HEADER true, NULL '{dialect.NULL}'"
DUCKDB = f"header=true, delim=',', quote='\"', escape='\"', nullstr='{dialect.NULL}', allow_quoted_nulls=false"


@pytest.mark.parametrize("column", COLUMNS)
def test_postgresql_reads_the_written_values(connection, column):
    values, kind = COLUMNS[column]
    found = copied(connection, table(values), kind)
    if column == "timestamp":
        found = [value and value.astimezone(UTC) for value in found]
    assert found == values if column != "double" else same(found, values)


@pytest.fixture(scope="module")
def by_duckdb(tmp_path_factory) -> dict[str, list]:
    """Return the values that DuckDB reads in each column; moments in microseconds."""
    folder = tmp_path_factory.mktemp("chunks")
    queries = [_query(folder / f"{column}.csv", column) for column in COLUMNS]
    for column, (values, _) in COLUMNS.items():
        (folder / f"{column}.csv").write_bytes(table(values))
    return {column: [row[0] for row in rows] for column, rows in zip(COLUMNS, asked(queries), strict=True)}


def _query(path: Path, column: str) -> str:
    shown = "value" if column not in ("timestamp", "local") else "epoch_us(value)"
    options = (
        f"{DUCKDB}, columns={{'n': 'int', 'value': '{COLUMNS[column][1]}'}}, max_line_size=10000000, parallel=false"
    )
    return f"FROM read_csv('{path}', {options}) SELECT {shown} ORDER BY n"


def asked(queries: list[str]) -> list:
    program = Path(__file__).with_name("duck.py")
    done = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(queries), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@each_case("column", COLUMNS)
def test_duckdb_reads_the_written_values(by_duckdb, column):
    values, found = COLUMNS[column][0], by_duckdb[column]
    if column in ("timestamp", "local"):
        values = [value and micros(value.replace(tzinfo=UTC)) for value in values]
    if column == "decimal":
        assert [value and Decimal(value) for value in found] == values
    else:
        assert same(found, json.loads(json.dumps(values, default=str)))


def micros(moment):
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def test_postgresql_and_duckdb_decode_bytes(connection):
    values = [each for each in BYTES if each is not None]
    texts = copied(connection, table(values), "text")
    assert [connection.execute("SELECT decode(%s, 'hex')", [text]).fetchone()[0] for text in texts] == values
    assert [rows[0][0] for rows in asked([f"SELECT hex(unhex('{text}'))" for text in texts])] == [
        each.hex().upper() for each in values
    ]


@settings(max_examples=20)
@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), max_size=200))
def test_postgresql_reads_any_text(connection, texts):
    assert copied(connection, table(texts), "text") == texts


def test_the_docs_have_the_table_of_the_code():
    rows = [row for row in dialect.__doc__.splitlines() if row.startswith("| ")]
    assert len(rows) > 8
    assert [row for row in rows if row not in (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")] == []


def test_the_docs_have_every_field_of_a_topic():
    docs = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    names = {*Topic.model_fields} - {"columns"} | {"schema"}  # The argument of a declaration has this name.
    assert [name for name in sorted(names) if f"\n| `{name}` |" not in docs] == []
