"""Event tables in SQL: ties, parts, views, and errors of unreadable tables."""

import sqlite3
from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.sources import sql
from feed_assets.sources.databases import _reader, reading
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.sql import SqlEvents
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import START, Sql, event, read_all, row


@pytest.fixture
def by_marker(url, markers):
    made = Sql(url, markers, "event_marker")
    yield made
    made.close()


@pytest.fixture
def by_id(url):
    made = Sql(url, "integer")
    yield made
    made.close()


def ids(events):
    return sorted(each.correlation_id for each in events)


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_rows_of_one_moment_are_all_read_however_the_batches_fall(by_marker, limit):
    markers = by_marker.markers
    same = event(5, markers).event_marker
    by_marker.add([row(1, markers), *(row(n, markers, event_marker=same) for n in range(2, 9)), row(9, markers)])
    found, _, _ = read_all(by_marker.source(), limit=limit)
    assert ids(found) == [f"c-{number}" for number in range(1, 10)]


@pytest.mark.parametrize("limit", [1, 10])
def test_a_row_of_the_last_moment_that_comes_later_is_read(by_marker, limit):
    markers = by_marker.markers
    same = event(5, markers).event_marker
    by_marker.add([row(n, markers, event_marker=same) for n in (1, 2)])
    _, _, position = read_all(by_marker.source(), limit=limit)
    for number in (3, 4, 5):
        by_marker.add([row(number, markers, event_marker=same)])
        new, _, position = read_all(by_marker.source(), position, limit)
        assert ids(new) == [f"c-{number}"]
    assert read_all(by_marker.source(), position, limit)[0] == []


@pytest.mark.parametrize("limit", [1, 4, 100])
def test_more_rows_of_one_value_than_a_position_can_name_are_refused_until_some_are_gone(by_marker, monkeypatch, limit):
    monkeypatch.setattr(sql, "ROWS_OF_ONE_VALUE", 6)
    markers = by_marker.markers
    same = event(5, markers).event_marker
    by_marker.add([row(n, markers, event_marker=same) for n in range(1, 7)])
    found, _, position = read_all(by_marker.source(), limit=limit)
    assert ids(found) == [f"c-{number}" for number in range(1, 7)]
    by_marker.add([row(7, markers, event_marker=same), row(8, markers)])
    for after in (position, None):
        with pytest.raises(SourceUnavailable, match="events: more than 6 rows have event_marker ") as raised:
            read_all(by_marker.source(), after, limit)
        assert str(same) in str(raised.value)
        assert "expected at most that many with one value. Order by a column that differs from row to row" in str(
            raised.value
        )
    with by_marker.engine.begin() as connection:
        connection.execute(sa.delete(by_marker.table).where(by_marker.table.c.correlation_id == "c-7"))
    assert ids(read_all(by_marker.source(), position, limit)[0]) == ["c-8"]


def test_identical_rows_do_not_block_their_neighbours(by_marker):
    markers = by_marker.markers
    by_marker.add([row(1, markers)] * 7)
    by_marker.add([row(2, markers, event_marker=event(1, markers).event_marker)])
    found, _, _ = read_all(by_marker.source(), limit=2)
    assert ids(found) == ["c-1"] * 7 + ["c-2"]


def test_a_read_is_one_query_that_begins_at_the_position(sqlite_url):
    theirs = Sql(sqlite_url, "integer")
    theirs.add([row(number, "integer") for number in range(1, 4)])
    source, asked = theirs.source(), []
    _, _, position = read_all(source)
    theirs.add([row(4, "integer")])
    sa.event.listen(_reader(sqlite_url), "before_cursor_execute", lambda *told: asked.append(told[2:4]))
    assert ids(source.read(position, 10).events) == ["c-4"]
    ((statement, parameters),) = asked
    with theirs.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    assert "SEARCH events USING INTEGER PRIMARY KEY (rowid>?)" in str(plan)
    theirs.close()


def test_the_parts_of_a_source_cover_all_events(by_id):
    tables = ["fx/rates", "retail/purchases", "retail/buyers"]
    by_id.add([row(number, "integer", table_name=tables[number % 3]) for number in range(1, 20)])
    fx = by_id.source(where={"table_name": ["fx/rates"]})
    retail = by_id.source(where={"table_name": tables[1:]})
    (of_fx, _, after_fx), (of_retail, _, _) = read_all(fx, limit=2), read_all(retail, limit=2)
    assert {each.table_name for each in of_fx} == {"fx/rates"}
    assert ids(of_fx + of_retail) == ids(read_all(by_id.source())[0])
    by_id.add([row(20, "integer", table_name="fx/rates"), row(21, "integer")])
    assert ids(read_all(fx, after_fx)[0]) == ["c-20"]


def test_a_part_that_takes_in_another_table_begins_anew(by_id):
    by_id.add([row(1, "integer", table_name="fx/rates"), row(2, "integer")])
    _, _, position = read_all(by_id.source(where={"table_name": ["retail/purchases/v1.0"]}))
    both = by_id.source(where={"table_name": ["retail/purchases/v1.0", "fx/rates"]})
    assert ids(read_all(both, position)[0]) == ["c-1", "c-2"]


def test_a_view_with_names_of_its_own_is_a_source(by_id):
    by_id.add([row(1, "integer"), row(2, "integer")])
    with by_id.engine.begin() as connection:
        connection.exec_driver_sql('CREATE VIEW "Their View" AS SELECT id AS "Order", * FROM events')
    source = SqlEvents(by_id.url, "Their View", order_by="Order")
    assert ids(read_all(source, limit=1)[0]) == ["c-1", "c-2"]


def test_a_reader_of_sqlite_cannot_write(sqlite_url):
    Sql(sqlite_url, "integer").close()
    with pytest.raises(SourceUnavailable, match="readonly"), reading(sqlite_url) as connection:
        connection.exec_driver_sql("DELETE FROM events")


def test_on_postgresql_select_is_all_that_it_needs(postgresql_url):
    made = Sql(postgresql_url, "integer")
    made.add([row(1, "integer")])
    with made.engine.begin() as connection:
        connection.exec_driver_sql("DROP ROLE IF EXISTS reader")
        connection.exec_driver_sql("CREATE ROLE reader LOGIN")
        connection.exec_driver_sql("GRANT USAGE ON SCHEMA public TO reader")
        connection.exec_driver_sql("GRANT SELECT ON events TO reader")
    url = sa.make_url(postgresql_url).set(username="reader").render_as_string(hide_password=False)
    assert ids(SqlEvents(url, "events", order_by="id").read(None, 10).events) == ["c-1"]
    with made.engine.begin() as connection:
        connection.exec_driver_sql("REVOKE SELECT ON events FROM reader")
    with pytest.raises(SourceUnavailable, match="permission denied"):
        SqlEvents(url, "events", order_by="id").read(None, 10)
    made.close()


VIEW = """
CREATE TABLE written (name text);
CREATE FUNCTION write(bigint) RETURNS bigint LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO written VALUES (current_user); RETURN $1; END $$;
CREATE VIEW seen AS SELECT *, write(id) AS written FROM events WHERE write(id) > 0
"""


def test_a_function_of_a_view_cannot_write_as_our_role(postgresql_url):
    made = Sql(postgresql_url, "integer")
    made.add([row(1, "integer")])
    with made.engine.begin() as connection:
        connection.exec_driver_sql(VIEW)
    with pytest.raises(SourceUnavailable, match="read-only transaction"):
        SqlEvents(postgresql_url, "seen", order_by="id").read(None, 10)
    with made.engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT * FROM written").all() == []
        connection.exec_driver_sql("DROP VIEW seen; DROP FUNCTION write; DROP TABLE written")
    made.close()


def test_a_schema_can_be_named(postgresql_url):
    made = Sql(postgresql_url, "integer")
    made.add([row(1, "integer")])
    with made.engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA IF EXISTS theirs CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA theirs")
        connection.exec_driver_sql("ALTER TABLE events SET SCHEMA theirs")
    with pytest.raises(SourceUnavailable, match="no table events"):
        made.source().read(None, 10)
    assert ids(read_all(made.source(schema="theirs"))[0]) == ["c-1"]
    made.close()


def test_json_uuids_and_naive_timestamps_of_postgresql_are_read(postgresql_url):
    engine = sa.create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE events (id uuid PRIMARY KEY, at timestamp, correlation_id uuid, context jsonb, day date)"
        )
        connection.exec_driver_sql(
            "INSERT INTO events SELECT u, '2010-12-01 06:00:00.000001', u, '{\"records\": 1}', '2010-12-01' FROM ("
            "SELECT ('00000000-0000-7000-8000-00000000000' || n)::uuid AS u FROM generate_series(1, 5) AS n) AS made"
        )
    engine.dispose()
    columns = Columns("correlation_id", "at", None, "correlation_id", None, "day", "context")
    found, rejected, _ = read_all(SqlEvents(postgresql_url, "events", columns, order_by="id"), limit=2)
    assert rejected == []
    assert [each.correlation_id[-1] for each in found] == ["1", "2", "3", "4", "5"]
    assert found[0].marker == START + timedelta(microseconds=1)
    assert (found[0].partition_key, found[0].context) == ("2010-12-01", {"records": 1})


def test_a_domain_is_ordered_like_its_type_without_values_above_all_others(postgresql_url):
    columns = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
    engine = sa.create_engine(postgresql_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        execute = connection.exec_driver_sql
        for base, above, values in (
            ("timestamptz", "infinity", ("2026-01-01", "2026-01-02")),
            ("numeric", "NaN", (5, 6)),
        ):
            execute(f"CREATE DOMAIN of_{base} AS {base}")
            execute(f"CREATE DOMAIN twice_{base} AS of_{base}")
            table = f"by_{base}"
            execute(f"CREATE TABLE {table} (at twice_{base}, table_name text, correlation_id text, marker int)")
            execute(f"INSERT INTO {table} VALUES ('{values[0]}', 'a', 'c-0', 1), ('{above}', 'a', 'above', 2)")  # noqa: S608
            source = SqlEvents(postgresql_url, table, columns, order_by="at")
            batch = source.read(None, 10)
            execute(f"INSERT INTO {table} VALUES ('{values[1]}', 'a', 'c-1', 3)")  # noqa: S608
            assert ids([*batch.events, *source.read(batch.position, 10).events]) == ["c-0", "c-1"]
    engine.dispose()


def test_a_table_whose_numbers_began_anew_is_not_passed_over(by_id):
    by_id.add([row(number, "integer") for number in range(1, 6)])
    _, _, position = read_all(by_id.source())
    with by_id.engine.begin() as connection:
        connection.execute(sa.delete(by_id.table))
    assert by_id.source().read(position, 10).is_complete  # Retention leaves an empty table.
    with by_id.engine.begin() as connection:
        connection.execute(sa.insert(by_id.table), {"id": 1, **row(1, "integer")})
    with pytest.raises(SourceUnavailable, match=r"read up to id 5, but its highest is 1\. .*from the beginning"):
        by_id.source().read(position, 10)
    assert ids(by_id.source().read(None, 10).events) == ["c-1"]


@each_case(
    ("url", "said"),
    [
        ("postgresql+psycopg://me:se%40cret@127.0.0.1:1/none", r"me:\*\*\*@127.0.0.1:1/none: "),
        ("postgresql+psycopg://127.0.0.1:1/none?user=me&password=secret", r"password=\*\*\*: "),
        ("postgresql+pg8000://localhost/none", "No module named 'pg8000'"),
        ("nonsense", "Could not parse SQLAlchemy URL"),
    ],
)
def test_an_unreachable_database_is_reported_without_its_password(url, said):
    with pytest.raises(SourceUnavailable, match=said) as raised:
        SqlEvents(url, "events", order_by="id").read(None, 10)
    assert "cret" not in str(raised.value)
    assert "Expected a database that answers" in str(raised.value)


def test_a_missing_sqlite_database_is_not_created(tmp_path):
    with pytest.raises(SourceUnavailable, match="There is no SQLite database"):
        SqlEvents(f"sqlite:///{tmp_path / 'none.db'}", "events", order_by="id").read(None, 10)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_table_is_reported_with_the_existing_ones(by_id):
    with pytest.raises(SourceUnavailable, match=r"has no table event: found events\. Correct the name"):
        SqlEvents(by_id.url, "event", order_by="id").read(None, 10)
    with pytest.raises(SourceUnavailable, match=r"no column ids: .*columns=Columns\(event_marker=None, …\)"):
        SqlEvents(by_id.url, "events", order_by="ids").read(None, 10)


def test_an_order_column_that_cannot_be_a_position_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "blobs.db") as connection:
        connection.execute("CREATE TABLE events (id BLOB, table_name, marker, correlation_id)")
        connection.execute("INSERT INTO events VALUES (x'00', 'a', 1, 'c')")
    connection.close()
    columns = Columns(event_marker=None, write_operation=None, partition_key=None, context=None)
    with pytest.raises(SourceUnavailable, match="id is a bytes: expected one of int"):
        SqlEvents(f"sqlite:///{tmp_path / 'blobs.db'}", "events", columns, order_by="id").read(None, 10)
