"""A changed declaration: new members leave the past unchanged, and new rules judge it again."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import InvalidName
from feed_assets.core.sub_partitions import Life, Member, Regions, SubPartitions, Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger.states import count_reports, window_policies, window_queries
from feed_assets.ledger.states.watermarks import Watermarks, watermarks
from feed_assets_tests.ledger.state_reports import FOO, NOW, last_sequence, part, source, transitions

FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)
HOUR = datetime(2026, 1, 1, 15, tzinfo=UTC)
HOURLY = Completeness(grains=("hour", "day"))
TWO, THREE = (
    Regions({"apac": "Asia/Singapore", "emea": "UTC"}),
    Regions({"apac": "+08:00", "emea": "UTC", "latam": "-3"}),
)


def fill(ledger, region, day):
    """Report all hours of a batch date of a region, complete."""
    sub = f"region={region}"
    with ledger.read() as connection:
        whole = window_policies.tracked(connection, [FOO])[FOO].window(sub, "day", day.isoformat())
    counts = {whole.start + timedelta(hours=hour): 10 for hour in range(24)}
    count_reports.report(ledger, [*source(counts, sub_partition=sub), part(f"{day}", counts, sub_partition=sub)], NOW)


def state(ledger, grain, key, sub_partition=""):
    address = WindowAddress(FOO, sub_partition, grain, key)
    with ledger.read() as connection:
        row = window_queries.stored_windows(connection, [address]).get(address)
    return row.state if row else WindowState.OPEN


def declare(ledger, regions, day, completeness=HOURLY):
    now = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    window_queries.declare(ledger, {FOO: Tracked.of(completeness, regions)}, now)


def test_a_batch_date_is_complete_when_it_is_in_every_region(ledger):
    declare(ledger, TWO, FIRST)
    fill(ledger, "apac", FIRST)
    assert (state(ledger, "day", "2026-01-01", "region=apac"), state(ledger, "day", "2026-01-01")) == (
        "complete",
        "open",
    )
    fill(ledger, "emea", FIRST)
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE
    with ledger.read() as connection:
        found = watermarks(connection, [(FOO, "", "day")])[FOO, "", "day"]
    assert found == Watermarks(*[datetime(2026, 1, 2, tzinfo=UTC)] * 2)


def test_new_region_does_not_reopen_the_past(ledger):
    declare(ledger, TWO, FIRST)
    for region in ("apac", "emea"):
        fill(ledger, region, FIRST)
    seen = last_sequence(ledger)
    declare(ledger, THREE, SECOND)
    for region in ("apac", "emea"):
        fill(ledger, region, SECOND)
    assert [each for each in transitions(ledger, seen) if each[0] in ("day@2026-01-01", "day@2026-01-02")] == []
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE
    fill(ledger, "latam", SECOND)
    assert state(ledger, "day", "2026-01-02") is WindowState.COMPLETE


def test_removed_region_is_required_only_on_earlier_days(ledger):
    declare(ledger, THREE, FIRST)
    declare(ledger, TWO, SECOND)
    for region, day in [("apac", FIRST), ("emea", FIRST), ("apac", SECOND), ("emea", SECOND)]:
        fill(ledger, region, day)
    assert (state(ledger, "day", "2026-01-01"), state(ledger, "day", "2026-01-02")) == ("open", "complete")
    fill(ledger, "latam", FIRST)
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE


def test_report_of_a_removed_region_is_refused(ledger):
    declare(ledger, THREE, FIRST)
    declare(ledger, TWO, SECOND)
    at = datetime(2026, 1, 2, 12, tzinfo=UTC)
    found = count_reports.report(ledger, [part("late", {at: 1}, sub_partition="region=latam")], NOW)
    assert "region=latam is not expected in 2026-01-02-12:00" in found.rejected[0].reason


def test_ledger_keeps_the_date_on_which_a_region_joined(ledger):
    declare(ledger, TWO, FIRST)
    declare(ledger, THREE, SECOND)
    declare(ledger, THREE, date(2026, 5, 1))
    with ledger.read() as connection:
        found = window_policies.tracked(connection, [FOO])[FOO].members["region=latam"]
    assert found == Life("Etc/GMT+3", SECOND)


def test_changed_ratio_judges_existing_counts_again(ledger):
    strict, mild = (Tracked.of(Completeness(ratio=ratio)) for ratio in ("100%", "90%"))
    window_queries.declare(ledger, {FOO: strict}, NOW)
    counts = {datetime(2026, 1, 1, 15, minute, tzinfo=UTC): 100 for minute in range(0, 60, 5)}
    count_reports.report(ledger, [*source(counts), part("part", dict.fromkeys(counts, 95))], NOW)
    assert transitions(ledger) == []
    window_queries.declare(ledger, {FOO: mild}, NOW)
    assert state(ledger, "hour", "2026-01-01-15:00") is WindowState.COMPLETE
    seen = last_sequence(ledger)
    window_queries.declare(ledger, {FOO: mild}, NOW)
    assert last_sequence(ledger) == seen
    window_queries.declare(ledger, {FOO: strict}, NOW)
    assert state(ledger, "hour", "2026-01-01-15:00") is WindowState.OPEN


def test_new_grain_is_summed_from_existing_counts(ledger):
    counts = {datetime(2026, 1, 1, 15, minute, tzinfo=UTC): 100 for minute in range(0, 60, 5)}
    count_reports.report(ledger, [*source(counts), part("part", counts)], NOW)
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=("5min", "30min")))}, NOW)
    assert [state(ledger, "30min", f"2026-01-01-15:{minute}") for minute in ("00", "30")] == ["complete", "complete"]
    assert state(ledger, "hour", "2026-01-01-15:00") is WindowState.OPEN
    address = WindowAddress(FOO, "", "30min", "2026-01-01-15:30")
    with ledger.read() as connection:
        assert window_queries.stored_windows(connection, [address])[address].records == 600


def test_larger_base_grain_is_counted_from_existing_reports(ledger):
    """A producer that reports before the dataset is declared does so by 5 minutes."""
    counts = {datetime(2026, 1, 1, 15, minute, tzinfo=UTC): 100 for minute in range(0, 60, 5)}
    count_reports.report(ledger, [*source(counts), part("part", {**counts, NOW: 7})], NOW)
    declare(ledger, None, FIRST)
    address = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    with ledger.read() as connection:
        found = window_queries.stored_windows(connection, [address])[address]
        assert window_policies.tracked(connection, [FOO])[FOO].base == "hour"
    assert (found.state, found.records, found.counts) == ("complete", 1200, {"kafka": 1200})
    count_reports.report(ledger, [part("part", {HOUR: 1100}, version=1)], NOW)
    assert state(ledger, "hour", "2026-01-01-15:00") is WindowState.OPEN


def test_a_smaller_base_grain_is_refused_once_there_are_counts(ledger):
    declare(ledger, None, FIRST)
    count_reports.report(ledger, [part("part", {HOUR: 1})], NOW)
    refused = window_queries.declare(ledger, {FOO: Tracked.of(Completeness())}, NOW)
    assert "has counts by windows of hour, its declaration says 5min" in str(refused[FOO])
    with ledger.read() as connection:
        assert window_policies.tracked(connection, [FOO])[FOO].base == "hour"


def test_accepted_region_completes_its_batch_date(ledger):
    declare(ledger, TWO, FIRST)
    fill(ledger, "emea", FIRST)
    address = WindowAddress(FOO, "region=apac", "day", "2026-01-01")
    window_queries.accept(ledger, address, "its data center burnt down", "ada", NOW)
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE


def test_report_of_an_undeclared_region_is_refused(ledger):
    declare(ledger, TWO, FIRST)
    found = count_reports.report(
        ledger, [part("part", {NOW: 1}), replace(part("b", {NOW: 1}), sub_partition="x=y")], NOW
    )
    assert [each.reason for each in found.rejected] == [
        "sub-partition '': expected one of region=apac, region=emea.",
        "sub-partition 'x=y': expected one of region=apac, region=emea.",
    ]


def filled(day):
    """Return reports of the hours of a UTC day, complete."""
    counts = {datetime(day.year, day.month, day.day, hour, tzinfo=UTC): 10 for hour in range(24)}
    return [*source(counts), part(f"{day}", counts)]


def bounds(ledger, key, sub_partition=""):
    address = WindowAddress(FOO, sub_partition, "day", key)
    with ledger.read() as connection:
        row = window_queries.stored_windows(connection, [address])[address]
    return row.start, row.end, row.state.value


def test_days_follow_the_currently_declared_zone(ledger):
    """This happens if a dataset is reported before its regions are declared, or if a zone was wrong."""
    given = {datetime(2025, 12, 31, 16, tzinfo=UTC) + timedelta(hours=hour): 10 for hour in range(24)}
    sub = {"sub_partition": "region=apac"}
    five = {at + timedelta(minutes=minute): 1 for at in given for minute in range(0, 60, 5)}
    count_reports.report(ledger, [*source(five, **sub), part("part", five, **sub)], NOW)
    for zone, state in (("UTC", "open"), ("Asia/Singapore", "complete"), ("UTC", "open")):
        declare(ledger, Regions({"apac": zone}), FIRST, Completeness())
        begins = datetime(2026, 1, 1, tzinfo=UTC) if zone == "UTC" else datetime(2025, 12, 31, 16, tzinfo=UTC)
        assert bounds(ledger, "2026-01-01", "region=apac") == (begins, begins + timedelta(days=1), state)


def test_regions_of_a_dataset_counted_as_a_whole_start_today(ledger):
    declare(ledger, None, FIRST)
    count_reports.report(ledger, filled(FIRST), NOW)
    seen = last_sequence(ledger)
    declare(ledger, TWO, SECOND)
    assert transitions(ledger, seen) == []
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE
    late = replace(filled(FIRST)[-1], version=f"{9:020d}")
    assert count_reports.report(ledger, [late], NOW).accepted == 1


def test_a_region_that_gets_countries_keeps_its_past(ledger):
    declare(ledger, TWO, FIRST)
    for region in ("apac", "emea"):
        fill(ledger, region, FIRST)
    seen = last_sequence(ledger)
    countries = SubPartitions("country", {"sg": None})
    declare(ledger, Regions({"apac": Member("Asia/Singapore", below=countries), "emea": "UTC"}), SECOND)
    assert transitions(ledger, seen) == []
    at = {datetime(2026, 1, 1, 1, tzinfo=UTC): 10}
    assert count_reports.report(ledger, [part("late", at, sub_partition="region=apac")], NOW).accepted == 1
    at = {datetime(2026, 1, 3, 1, tzinfo=UTC): 10}
    assert count_reports.report(ledger, [part("new", at, sub_partition="region=apac/country=sg")], NOW).accepted == 1
    refused = count_reports.report(ledger, [part("new", at, sub_partition="region=apac")], NOW).rejected
    assert "expected one of region=apac/country=sg" in refused[0].reason


def test_returning_region_is_required_on_its_earlier_days(ledger):
    declare(ledger, TWO, FIRST)
    declare(ledger, Regions({"emea": "UTC"}), SECOND)
    declare(ledger, TWO, date(2026, 3, 1))
    fill(ledger, "emea", FIRST)
    assert state(ledger, "day", "2026-01-01") is WindowState.OPEN
    fill(ledger, "apac", FIRST)
    assert state(ledger, "day", "2026-01-01") is WindowState.COMPLETE


@pytest.mark.parametrize("is_first", [True, False])
def test_region_may_leave_before_or_after_the_reports_of_the_day(ledger, is_first):
    declare(ledger, TWO, FIRST)
    if not is_first:
        fill(ledger, "emea", SECOND)
    declare(ledger, Regions({"emea": "UTC"}), SECOND)
    if is_first:
        fill(ledger, "emea", SECOND)
    assert state(ledger, "day", "2026-01-02") is WindowState.COMPLETE


def test_region_added_on_a_complete_day_joins_on_the_next(ledger):
    declare(ledger, TWO, FIRST)
    for region in ("apac", "emea"):
        fill(ledger, region, SECOND)
    declare(ledger, THREE, SECOND)
    with ledger.read() as connection:
        assert window_policies.tracked(connection, [FOO])[FOO].members["region=latam"].since == date(2026, 1, 3)
    assert state(ledger, "day", "2026-01-02") is WindowState.COMPLETE


def test_removed_grain_logs_its_windows_as_open(ledger):
    count_reports.report(ledger, [*source({HOUR: 1}), part("part", {HOUR: 1})], NOW)
    window_queries.accept(ledger, WindowAddress(FOO, "", "hour", "2026-01-01-15:00"), "why", "ada", NOW)
    seen = last_sequence(ledger)
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=("5min", "10min")))}, NOW)
    assert transitions(ledger, seen) == [("hour@2026-01-01-15:00", "complete", "open")]
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness())}, NOW)
    assert state(ledger, "hour", "2026-01-01-15:00") is WindowState.OPEN


def test_a_batch_date_ends_with_its_last_region(ledger):
    declare(ledger, Regions({"emea": "UTC"}), FIRST)
    at = {datetime(2026, 1, 3, 5, tzinfo=UTC): 10}
    count_reports.report(ledger, [part("early", at, sub_partition="region=emea")], NOW)
    declare(ledger, THREE, SECOND)
    start, end, _ = bounds(ledger, "2026-01-03")
    assert (start, end) == (datetime(2026, 1, 2, 16, tzinfo=UTC), datetime(2026, 1, 4, 3, tzinfo=UTC))


@pytest.mark.parametrize("parts", [["region=apac", "region=emea"], [""]], ids=["of its regions", "of smaller windows"])
def test_window_complete_by_accepted_parts_is_logged_once(ledger, parts):
    declare(ledger, TWO if parts[0] else None, FIRST, Completeness(grains=("30min", "hour", "day")))
    hour = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    for at in ("00", "30"):
        for each in parts:
            below = hour._replace(grain="30min", key=f"2026-01-01-15:{at}", sub_partition=each)
            assert window_queries.accept(ledger, below, "lost", "ada", NOW)
    assert state(ledger, "hour", hour.key) is WindowState.COMPLETE
    assert not window_queries.accept(ledger, hour, "lost, too", "ada", NOW)
    told = [each[1:] for each in transitions(ledger) if each[0] == "hour@2026-01-01-15:00"]
    assert told == [("open", "complete")]
    with ledger.read() as connection:
        assert window_queries.stored_windows(connection, [hour])[hour].accepted == "accepted by ada: lost, too"


def test_a_batch_date_is_named_by_the_start_that_is_shown_or_by_its_midnight(ledger):
    declare(ledger, Regions({"in": "Asia/Kolkata", "west": "America/Los_Angeles"}), FIRST, Completeness())
    with ledger.read() as connection:
        tracked = window_policies.tracked(connection, [FOO])[FOO]
    for day in ("2026-01-01", "2026-01-02"):
        shown = tracked.window("", "day", day).start
        midnight = datetime.fromisoformat(f"{day}T00:00:00Z")
        assert (shown, [tracked.window_from("", "day", each).key for each in (shown, midnight)]) == (
            midnight - timedelta(hours=5, minutes=30),
            [day, day],
        )
    with pytest.raises(InvalidName, match=r"found 2026-01-01T01:00:00Z, expected .* such as 2025-12-31T18:30:00Z"):
        tracked.window_from("", "day", datetime(2026, 1, 1, 1, tzinfo=UTC))
