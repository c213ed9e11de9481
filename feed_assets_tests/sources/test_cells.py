"""Too long cells are cut in the database: the fetched bytes are counted, row by row and cell by cell."""

import json
import tracemalloc
from decimal import Decimal
from unittest.mock import patch

import psycopg
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidEvent, SourceUnavailable
from feed_assets.core.events import LAST_VERSION
from feed_assets.core.limits import READ_BYTES, ROW_BYTES
from feed_assets.sources.cells import NUMBER_CHARACTERS
from feed_assets.sources.databases import _reader
from feed_assets.sources.event_rows import Columns, as_marker
from feed_assets.sources.lineage_table import read_lineage, read_lineage_file
from feed_assets.sources.sql import ORDER_BYTES, SqlEvents
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import read_all

LONG = 3_000_000
KINDS = {
    "sqlite": ["TEXT", "JSON", "INT", "", "BLOB"],
    "postgresql": ["text", "json", "jsonb", "bytea", "text[]", "varchar"],
}
THEIRS = Columns(event_marker=None, write_operation=None, partition_key=None, context=None, others_in_context=True)


@pytest.fixture
def execute(url):
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection.exec_driver_sql
    engine.dispose()


def table(execute, kind, *values):
    """Create an event table with a column `more` of this type, and a row for each value."""
    execute("DROP TABLE IF EXISTS events")
    execute(f"CREATE TABLE events (id int, table_name text, correlation_id text, marker int, more {kind})")
    for number, value in enumerate(values):
        execute(f"INSERT INTO events VALUES ({number}, 'a', 'c-{number}', {number}, {value})")  # noqa: S608


def longest(url, source, execute):
    """Read, and return the batch with the longest cell that its query fetches: the query is repeated to measure it."""
    asked, stream = [], psycopg.Cursor.stream

    def note(*told):
        asked.append(told[2:4])

    def note_stream(cursor, statement, parameters):
        asked.append((statement, parameters))
        return stream(cursor, statement, parameters)

    sa.event.listen(_reader(url), "before_cursor_execute", note)
    try:
        with patch.object(psycopg.Cursor, "stream", note_stream):
            batch = source.read(None, 10)
    finally:
        sa.event.remove(_reader(url), "before_cursor_execute", note)
    statement, parameters = asked[-1]
    found = [len(cell) for row in execute(statement, parameters) for cell in row if isinstance(cell, str | bytes)]
    return batch, max(found)


def test_a_cell_of_any_type_is_cut_where_it_is_and_is_one_reject(url, execute):
    backend = sa.make_url(url).get_backend_name()
    for kind in KINDS[backend]:
        table(execute, kind, *(long_value(backend, kind, size) for size in (10, LONG, 10)))
        batch, most = longest(url, SqlEvents(url, "events", THEIRS, order_by="id"), execute)
        assert [each.correlation_id for each in batch.events] == ["c-0", "c-2"], kind
        (rejected,) = batch.rejected
        assert f"column more has more than {ROW_BYTES}" in rejected.reason
        assert most == ROW_BYTES + 1


def long_value(backend, kind, size):
    if backend == "sqlite":
        return f"zeroblob({size})" if kind == "BLOB" else f"printf('%.*c', {size}, 'x')"
    text = f"repeat('x', {size})"
    made = {"bytea": f"{text}::bytea", "text[]": f"ARRAY[{text}]"}
    return made.get(kind, f"to_jsonb({text})::{kind}" if kind.startswith("json") else text)


def test_json_and_arrays_keep_their_structure_in_the_context(postgresql_url):
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for kind, value, expected in [
            ("jsonb", """'{"a": [1, null]}'""", {"a": [1, None]}),
            ("json", """'"text"'""", "text"),
            ("int[]", "ARRAY[1, 2]", [1, 2]),
            ("boolean", "true", True),
            ("inet", "'127.0.0.1'", "127.0.0.1"),
        ]:
            table(connection.exec_driver_sql, kind, value)
            (found,), _, _ = read_all(SqlEvents(postgresql_url, "events", THEIRS, order_by="id"))
            assert json.loads(json.dumps(dict(found.context))) == {"id": 0, "more": expected}
    engine.dispose()


def test_a_custom_database_type_is_read_as_text(postgresql_url):
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TYPE mood AS ENUM ('fine')")
        table(connection.exec_driver_sql, "mood", "'fine'")
        (found,), _, _ = read_all(SqlEvents(postgresql_url, "events", THEIRS, order_by="id"))
        assert found.context == {"id": 0, "more": "fine"}
    engine.dispose()


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_read_of_a_table_gives_no_more_rows_than_fit(url, execute, kind):
    value = json.dumps("x" * 1_000_000)
    table(execute, kind, *[f"'{value}'"] * 50)
    source = SqlEvents(url, "events", THEIRS, order_by="id")
    batch = source.read(None, 5000)
    count = len(batch.events) + len(batch.rejected)
    assert not batch.is_complete
    assert READ_BYTES < count * len(value) < READ_BYTES + 2 * len(value)
    events, rejected, _ = read_all(source, batch.position, 5000)
    assert count + len(events) + len(rejected) == 50


def test_texts_by_which_a_table_is_ordered_may_be_long_and_alike_where_they_are_cut(sqlite_url):
    columns = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
    with sa.create_engine(sqlite_url, poolclass=sa.NullPool).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE events (at TEXT, table_name TEXT, correlation_id TEXT, marker INT)")
        for number in range(6):
            at = f"printf('%.*c', {LONG}, 'x') || '{number}'"
            connection.exec_driver_sql(f"INSERT INTO events VALUES ({at}, 'a', 'c-{number}', {number})")  # noqa: S608
    for limit in (1, 4, 10):
        events, rejected, _ = read_all(SqlEvents(sqlite_url, "events", columns, order_by="at"), limit=limit)
        assert (events, len(rejected)) == ([], 6)


def test_a_read_of_many_large_rows_takes_the_memory_of_few(postgresql_url):
    columns, large, count = ("table_name", "correlation_id", "write_operation", "partition_key", "context"), 4 << 20, 16
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        texts = ", ".join(f"{each} text" for each in columns)
        connection.exec_driver_sql(f"CREATE TABLE events (id int, marker int, event_marker int, {texts})")
        cells = ", ".join(["repeat('😀', 1048576)"] * len(columns))
        connection.exec_driver_sql(f"INSERT INTO events SELECT n, n, n, {cells} FROM generate_series(1, {count}) n")  # noqa: S608
    engine.dispose()
    tracemalloc.start()
    try:
        batch = SqlEvents(postgresql_url, "events", order_by="id").read(None, 5000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert READ_BYTES // (len(columns) * large) < len(batch.rejected) + len(batch.events) < 4
    assert peak < count * len(columns) * large * 3 // 4


def test_numbers_of_many_digits_stay_texts_and_short_ones_are_numbers(postgresql_url):
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        execute = connection.exec_driver_sql
        execute("CREATE TABLE events (id numeric, table_name text, correlation_id text, marker numeric, more numeric)")
        long, longest, rows = f"1{'0' * NUMBER_CHARACTERS}", "repeat('9', 131000)::numeric", list[str]()
        for marker, more in [("5.0", "1.50"), (longest, "1"), ("'NaN'", "1"), ("7", longest), ("10", f"{long}")]:
            rows.append(f"({len(rows)}, 'a', 'c-{len(rows)}', {marker}, {more})")
        execute(f"INSERT INTO events VALUES {', '.join(rows)}, (-{longest}, 'a', 'c-5', 5, 1)")  # noqa: S608
    engine.dispose()
    source = SqlEvents(postgresql_url, "events", THEIRS, order_by="id")
    batch = source.read(None, 10)
    assert [(each.marker, each.context["more"]) for each in batch.events] == [(5, "1.50"), (10, long)]
    starts = ["column id, by which", "Exceeds the limit", "column marker: found Decimal('NaN')", "the context has 131"]
    assert [each.reason[: len(start)] for each, start in zip(batch.rejected, starts, strict=True)] == starts
    assert len(batch.position) < ORDER_BYTES
    assert source.read(batch.position, 10).events == ()


class Costly(Decimal):
    """A number that nobody may convert, because this takes a time that grows with the square of its digits."""

    def __int__(self):
        raise AssertionError("converted")


@each_case("value", ["9" * 131_000, "1E+999999", "0E+999999", "12345678901234567890"])
def test_a_number_with_more_digits_than_any_marker_is_refused_before_it_is_converted(value):
    with pytest.raises(InvalidEvent, match=r"found a number of \d+ digits, expected at most 19"):
        as_marker(Costly(value))
    assert as_marker(Decimal(LAST_VERSION)) == LAST_VERSION


def test_a_read_of_rows_with_long_numbers_takes_the_memory_of_few(postgresql_url):
    count, digits = 1000, 131_000
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        execute = connection.exec_driver_sql
        execute("CREATE TABLE events (id int, table_name numeric, correlation_id text, marker int)")
        value = f"(SELECT repeat('9', {digits})::numeric)"
        execute(f"INSERT INTO events SELECT n, {value}, 'c', n FROM generate_series(1, {count}) n")  # noqa: S608
    engine.dispose()
    batch = SqlEvents(postgresql_url, "events", THEIRS, order_by="id").read(None, 5000)
    assert not batch.is_complete
    assert READ_BYTES // digits <= len(batch.rejected) <= READ_BYTES // digits + 2


def test_an_order_by_value_too_long_for_a_position_is_one_reject(postgresql_url):
    columns = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        execute = connection.exec_driver_sql
        execute("CREATE TABLE events (at text, table_name text, correlation_id text, marker int)")
        for number, at in enumerate(["'a'", f"repeat('b', {ORDER_BYTES + 1})", "'c'", "repeat('d', 300000000)"]):
            execute(f"INSERT INTO events VALUES ({at}, 'a', 'c-{number}', {number})")  # noqa: S608
        source = SqlEvents(postgresql_url, "events", columns, order_by="at")
        batch = source.read(None, 10)
        assert [each.correlation_id for each in batch.events] == ["c-0", "c-2"]
        assert [f"more than {ORDER_BYTES} bytes" in each.reason for each in batch.rejected] == [True]
        assert len(batch.position) < ORDER_BYTES
        again = source.read(batch.position, 10)
        assert (again.events, again.rejected, again.is_complete) == ((), (), True)
        execute("DELETE FROM events WHERE at = 'a'")
        with pytest.raises(SourceUnavailable, match="1 rows one after the other have a longer at than 1024 bytes"):
            source.read(None, 1)
    engine.dispose()


@pytest.mark.parametrize("kind", ["text", "jsonb"])
def test_lineage_with_a_name_that_is_too_long_is_refused_in_little_memory(postgresql_url, kind):
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLE lineage (pipeline text, table_name {kind})")
        long = "to_jsonb(repeat('x', 50000000))" if kind == "jsonb" else "repeat('x', 50000000)"
        connection.exec_driver_sql(f"INSERT INTO lineage VALUES ('a', {long})")  # noqa: S608
    engine.dispose()
    tracemalloc.start()
    try:
        with pytest.raises(SourceUnavailable, match="a name in lineage: found more than 1,048,576 characters"):
            read_lineage(postgresql_url, "lineage", "pipeline", "table_name")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_lineage_of_more_bytes_than_a_read_is_refused(postgresql_url, local_board):
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE lineage (pipeline text, table_name text)")
        rows = "SELECT 'a', n || repeat('x', 1000000) FROM generate_series(1, 40) n"
        connection.exec_driver_sql(f"INSERT INTO lineage {rows}")
    engine.dispose()
    with pytest.raises(SourceUnavailable, match=f"the names in lineage: found more than {READ_BYTES:,} bytes"):
        read_lineage(postgresql_url, "lineage", "pipeline", "table_name")
    line = json.dumps({"pipeline": "a", "table_name": "x" * ROW_BYTES}).encode() + b"\n"
    for content, place in ((line, "lineage.jsonl line 1"), (line * 33, "lineage.jsonl")):
        local_board.put("lineage.jsonl", content)
        with pytest.raises(SourceUnavailable, match=f"^{place}: found more than"):
            read_lineage_file(local_board, "lineage.jsonl", "pipeline", "table_name")
