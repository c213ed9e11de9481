"""Migrations, transactions, times and the order of changes."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError

from feed_assets.core.errors import DiskFull, FeedAssetsError, LedgerUnavailable
from feed_assets.ledger import database, log, runs, subscriptions, update_changes, updates
from feed_assets.ledger.database import BASELINE, get_cursor, open_ledger, put_cursors
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import due, metadata
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.feed_processes import processes, start
from feed_assets_tests.support.ledger_processes import FEED, change_many, open_together
from feed_assets_tests.support.ledger_records import MINUTE, NOW, SHOWN, new_run


def test_the_migrations_make_the_tables_that_the_code_declares(ledger):
    with ledger.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        newest = ScriptDirectory(str(database.MIGRATIONS)).get_current_head()
        assert context.get_current_revision() == database._schema(ledger) == database._newest_schema() == newest


def test_a_ledger_from_before_the_first_release_is_refused_and_kept(url):
    ledger = open_ledger(url)
    with ledger.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0019'")
        put_cursors(connection, {"here": "still"})
    with pytest.raises(LedgerUnavailable, match=f"schema 0019, .* expected {BASELINE} or later.* ledger rebuild"):
        open_ledger.__wrapped__(url)
    with ledger.read() as connection:
        assert get_cursor(connection, "here") == "still"
    ledger.engine.dispose()


def test_the_partial_index_that_lets_one_run_at_a_time_is_in_the_database(ledger):
    asked = {
        "sqlite": "SELECT sql FROM sqlite_master WHERE name = 'run_one_at_a_time'",
        "postgresql": "SELECT indexdef FROM pg_indexes WHERE indexname = 'run_one_at_a_time'",
    }
    with ledger.read() as connection:
        sql = connection.exec_driver_sql(asked[ledger.engine.dialect.name]).scalar_one()
    assert re.fullmatch(r"CREATE UNIQUE INDEX .*\(feed, partition\) WHERE .*state.* = 'running'.*", sql)


def test_texts_are_ordered_by_code_points_whatever_the_databases_language(postgresql_ledger):
    with postgresql_ledger.read() as connection:
        texts = "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        of_ours = f"{texts} WHERE table_schema = 'public' AND data_type = 'character varying' AND table_name <> %s"
        found = connection.exec_driver_sql(of_ours, ("alembic_version",)).all()
    assert len(found) > 20
    assert [each for each in found if each.collation_name != "C"] == []


@each_case(
    ("url", "said"),
    [
        ("postgresql+psycopg://me:secret@127.0.0.1:1/none", r"FEED_ASSETS_LEDGER=postgresql\+psycopg://me:\*\*\*@"),
        ("postgresql+pg8000://localhost/none", "No module named 'pg8000'"),
        ("mysql://localhost/none", "MySQLdb"),
        ("/var/ledger.db", "Could not parse SQLAlchemy URL"),
    ],
)
def test_error_of_an_unopenable_ledger_hides_its_password(url, said):
    with pytest.raises(LedgerUnavailable, match=said) as raised:
        open_ledger(url)
    assert "expected" in str(raised.value).lower()
    assert "secret" not in str(raised.value)


def test_reopened_ledger_keeps_its_rows(url):
    first, again = open_ledger(url), open_ledger.__wrapped__(url)
    with first.write() as connection:
        put_cursors(connection, {"here": "still"})
    with again.read() as connection:
        assert get_cursor(connection, "here") == "still"
    first.engine.dispose()
    again.engine.dispose()


def test_processes_that_open_a_new_ledger_at_once_all_find_it_ready(url):
    barrier = processes.Barrier(4)
    openers = [start(open_together, url, barrier) for _ in range(4)]
    for opener in openers:
        opener.join()
    assert [opener.exitcode for opener in openers] == [0, 0, 0, 0]
    ledger = open_ledger(url)
    with ledger.read() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM alembic_version").scalar_one() == 1
        assert log.last(connection) == 0
    ledger.engine.dispose()


def test_transaction_that_raises_is_rolled_back(ledger):
    def die():
        with ledger.write() as connection:
            put_cursors(connection, {"name": "value"})
            raise FeedAssetsError

    with pytest.raises(FeedAssetsError):
        die()
    with ledger.read() as connection:
        assert get_cursor(connection, "name") is None


def test_reader_keeps_seeing_the_state_of_its_start(ledger):
    with ledger.read() as reader:
        before = log.last(reader)
        with ledger.change() as writer:
            append(writer)
        assert log.last(reader) == before
    with ledger.read() as reader:
        assert log.last(reader) == before + 1


def test_a_cursor_has_the_value_that_was_put_last(ledger):
    with ledger.write() as connection:
        put_cursors(connection, {"name": "first"})
        put_cursors(connection, {"name": "second"})
        assert get_cursor(connection, "name") == "second"
        assert get_cursor(connection, "other") is None


def test_ledger_refuses_a_time_without_a_zone(ledger):
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(StatementError, match="has no time zone"), ledger.write() as connection:
        connection.execute(sa.insert(due).values(feed="a", partition="b", changed=1, since=naive))


def test_a_time_of_any_zone_comes_back_as_the_same_moment_in_utc(ledger):
    tokyo = datetime(2019, 11, 25, 15, 0, 0, 123456, tzinfo=timezone(timedelta(hours=9)))
    runs.start(ledger, new_run("one", started=tokyo))
    with ledger.read() as connection:
        (found,) = runs.running(connection)
    assert found.started == tokyo
    assert found.started.tzinfo is UTC


def test_missing_time_is_read_back_as_none(ledger):
    with ledger.write() as connection:
        row = {"feed": "a", "partition": "b", "changed": 1, "requested": 0, "since": NOW}
        connection.execute(sa.insert(due).values(row))
        assert connection.execute(sa.select(due.c.look_at)).scalar_one() is None


def append(connection, count=1):
    return log.append(connection, [Change(SHOWN, log.UNCHANGED, "20191125.060000", NOW)] * count)


def test_a_change_that_is_rolled_back_leaves_no_gap(ledger):
    def die():
        with ledger.change() as connection:
            append(connection)
            raise FeedAssetsError

    with ledger.change() as connection:
        first = append(connection)
    with pytest.raises(FeedAssetsError):
        die()
    with ledger.change() as connection:
        assert append(connection) == first + 1


def test_changes_are_numbered_one_after_another(ledger):
    with ledger.change() as connection:
        assert [append(connection, count) for count in (1, 3, 0, 1)] == [1, 2, 5, 5]


def test_a_transaction_that_does_not_queue_cannot_append_to_the_log(ledger):
    with pytest.raises(ValueError, match=r"Ledger.change\(\)"), ledger.write() as connection:
        append(connection)


def test_writer_outside_the_log_does_not_wait_for_a_change(postgresql_ledger):
    with postgresql_ledger.change() as changer:
        append(changer)
        with postgresql_ledger.write() as writer:
            put_cursors(writer, {"beside": "it"})


def test_a_reader_beside_concurrent_writers_sees_every_change_once_and_in_order(url):
    ledger = open_ledger(url)
    barrier = processes.Barrier(3)
    writers = [start(change_many, url, writer, 40, barrier) for writer in range(3)]
    read: list[log.LogEntry] = []
    alive = True
    while alive:
        alive = any(writer.is_alive() for writer in writers)
        with ledger.read() as connection:
            found = log.after(connection, read[-1].sequence if read else 0, 10**9, 7, [FEED])
        read += found
        alive = alive or bool(found)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [each.sequence for each in read] == [*range(1, 241)]
    published = {each.partition.key for each in read if each.kind == log.UPDATE}
    assert published == {f"writer-{writer}/{number}" for writer in range(3) for number in range(40)}
    ledger.engine.dispose()


def test_changes_of_other_feeds_are_not_read(ledger):
    with ledger.change() as connection:
        update_changes.insert(connection, SHOWN, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
        assert [each.kind for each in log.after(connection, 0, 10, 10, [FEED])] == [log.UPDATE, log.EVENT]
        assert log.after(connection, 0, 10, 10, [new_run("x").output.feed]) == ()


def pruned(ledger, before=NOW + MINUTE, *, apply=True):
    with ledger.read() as connection:
        upto = log.last_before(connection, before)
    return log.prune_some(ledger, before, 0, upto, 100, apply=apply)[0]


def test_log_prunes_changes_that_all_subscribers_have_except_the_last_of_a_kind(ledger):
    with ledger.change() as connection:
        append(connection, 3)
        update_changes.insert(connection, SHOWN, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)
    assert pruned(ledger) == 0  # No subscriber has anything yet.
    with ledger.write() as connection:
        subscriptions.advance(connection, "ahead", 10)
        subscriptions.advance(connection, "behind", 1)
    assert pruned(ledger, NOW) == 0
    assert pruned(ledger, apply=False) == 1
    assert pruned(ledger) == 1
    with ledger.write() as connection:
        subscriptions.advance(connection, "behind", 10)
    assert pruned(ledger) == 1
    with ledger.read() as connection:
        assert [each.sequence for each in log.after(connection, 0, 10, 10)] == [3, 4, 5]
    with ledger.change() as connection:
        assert append(connection) == 6


def test_bad_statement_is_not_reported_as_an_unavailable_ledger(ledger):
    with pytest.raises(DBAPIError, match="nothing_such"), ledger.read() as connection:
        connection.exec_driver_sql("SELECT * FROM nothing_such")


def test_cancelled_query_is_not_reported_as_an_unavailable_ledger(postgresql_ledger):
    impatient = "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)"
    with pytest.raises(OperationalError, match="statement timeout"), postgresql_ledger.read() as connection:
        connection.exec_driver_sql(impatient)


def test_connection_ended_by_the_server_is_an_unavailable_ledger(postgresql_ledger):
    with pytest.raises(LedgerUnavailable, match="terminating connection"), postgresql_ledger.read() as connection:
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")


def test_a_ledger_that_cannot_be_written_is_unavailable(sqlite_ledger):
    with sqlite_ledger.read() as connection:  # The next transaction gets this connection from the pool.
        connection.exec_driver_sql("PRAGMA query_only=1")
    with pytest.raises(LedgerUnavailable, match="readonly"), sqlite_ledger.write() as connection:
        put_cursors(connection, {"name": "value"})


def fill(ledger):
    with ledger.write() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1")  # SQLite keeps the existing pages, and is then full
        for number in range(1000):
            put_cursors(connection, {f"cursor {number}": "x" * 1000})


def test_full_disk_is_reported_and_its_transaction_rolled_back(tmp_path):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'full.db'}")
    with pytest.raises(DiskFull, match="The ledger's disk is full"):
        fill(ledger)
    with ledger.read() as connection:
        assert get_cursor(connection, "cursor 0") is None
    ledger.engine.dispose()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_store_every_text_is_refused(postgresql, encoding):
    made = sa.make_url(postgresql.database())
    server, name = sa.create_engine(made, isolation_level="AUTOCOMMIT"), f"{made.database}_{encoding.lower()}"
    with server.connect() as connection:
        options = f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        connection.exec_driver_sql(f"CREATE DATABASE {name} {options}")
    server.dispose()
    with pytest.raises(LedgerUnavailable, match=f"encoding {encoding} cannot store every text: expected UTF8"):
        open_ledger(made.set(database=name).render_as_string(hide_password=False))
