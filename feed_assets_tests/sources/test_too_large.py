"""Rows that are far too large: one reject each, in little memory; rows around them are read."""

import io
import json
import tracemalloc
from contextlib import closing
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.limits import READ_BYTES, REJECT_BYTES, ROW_BYTES
from feed_assets.sources import databases
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.sql import SqlEvents
from feed_assets_tests.support.foreign_tables import Sql, encoded, read_all, row

FOLDER = "their/events"
LARGE = 60_000_000
LITTLE = 40_000_000
"""Limit of Python's memory in bytes: three copies of 10 MB, the size in which a store sends, and little for a row."""


def rows(first, last=None):
    return [row(number, "integer") for number in range(first, (last or first) + 1)]


def lines(kind, *numbers):
    """Return lines of these rows, without the header."""
    data = encoded(kind, [row(number, "integer") for number in numbers])
    return data if kind == "jsonl" else data.split(b"\r\n", 1)[1]


def read(board, kind, limit=10):
    """Read; return events, rejects, position, and the peak of memory."""
    tracemalloc.start()
    try:
        found, rejected, position = read_all(FileEvents(board, FOLDER, kind), limit=limit)
        return [each.correlation_id for each in found], rejected, position, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("start", [b"x", b'{"a": "', b'"', b"\xff"])
def test_a_line_of_60_mb_is_one_reject_and_not_kept_whole(local_board, kind, start):
    line = start + b"x" * LARGE + (start if start == b'"' else b"") + b"\n"
    local_board.put(f"{FOLDER}/1", encoded(kind, rows(1)) + line + lines(kind, 2, 3))
    found, (rejected,), _, peak = read(local_board, kind)
    assert found == ["c-1", "c-2", "c-3"]
    assert peak < LITTLE
    number = 2 if kind == "jsonl" else 3
    assert rejected.reason == f"{FOLDER}/1 line {number}: it has {len(line)} bytes: expected at most {ROW_BYTES}"
    assert f"({len(line)} bytes, sha256 {sha256(line).hexdigest()})" in rejected.raw
    assert len(rejected.raw.encode()) <= REJECT_BYTES


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_reading_continues_behind_a_too_large_record_from_every_position(local_board, kind):
    data = encoded(kind, rows(1)) + b"x" * 2_000_000 + b"\n" + lines(kind, 2)
    local_board.put(f"{FOLDER}/1", data)
    found, rejected, position, _ = read(local_board, kind, limit=1)
    assert (found, len(rejected)) == (["c-1", "c-2"], 1)
    local_board.put(f"{FOLDER}/1", data + lines(kind, 3))
    more, _, _ = read_all(FileEvents(local_board, FOLDER, kind), position)
    assert [each.correlation_id for each in more] == ["c-3"]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_the_end_of_a_file_is_waited_for_however_long_it_is_and_not_kept(local_board, kind):
    local_board.put(f"{FOLDER}/1", encoded(kind, rows(1)) + b"x" * LARGE)
    tracemalloc.start()
    batch = FileEvents(local_board, FOLDER, kind).read(None, 10)
    assert tracemalloc.get_traced_memory()[1] < LITTLE
    tracemalloc.stop()
    assert "has no newline yet" in batch.waits
    assert [each.correlation_id for each in batch.events] == ["c-1"]


def test_a_record_of_many_lines_in_quotes_has_the_same_limit(local_board):
    """Leave a quote open: the rest of the file is lost."""
    local_board.put(f"{FOLDER}/1", encoded("csv", rows(1)) + b'"' + b'x","\r\n' * 300_000 + b"x,y\r\n")
    local_board.put(f"{FOLDER}/2", encoded("csv", rows(3)))
    found, rejected, _, _ = read(local_board, "csv", limit=1000)
    assert found == ["c-1", "c-3"]
    (reason,) = [each.reason for each in rejected]
    assert f"expected at most {ROW_BYTES}; a quote that was opened in line 300002 is not closed" in reason


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_read_gives_rows_of_so_many_bytes(local_board, kind):
    large = json.dumps({"of": "x" * 60_000})
    many = [row(number, "integer", context=large) for number in range(1, 1201)]
    local_board.put(f"{FOLDER}/1", encoded(kind, many))
    source = FileEvents(local_board, FOLDER, kind)
    batch = source.read(None, 5000)
    assert READ_BYTES / 65_000 < len(batch.events) < READ_BYTES / 55_000
    assert not batch.is_complete
    assert len(read_all(source, batch.position, 5000)[0]) == 1200 - len(batch.events)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_dictionary_bomb_of_parquet_is_read_row_by_row_in_little_memory(local_board, says_so):
    """Use a few kB that expand to 2 GB: one long text, a thousand times."""
    many, one = 1000, pa.array([json.dumps({"of": "x" * 2_000_000})])
    bomb = pa.DictionaryArray.from_arrays(pa.array([0] * many, pa.int32()), one)
    names = {"table_name": "a", "correlation_id": "c", "write_operation": "UPSERT", "partition_key": ""}
    texts = {name: pa.array([value] * many) for name, value in names.items()}
    markers = pa.array(range(many))
    data = pa.table({**texts, "marker": markers, "event_marker": markers, "context": bomb})
    how = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": says_so}
    pq.write_table(data, written := io.BytesIO(), **how)
    assert len(written.getvalue()) < 100_000
    local_board.put(f"{FOLDER}/1", encoded("parquet", rows(1)))
    local_board.put(f"{FOLDER}/2", written.getvalue())
    local_board.put(f"{FOLDER}/3", encoded("parquet", rows(2)))
    found, rejected, _, peak = read(local_board, "parquet", limit=5000)
    assert (found, len(rejected)) == (["c-1", "c-2"], many)
    assert all(f"expected at most {ROW_BYTES}" in each.reason for each in rejected)
    assert peak < LITTLE
    assert pa.default_memory_pool().max_memory() < 8 * LITTLE


@pytest.mark.parametrize("value", ["infinity", "-infinity", "0044-03-15 00:00:00 BC", "20000-01-01"])
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_a_moment_that_python_has_no_value_for_is_one_reject(postgresql_url, kind, value):
    rejected = read_one(postgresql_url, kind, f"'{value}'")
    assert "is not a marker" in rejected.reason
    assert value.split()[0].removeprefix("0044") in rejected.raw


@pytest.mark.parametrize(("kind", "value"), [("numeric", "'NaN'"), ("numeric", "'Infinity'")])
def test_a_number_that_is_none_is_one_reject(postgresql_url, kind, value):
    assert "expected a whole number" in read_one(postgresql_url, kind, value).reason


DEEP = "repeat('{\"a\":', 5000) || '1' || repeat('}', 5000)"
DIGITS = "'{\"a\": 1' || repeat('0', 5000) || '}'"


@pytest.mark.parametrize("value", [DEEP, DIGITS, "repeat('x', 20000000)"])
def test_a_context_that_is_none_or_too_much_is_one_reject(postgresql_url, value):
    for kind in ("json", "jsonb", "text"):
        if kind == "text" or "20000000" not in value:
            assert "expected" in read_one(postgresql_url, "int", "1", kind, f"({value})::{kind}").reason


def read_one(url, kind, marker, context="text", value="'{}'"):
    """Return the one reject of a table; it is between two events, in each order of the rows."""
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        execute = connection.exec_driver_sql
        execute("DROP TABLE IF EXISTS events")
        execute(f"CREATE TABLE events (id int, table_name text, correlation_id text, marker {kind}, context {context})")
        good = "'2024-01-01'" if kind.startswith(("time", "date")) else "1"
        for number, (moment, more) in enumerate([(good, "'{}'"), (marker, value), (good, "'{}'")]):
            execute(f"INSERT INTO events VALUES ({number}, 'a', 'c-{number}', {moment}, {more})")  # noqa: S608
    engine.dispose()
    columns = Columns(event_marker=None, write_operation=None, partition_key=None)
    for order in ("id", "marker"):
        found, rejected, _ = read_all(
            SqlEvents(url, "events", columns, order_by=order), limit=1 if order == "id" else 5
        )
        assert [each.correlation_id for each in found] == ["c-0", "c-2"]
        if order == "id":
            (one,) = rejected
    assert len(one.raw.encode()) <= REJECT_BYTES
    return one


def test_text_that_is_not_utf_8_and_a_long_one_are_one_reject_each_of_sqlite(sqlite_url):
    with sa.create_engine(sqlite_url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE events (id INT, table_name TEXT, correlation_id TEXT, marker INT)")
        for number, text in enumerate(["'c-0'", "CAST(x'63ff' AS TEXT)", "printf('%.*c', 20000000, 'x')", "'c-3'"]):
            connection.exec_driver_sql(f"INSERT INTO events VALUES ({number}, 'a', {text}, {number})")  # noqa: S608
    columns = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
    found, rejected, _ = read_all(SqlEvents(sqlite_url, "events", columns, order_by="id"))
    assert [each.correlation_id for each in found] == ["c-0", "c-3"]
    assert "expected a correlation_id of printable characters" in rejected[0].reason
    assert f"column correlation_id has more than {ROW_BYTES} characters" in rejected[1].reason


def test_comments_and_defaults_that_are_too_long_are_not_fetched(postgresql, monkeypatch, subtests):
    """SQLAlchemy fetches them with the types of the columns. Three comments of 300 MB once took 2 GB of memory."""
    for statement in (
        "COMMENT ON COLUMN events.marker IS 'x…'",
        "ALTER TABLE events ALTER COLUMN context SET DEFAULT 'x…'",
        "CREATE DOMAIN word AS text CHECK (VALUE <> 'x…')",
        "CREATE DOMAIN word AS text DEFAULT 'x…'",
    ):
        with subtests.test(msg=statement), closing(Sql(postgresql.database(), "integer")) as made:
            with made.engine.begin() as connection:
                connection.exec_driver_sql(statement.replace("x…", "x" * 10_000))
            made.add(rows(1))
            assert len(made.source().read(None, 10).events) == 1
            monkeypatch.setattr(databases, "LONGEST_DESCRIPTION", 9_000)
            with pytest.raises(SourceUnavailable, match=r"of the columns of events, .* have \d+,\d{3} bytes: expected"):
                made.source().read(None, 10)
            monkeypatch.undo()
