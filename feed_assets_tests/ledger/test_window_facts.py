"""What is asked of windows costs a few statements, however many are asked about, and no history is gone through."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from feed_assets.core.completeness import WindowState
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import WindowInput
from feed_assets.core.readiness import Need
from feed_assets.core.reports import Report
from feed_assets.core.spans import Span
from feed_assets.core.windows import HOUR, window_of
from feed_assets.ledger.counts import COUNTER, reported_by_others
from feed_assets.ledger.facts import facts
from feed_assets.ledger.states.reports import report
from feed_assets.ledger.window_facts import reporting
from feed_assets_tests.ledger.records import NOW, scanned, statements

FOO, OUT = Feed.parse("web/foo"), Feed.parse("web/out/v1.0")
BASE = timedelta(minutes=5)


def need(start: datetime) -> Need:
    """An hour of foo."""
    hour = window_of(HOUR, start)
    return Need(Partition(OUT, hour.key), (WindowInput(Span(FOO, "", hour.start, hour.end, (hour,))),))


@pytest.fixture
def hours(ledger) -> list[datetime]:
    """40 hours, of which every other one is complete."""
    first = NOW.replace(minute=0, second=0, microsecond=0)
    starts = [first + timedelta(hours=number) for number in range(40)]
    bases = [start + number * BASE for start in starts for number in range(12)]
    ingested = tuple((at, 10 if (at - first) // timedelta(hours=1) % 2 else 9) for at in bases)
    told = Report(FOO, "", "all", tuple((at, 10) for at in bases), "kafka"), Report(FOO, "", "part", ingested)
    report(ledger, told, NOW)
    return starts


def asked(ledger, needs: list[Need]) -> tuple[int, dict[Partition, tuple[WindowState, str]]]:
    with ledger.read() as connection, statements(ledger) as executed:
        found = facts(connection, needs, NOW, 3)
    return len(executed), {at: (known.state, known.why) for at, known in found.windows.items()}


def test_many_windows_are_asked_about_in_as_many_statements_as_a_few(ledger, hours):
    few, _ = asked(ledger, [need(each) for each in hours[:2]])
    many, known = asked(ledger, [need(each) for each in hours])
    assert (few, len(known)) == (many, 40)
    assert known[need(hours[0]).windows[0].windows[0]] == (WindowState.OPEN, "108 of 120 records at kafka (90.0000 %)")
    assert known[need(hours[1]).windows[0].windows[0]][0] is WindowState.COMPLETE


def test_whether_a_producer_reports_is_asked_of_no_reports(ledger, hours):
    counted = replace(need(hours[0]).windows[0], counts_itself=True)
    with ledger.read() as connection, statements(ledger) as executed:
        assert reporting(connection, [counted]) == {FOO}
    assert executed
    assert not [sql for sql, _ in executed if re.search(r"\breport\b", sql)]


@pytest.mark.parametrize(
    ("tier", "by", "is_producer"), [("", "ann", True), ("", COUNTER, False), ("kafka", "ann", False)]
)
def test_who_reports_what_was_ingested_is_the_producer_unless_it_is_our_own_count(ledger, tier, by, is_producer):
    start = NOW.replace(minute=0, second=0, microsecond=0)
    report(ledger, [Report(FOO, "", "part", ((start, 10),), tier)], NOW, by)
    with ledger.read() as connection:
        assert (FOO in reported_by_others(connection, {FOO})) is is_producer


def test_no_history_is_gone_through(sqlite_ledger):
    with sqlite_ledger.read() as connection, statements(sqlite_ledger) as executed:
        facts(connection, [need(NOW)], NOW, 3)
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values) for sql, values in executed]
        steps = [row.detail for plan in plans for row in plan]
    assert not scanned([step for step in steps if " window" in step])
