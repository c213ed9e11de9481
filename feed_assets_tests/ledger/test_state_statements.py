"""Cost of a report: index seeks and a fixed number of statements for its windows, whatever was reported before."""

from datetime import UTC, datetime, timedelta

from feed_assets.ledger.states import count_reports, window_queries
from feed_assets.ledger.states.watermarks import watermarks
from feed_assets_tests.ledger.state_reports import FOO, NOW, part, source
from feed_assets_tests.support.ledger_records import scanned, statements

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = ("report", "window", "watermark", "dataset", "change", "quality")


def hours(count, start=FIRST):
    return {start + timedelta(minutes=5 * number): 10 for number in range(12 * count)}


def complete(ledger, counts, name):
    count_reports.report(ledger, [*source(counts), part(name, counts)], NOW)


def executed_by(ledger, action):
    with statements(ledger) as executed:
        action()
    return list(executed)


def test_each_statement_of_a_report_is_a_seek(sqlite_ledger):
    complete(sqlite_ledger, hours(50), "history")
    new = hours(1, FIRST + timedelta(hours=50))
    executed = executed_by(sqlite_ledger, lambda: complete(sqlite_ledger, new, "new"))
    executed += executed_by(sqlite_ledger, lambda: asked(sqlite_ledger))
    looked = 0
    with sqlite_ledger.read() as connection:
        for sql, values in executed:
            if sql.startswith(("SELECT", "WITH")):
                steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
                assert not [step for step in scanned(steps) if any(f"SCAN {name}" in step for name in TABLES)], sql
                looked += 1
    assert looked > 8


def asked(ledger):
    address = window_queries.WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    with ledger.read() as connection:
        window_queries.stored_windows(connection, [address])
        watermarks(connection, [(FOO, "", grain) for grain in ("5min", "hour")])


def test_statements_of_a_report_do_not_grow_with_history_or_windows(ledger):
    found = []
    for day in range(3):
        new = hours(24, FIRST + timedelta(days=day))
        found.append(len(executed_by(ledger, lambda new=new, day=day: complete(ledger, new, str(day)))))
    few = executed_by(ledger, lambda: complete(ledger, hours(1, FIRST + timedelta(days=9)), "few"))
    assert found[1] == found[2]
    assert len(few) <= found[2]


def test_watermark_moves_without_a_walk_over_earlier_windows(ledger):
    complete(ledger, hours(24), "day")
    one = {FIRST + timedelta(days=1): 10}
    executed = executed_by(ledger, lambda: complete(ledger, one, "one"))
    walks = [sql for sql, _ in executed if "ORDER BY" in sql and "LIMIT" in sql]
    assert 0 < len(walks) <= 2


def test_a_backfill_from_the_newest_window_to_the_oldest_costs_the_same_each_time(ledger):
    complete(ledger, hours(24), "history")
    counted = []
    for number in range(1, 4):
        one = {FIRST - number * timedelta(minutes=5): 10}
        counted.append(len(executed_by(ledger, lambda one=one, number=number: complete(ledger, one, f"back {number}"))))
    few = {FIRST + timedelta(hours=24): 10}
    assert max(counted) <= len(executed_by(ledger, lambda: complete(ledger, few, "ahead"))) + 4
    assert marks(ledger).contiguous == FIRST + timedelta(hours=24, minutes=5)


def test_reopened_window_stops_the_watermark_until_it_is_complete(ledger):
    complete(ledger, hours(24), "history")
    end = FIRST + timedelta(hours=24)
    count_reports.report(ledger, [part("twice", {FIRST + timedelta(hours=1): -9})], NOW)
    assert (marks(ledger).contiguous, marks(ledger).latest) == (FIRST + timedelta(hours=1), end)
    back = [part("twice", {}, version=1)]
    executed = executed_by(ledger, lambda: count_reports.report(ledger, back, NOW))
    walks = [sql for sql, _ in executed if "ORDER BY" in sql and "LIMIT" in sql]
    assert len(walks) <= 4
    assert (marks(ledger).contiguous, marks(ledger).latest) == (end, end)


def test_reopened_latest_window_moves_the_watermark_back(ledger):
    complete(ledger, hours(24), "history")
    late = FIRST + timedelta(hours=24) - timedelta(minutes=5)
    count_reports.report(ledger, [part("twice", {late: -9})], NOW)
    assert (marks(ledger).contiguous, marks(ledger).latest) == (late, late)


def marks(ledger):
    with ledger.read() as connection:
        return watermarks(connection, [(FOO, "", "5min")])[FOO, "", "5min"]
