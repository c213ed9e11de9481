"""Reports from many processes at once lose no count, miss no larger window, and delay no publisher."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets.core.reports import Report
from feed_assets.core.sub_partitions import Tracked
from feed_assets.ledger import log
from feed_assets.ledger.states import count_reports, window_policies
from feed_assets.ledger.states.deltas import Delta
from feed_assets.ledger.states.rollup import Judging
from feed_assets.ledger.tables import report, window
from feed_assets_tests.ledger.state_reports import FOO, NOW, part, source, transitions
from feed_assets_tests.support.feed_processes import processes, start
from feed_assets_tests.support.ledger_processes import FEED, report_many

LEFT, RIGHT = (datetime(2026, 1, 1, 15, minute, tzinfo=UTC) for minute in (50, 55))
WRITERS = 8


def report_at_once(ledger, count, batch):
    url, barrier = ledger.engine.url.render_as_string(hide_password=False), processes.Barrier(WRITERS)
    writers = [start(report_many, url, number, count // WRITERS, batch, barrier) for number in range(WRITERS)]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS


def check_totals(ledger, count):
    """Assert that every window of every grain has exactly the records that were reported."""
    with ledger.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(report)).scalar_one() == count
        mine = window.c.dataset == str(FEED)
        sums = sa.select(window.c.grain, sa.func.sum(window.c.records), sa.func.sum(window.c.parts)).where(mine)
        found = {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(sums.group_by(window.c.grain))}
        each = connection.execute(sa.select(window.c.records).where(mine, window.c.grain == "5min")).scalars().all()
    assert found == dict.fromkeys(("5min", "10min", "hour", "day"), (2 * count, 2 * count))
    assert (len(each), min(each), max(each)) == (48, 2 * count // 48, 2 * count // 48)


def test_reports_of_eight_processes_lose_no_count(ledger):
    report_at_once(ledger, 8 * 960, batch=96)
    check_totals(ledger, 8 * 960)


@pytest.mark.soak
def test_a_hundred_thousand_reports_of_eight_processes_lose_no_count(ledger):
    report_at_once(ledger, 8 * 12_480, batch=480)
    check_totals(ledger, 8 * 12_480)


def waiting(ledger, count):
    """Poll until so many transactions wait for a lock of any kind."""
    with ledger.engine.connect() as connection:
        blocked = 0
        while blocked < count:
            query = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
            blocked = connection.exec_driver_sql(query).scalar_one()
            connection.rollback()


@pytest.fixture
def sources_told(postgresql_ledger):
    count_reports.report(postgresql_ledger, source({LEFT: 10, RIGHT: 10}), NOW)
    return postgresql_ledger


def test_two_siblings_at_once_complete_their_parent(sources_told):
    """Both begin before either ends, because the log is locked meanwhile."""
    with ThreadPoolExecutor(2) as pool:
        with sources_told.change():
            both = [
                pool.submit(count_reports.report, sources_told, [part(str(at), {at: 10})], NOW) for at in (LEFT, RIGHT)
            ]
            waiting(sources_told, 2)
        assert sum(each.result(60).transitions for each in both) == 3
    found = transitions(sources_told)
    assert [each for each in found if each[0].startswith("10min")] == [("10min@2026-01-01-15:50", "open", "complete")]
    assert records_of(sources_told, "10min") == 20


def test_the_control_without_the_lock_of_the_dataset_is_caught(sources_told):
    """A report without this lock reads the parent before the other report has written it, so one count is lost."""
    with ThreadPoolExecutor(2) as pool:
        with sources_told.change():
            both = [pool.submit(count_unlocked, sources_told, at) for at in (LEFT, RIGHT)]
            waiting(sources_told, 2)
        for each in both:
            each.result(60)
    assert records_of(sources_told, "10min") == 10


def count_unlocked(ledger, at):
    with ledger.write() as connection:
        judging = Judging(connection, FOO, window_policies.default(), NOW, None)
        judging.count({("", at): Delta(records=10, parts=1)})


def records_of(ledger, grain):
    with ledger.read() as connection:
        return connection.execute(sa.select(window.c.records).where(window.c.grain == grain)).scalar_one()


def test_a_report_that_moves_no_window_does_not_wait_for_a_publisher(sources_told):
    with sources_told.change() as publisher:
        count_reports.report(sources_told, [part("early", {LEFT: 1})], NOW)
        assert log.last(publisher) == 0


def test_a_publisher_does_not_wait_for_a_report(sources_told):
    with sources_told.write() as reporter:
        window_policies.lock(reporter, [FOO], NOW)
        with sources_told.change() as publisher:
            publisher.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
            assert log.last(publisher) == 0


def test_reports_of_different_datasets_do_not_wait_for_each_other(sources_told):
    with sources_told.write() as reporter:
        window_policies.lock(reporter, [FOO], NOW)
        found = count_reports.report(sources_told, [Report(FEED, "", "part", ((LEFT, 1),))], NOW)
    assert found.accepted == 1


def test_a_call_for_many_datasets_is_one_transaction(ledger):
    """The call locks datasets in order of names, whatever the order of the reports."""
    given = [Report(dataset, "", "part", ((LEFT, 1),)) for dataset in (FOO, FEED)]
    assert count_reports.report(ledger, given, NOW).accepted == 2
    with ledger.read() as connection:
        assert window_policies.tracked(connection, [FOO, FEED]) == dict.fromkeys((FOO, FEED), window_policies.default())
    assert window_policies.default() == Tracked(("5min", "10min", "hour", "day"), "99.995%", is_default=True)
