"""Migrations, transactions, times and the order of changes."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.exc import StatementError

from feed_assets.core.errors import FeedAssetsError, LedgerUnavailable
from feed_assets.ledger import runs, updates
from feed_assets.ledger.database import get_cursor, last_change, next_change, open_ledger, put_cursor
from feed_assets.ledger.tables import due, metadata
from feed_assets_tests.feeds.workers import processes, start
from feed_assets_tests.ledger.records import NOW, SHOWN, new_run
from feed_assets_tests.ledger.workers import FEED, change_many, open_together


def test_the_migrations_make_the_tables_that_the_code_declares(ledger):
    with ledger.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


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


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql+psycopg://me:secret@127.0.0.1:1/none", r"FEED_ASSETS_LEDGER=postgresql\+psycopg://me:\*\*\*@"),
        ("postgresql+pg8000://localhost/none", "No module named 'pg8000'"),
        ("mysql://localhost/none", "MySQLdb"),
        ("/var/ledger.db", "Could not parse SQLAlchemy URL"),
    ],
)
def test_a_ledger_that_cannot_be_opened_is_told_without_its_password(url, said):
    with pytest.raises(LedgerUnavailable, match=said) as raised:
        open_ledger(url)
    assert "expected" in str(raised.value).lower()
    assert "secret" not in str(raised.value)


def test_opening_a_ledger_again_keeps_what_is_in_it(url):
    first, again = open_ledger(url), open_ledger.__wrapped__(url)
    with first.write() as connection:
        put_cursor(connection, "here", "still")
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
        assert last_change(connection) == 0
    ledger.engine.dispose()


def test_a_transaction_that_raises_leaves_nothing(ledger):
    def die():
        with ledger.write() as connection:
            put_cursor(connection, "name", "value")
            raise FeedAssetsError

    with pytest.raises(FeedAssetsError):
        die()
    with ledger.read() as connection:
        assert get_cursor(connection, "name") is None


def test_a_reader_goes_on_seeing_the_state_that_it_began_with(ledger):
    with ledger.read() as reader:
        before = last_change(reader)
        with ledger.write() as writer:
            next_change(writer)
        assert last_change(reader) == before
    with ledger.read() as reader:
        assert last_change(reader) == before + 1


def test_a_cursor_has_the_value_that_was_put_last(ledger):
    with ledger.write() as connection:
        put_cursor(connection, "name", "first")
        put_cursor(connection, "name", "second")
        assert get_cursor(connection, "name") == "second"
        assert get_cursor(connection, "other") is None


def test_a_time_without_a_zone_is_refused(ledger):
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(StatementError, match="has no time zone"), ledger.write() as connection:
        connection.execute(sa.insert(due).values(feed="a", partition="b", awaited=False, changed=1, since=naive))


def test_a_time_of_any_zone_comes_back_as_the_same_moment_in_utc(ledger):
    tokyo = datetime(2019, 11, 25, 15, 0, 0, 123456, tzinfo=timezone(timedelta(hours=9)))
    runs.start(ledger, new_run("one", started=tokyo))
    with ledger.read() as connection:
        (found,) = runs.running(connection)
    assert found.started == tokyo
    assert found.started.tzinfo is UTC


def test_no_time_stays_none(ledger):
    with ledger.write() as connection:
        row = {"feed": "a", "partition": "b", "awaited": False, "changed": 1, "requested": 0, "since": NOW}
        connection.execute(sa.insert(due).values(row))
        assert connection.execute(sa.select(due.c.look_at)).scalar_one() is None


def test_a_change_that_is_rolled_back_leaves_no_gap(ledger):
    def die():
        with ledger.write() as connection:
            next_change(connection)
            raise FeedAssetsError

    with ledger.write() as connection:
        first = next_change(connection)
    with pytest.raises(FeedAssetsError):
        die()
    with ledger.write() as connection:
        assert next_change(connection) == first + 1


def test_numbers_go_on_as_numbers_beyond_nine(ledger):
    with ledger.write() as connection:
        assert [next_change(connection) for _ in range(11)] == [*range(1, 12)]


def test_a_reader_beside_concurrent_writers_sees_every_change_once_and_in_order(url):
    ledger = open_ledger(url)
    barrier = processes.Barrier(3)
    writers = [start(change_many, url, writer, 40, barrier) for writer in range(3)]
    read: list[tuple[str, int]] = []
    alive = True
    while alive:
        alive = any(writer.is_alive() for writer in writers)
        with ledger.read() as connection:
            found = updates.changes(connection, [FEED], read[-1][1] if read else 0, 7)
        read += [(partition.key, number) for partition, number in found]
        alive = alive or bool(found)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [number for _, number in read] == [*range(1, 121)]
    assert {key for key, _ in read} == {f"writer-{writer}/{number}" for writer in range(3) for number in range(40)}
    ledger.engine.dispose()


def test_changes_of_other_feeds_are_not_read(ledger):
    with ledger.write() as connection:
        updates.insert(connection, SHOWN, "20191125.060000", state=updates.PUBLISHED, at=NOW)
        assert updates.changes(connection, [FEED], 0, 10) == ((SHOWN, 1),)
        assert updates.changes(connection, [new_run("x").output.feed], 0, 10) == ()
