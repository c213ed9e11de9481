"""Queries about windows take a few statements, however many windows there are, and scan no history."""

import re
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import WindowInput
from feed_assets.core.readiness import Need
from feed_assets.core.reports import Report
from feed_assets.core.spans import Span
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.update_choice import Choice
from feed_assets.core.windows import HOUR, WindowAddress, window_of
from feed_assets.ledger.fact_queries import facts
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.states.window_queries import declare, report_quality
from feed_assets.ledger.update_counts import COUNTER, reported_by_others
from feed_assets.ledger.window_facts import reporting
from feed_assets_tests.support.ledger_records import NOW, scanned, statements

FOO, OUT = Feed.parse("web/foo"), Feed.parse("web/out/v1.0")
BASE = timedelta(minutes=5)


def need(start: datetime) -> Need:
    """Return the need of an hour of foo."""
    hour = window_of(HOUR, start)
    return Need(Partition(OUT, hour.key), (WindowInput(Span(FOO, "", hour.start, hour.end, (hour,))),))


@pytest.fixture
def hours(ledger) -> list[datetime]:
    """Report 40 hours, of which every other one is complete. Return their starts."""
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


def test_many_windows_take_as_many_statements_as_few(ledger, hours):
    few, _ = asked(ledger, [need(each) for each in hours[:2]])
    many, known = asked(ledger, [need(each) for each in hours])
    assert (few, len(known)) == (many, 40)
    assert known[need(hours[0]).windows[0].windows[0]] == (
        WindowState.OPEN,
        f"5min {hours[0]:%Y-%m-%d-%H:%M} has 9 of 10 records at kafka (90.0000 %)",
    )
    assert known[need(hours[1]).windows[0].windows[0]][0] is WindowState.COMPLETE


def test_check_for_a_reporting_producer_reads_no_reports(ledger, hours):
    counted = replace(need(hours[0]).windows[0], counts_itself=True)
    with ledger.read() as connection, statements(ledger) as executed:
        assert reporting(connection, [counted]) == {FOO}
    assert executed
    assert not [sql for sql, _ in executed if re.search(r"\breport\b", sql)]


@pytest.mark.parametrize(
    ("tier", "by", "is_producer"), [("", "ann", True), ("", COUNTER, False), ("kafka", "ann", False)]
)
def test_reporter_of_ingested_records_is_the_producer_unless_it_is_our_counter(ledger, tier, by, is_producer):
    start = NOW.replace(minute=0, second=0, microsecond=0)
    report(ledger, [Report(FOO, "", "part", ((start, 10),), tier)], NOW, by)
    with ledger.read() as connection:
        assert (FOO in reported_by_others(connection, {FOO})) is is_producer


def test_window_queries_never_scan_the_history(sqlite_ledger):
    with sqlite_ledger.read() as connection, statements(sqlite_ledger) as executed:
        facts(connection, [need(NOW)], NOW, 3)
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values) for sql, values in executed]
        steps = [row.detail for plan in plans for row in plan]
    assert not scanned([step for step in steps if " window" in step])


REGIONS = Tracked.of(Completeness(tiers=("kafka",)), Regions({"apac": "Asia/Singapore", "emea": "UTC"}))
EMEA = "region=emea"


def told(first: datetime, last: datetime, **counts: dict[str, int]) -> list[Report]:
    """Return reports of foo from one moment to another, by region and tier, with the records of each base window."""
    starts = [first + number * BASE for number in range((last - first) // BASE)]
    return [
        Report(FOO, f"region={region}", f"{tier}{first}", tuple((at, count) for at in starts), tier)
        for region, tiers in counts.items()
        for tier, count in ({"": 100, "kafka": 100} | tiers).items()
    ]


def of_hour(ledger, start: datetime) -> str | None:
    """Return what an output is told about an hour of all regions."""
    hour = need(start)
    with ledger.read() as connection:
        found = facts(connection, [hour], NOW, 3)
    return hour.windows[0].behind(found, Choice())


def test_larger_window_names_the_base_window_that_it_waits_for(ledger):
    start = NOW.replace(minute=0, second=0, microsecond=0)
    declare(ledger, {FOO: REGIONS}, NOW)
    report(ledger, told(start, start + 12 * BASE, apac={}), NOW)
    report(ledger, told(start, start + 3 * BASE, emea={}), NOW)
    report(ledger, told(start + 3 * BASE, start + 4 * BASE, emea={"kafka": 200}), NOW)
    said = f"hour {start:%Y-%m-%d-%H:%M} of web/foo is open: "
    slot = start + 3 * BASE
    mended = told(slot, slot + BASE, emea={"": 200})[0]
    base = f"5min {slot:%Y-%m-%d-%H:%M} in {EMEA} "
    assert of_hour(ledger, start) == f"{said}{base}has 100 of 200 records at kafka (50.0000 %)"
    report(ledger, [replace(mended, version=encode(1))], NOW)
    empty = f"10min {start + 4 * BASE:%Y-%m-%d-%H:%M} in {EMEA} is open: nothing is reported of it"
    assert of_hour(ledger, start) == said + empty
    report_quality(ledger, WindowAddress(FOO, EMEA, "5min", f"{slot:%Y-%m-%d-%H:%M}"), "n", "failed", "dup", "dq", NOW)
    assert of_hour(ledger, start) == f"{said}{base}is invalid: n: dup"


def test_larger_window_with_duplicates_names_their_base_window(ledger):
    start = NOW.replace(minute=0, second=0, microsecond=0)
    report(ledger, [replace(each, sub_partition="") for each in told(start, start + 11 * BASE, all={})], NOW)
    last = start + 11 * BASE
    report(ledger, [replace(each, sub_partition="") for each in told(last, last + BASE, all={"": 101})], NOW)
    hour = need(start)
    with ledger.read() as connection:
        said = hour.windows[0].problem(facts(connection, [hour], NOW, 3))
    assert said
    assert said.endswith(f"issue: 5min {last:%Y-%m-%d-%H:%M} has 101 of 100 records at kafka (101.0000 %)")
