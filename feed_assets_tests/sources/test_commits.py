"""PostgreSQL commits in another order than it numbers: every committed event is read, however slow its writer."""

import threading
from contextlib import contextmanager

import psycopg
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.sources.commits import Waiting
from feed_assets.sources.databases import _reader
from feed_assets.sources.sql import SqlEvents
from feed_assets_tests.sources.workers import INSERT, write_many
from feed_assets_tests.support.feed_processes import processes, start
from feed_assets_tests.support.foreign_tables import Sql, read_all


class Clock:
    """A clock that sleeps advance, and that triggers an action meanwhile."""

    def __init__(self, *meanwhile):
        self.now, self.meanwhile = 0.0, list(meanwhile)

    def sleep(self, seconds):
        self.now += 1
        if self.meanwhile:
            self.meanwhile.pop(0)()

    @property
    def waiting(self):
        return Waiting(clock=lambda: self.now, sleep=self.sleep)


@pytest.fixture
def uri(postgresql_url):
    """Return the URI of the database for psycopg, with an event table that the database numbers."""
    made = Sql(postgresql_url, "integer")
    made.close()
    return postgresql_url.replace("+psycopg", "")


@contextmanager
def transaction(uri):
    with psycopg.connect(uri) as connection:
        yield connection
        if not connection.closed:
            connection.rollback()


def insert(connection, name, into="events"):
    connection.execute(INSERT.replace("INTO events", f"INTO {into}"), (1, name))


def source(uri, clock=None, table="events"):
    options = {"waiting": clock.waiting} if clock else {}
    return SqlEvents(uri.replace("postgresql:", "postgresql+psycopg:"), table, order_by="id", **options)


def names(batch):
    return [each.correlation_id for each in batch.events]


def test_an_event_that_commits_after_a_later_one_is_waited_for(uri):
    with transaction(uri) as slow, transaction(uri) as fast:
        insert(slow, "slow")
        insert(fast, "fast")
        fast.commit()
        batch = source(uri, Clock(lambda: None, slow.commit)).read(None, 10)
    assert names(batch) == ["slow", "fast"]
    assert batch.is_complete


def test_a_writer_that_does_not_end_is_named_and_nothing_is_skipped(uri, caplog):
    with transaction(uri) as slow, transaction(uri) as fast:
        insert(slow, "slow")
        insert(fast, "fast")
        fast.commit()
        batch = source(uri, Clock()).read(None, 10)
        assert (batch.events, batch.position, batch.is_complete) == ((), None, False)
        assert f"waited 5.0 s for transactions that write to it: pid {slow.info.backend_pid}, open for" in batch.waits
        assert batch.waits in caplog.text
        slow.commit()
    assert names(source(uri).read(batch.position, 10)) == ["slow", "fast"]


def test_a_rolled_back_writer_blocks_nobody(uri):
    with transaction(uri) as slow, transaction(uri) as fast:
        insert(slow, "slow")
        insert(fast, "fast")
        fast.commit()
        assert names(source(uri, Clock(slow.rollback)).read(None, 10)) == ["fast"]


def test_transactions_that_begin_during_a_read_are_not_waited_for(uri):
    with transaction(uri) as slow, transaction(uri) as fast, transaction(uri) as later:
        insert(slow, "slow")
        insert(fast, "fast")
        fast.commit()
        batch = source(uri, Clock(lambda: insert(later, "later"), slow.commit)).read(None, 10)
        assert names(batch) == ["slow", "fast"]
        assert source(uri, Clock()).read(batch.position, 10).is_complete  # No newer event can be overtaken.
        later.commit()
    assert names(source(uri).read(batch.position, 10)) == ["later"]


def test_rows_committed_between_check_and_read_wait_for_the_next_read(uri):
    with transaction(uri) as slow, transaction(uri) as fast, transaction(uri) as one, transaction(uri) as two:
        insert(slow, "slow")
        insert(fast, "fast")
        fast.commit()

        def overtake():
            insert(one, "one")
            insert(two, "two")
            two.commit()
            slow.commit()

        batch = source(uri, Clock(overtake)).read(None, 10)
        assert names(batch) == ["slow", "fast"]
        one.commit()
    assert names(source(uri).read(batch.position, 10)) == ["one", "two"]


def test_an_empty_table_is_not_read_past_its_first_writer(uri):
    with transaction(uri) as slow, transaction(uri) as fast:
        insert(slow, "slow")
        reader = source(uri, Clock())
        assert reader.read(None, 10).is_complete
        insert(fast, "fast")
        fast.commit()
        assert reader.read(None, 10).events == ()


@pytest.mark.parametrize("mode", ["SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE"])
def test_vacuum_and_index_builds_are_not_waited_for(uri, mode):
    with transaction(uri) as fast, transaction(uri) as vacuum:
        insert(fast, "fast")
        fast.commit()
        vacuum.execute(f"LOCK TABLE events IN {mode} MODE")
        assert names(source(uri, Clock()).read(None, 10)) == ["fast"]


def test_a_writer_under_a_stronger_lock_is_waited_for_all_the_same(uri):
    with transaction(uri) as fast, transaction(uri) as slow:
        insert(fast, "fast")
        fast.commit()
        slow.execute("LOCK TABLE events IN EXCLUSIVE MODE")
        insert(slow, "slow")
        assert names(source(uri, Clock(slow.commit)).read(None, 10)) == ["fast"]


def test_writers_into_a_partition_and_behind_a_view_are_waited_for(uri):
    with transaction(uri) as owner:
        owner.execute("CREATE TABLE parts (LIKE events INCLUDING DEFAULTS) PARTITION BY LIST (table_name)")
        owner.execute("CREATE TABLE part PARTITION OF parts DEFAULT")
        owner.execute("CREATE VIEW seen AS SELECT * FROM parts")
        owner.commit()
    for table in ("parts", "seen"):
        with transaction(uri) as slow, transaction(uri) as fast:
            insert(slow, "slow", "part")
            insert(fast, "fast", "parts")
            fast.commit()
            assert source(uri, Clock(), table).read(None, 10).waits
            assert names(source(uri, Clock(slow.commit), table).read(None, 10))[-2:] == ["slow", "fast"]


def test_other_tables_and_other_databases_have_no_say(uri, postgresql):
    other = postgresql.database().replace("+psycopg", "")
    with transaction(uri) as fast, transaction(uri) as elsewhere, psycopg.connect(other) as far:
        elsewhere.execute("CREATE TABLE other AS SELECT * FROM events")
        elsewhere.commit()
        insert_other = "INSERT INTO other (correlation_id) VALUES ('x')"
        elsewhere.execute(insert_other)
        far.execute("CREATE TABLE other (correlation_id text)")
        far.execute(insert_other)
        insert(fast, "fast")
        fast.commit()
        assert names(source(uri, Clock()).read(None, 10)) == ["fast"]
        far.rollback()


def test_a_materialized_view_is_refused_since_its_writers_cannot_be_seen(uri):
    with transaction(uri) as owner:
        insert(owner, "one")
        owner.execute("CREATE MATERIALIZED VIEW copied AS SELECT * FROM events")
        owner.commit()
    with pytest.raises(
        SourceUnavailable, match=r"copied is a materialized view: copied: expected a table that shows its"
    ):
        source(uri, table="copied").read(None, 10)


def naive(connection, after):
    """Read the way that loses events: `id > marker`."""
    return connection.execute("SELECT id, correlation_id FROM events WHERE id > %s ORDER BY id", (after,)).fetchall()


def lost_by_the_naive_reader(uri, seed):
    """Start three writers, and a reader that trusts the highest number it has seen."""
    writers = [threading.Thread(target=write_many, args=(uri, n, 5, 0.02), kwargs={"seed": seed}) for n in range(3)]
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("TRUNCATE events")
        seen, after = set(), 0
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            for number, name in naive(connection, after):
                seen, after = seen | {name}, number
        seen |= {name for _, name in naive(connection, after)}
        written = connection.execute("SELECT correlation_id FROM events").fetchall()
    assert len(written) == 15
    return {name for (name,) in written} - seen


def test_the_naive_reader_does_lose_events(uri):
    assert any(lost_by_the_naive_reader(uri, seed) for seed in range(100))


def read_while_written(uri, writers, count):
    """Read as fast as possible what several processes write; return all events read, in order."""
    barrier = processes.Barrier(writers + 1)
    running = [start(write_many, uri, writer, count, 0.05, barrier) for writer in range(writers)]
    reader, position, events = source(uri), None, []
    try:
        barrier.wait(60)
        while any(process.is_alive() for process in running):
            batch = reader.read(position, 500)
            events.extend(batch.events)
            position = batch.position
    finally:
        for process in running:
            process.join(60)
    assert [process.exitcode for process in running] == [0] * writers
    return [*events, *read_all(reader, position, 500)[0]]


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_event_of_eight_writers_with_unordered_commits_is_skipped(uri, count):
    events = [each.correlation_id for each in read_while_written(uri, 8, count)]
    assert len(events) == len({*events}) == 8 * count
    with psycopg.connect(uri) as connection:
        in_order = connection.execute("SELECT correlation_id FROM events ORDER BY id").fetchall()
    assert events == [name for (name,) in in_order]


def test_a_table_that_was_empty_a_moment_ago_is_not_read_past_its_first_writer(uri):
    with transaction(uri) as slow, transaction(uri) as fast:
        insert(slow, "slow")
        insert(fast, "fast")
        reader, engine = source(uri), _reader(uri.replace("postgresql:", "postgresql+psycopg:"))
        reader.read(None, 10)  # Looks the columns up.
        sa.event.listen(engine, "after_cursor_execute", lambda *_: fast.commit(), once=True)
        batch = reader.read(None, 10)
        slow.commit()
    assert batch.events == ()
    assert names(reader.read(batch.position, 10)) == ["slow", "fast"]
