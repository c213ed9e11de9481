"""Mappings of time agree both ways across clock changes: an output needs an input if and only if it affects it."""

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from feed_assets.orchestration.declare import dagster_mappings, mappings
from feed_assets.orchestration.declare.mappings import BatchDate, DayToDate, Previous, Within
from feed_assets.orchestration.declare.partitions import extent_of, is_there
from feed_assets.orchestration.declare.time_windows import bounds, key_at, keys_between, moved
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2026, 11, 1, tzinfo=UTC)
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)

CHANGES = [
    ("Atlantic/Azores", "2025-10-26"),  # 00:00 comes twice, on a Sunday.
    ("Atlantic/Azores", "2026-03-29"),  # 00:00 is left out.
    ("America/Havana", "2025-11-02"),
    ("America/Havana", "2026-03-08"),
    ("America/Havana", "2026-11-01"),  # The first of a month, too.
    ("Asia/Beirut", "2026-03-29"),
    ("Asia/Beirut", "2025-10-26"),
    ("Africa/Cairo", "2026-04-24"),
    ("Africa/Cairo", "2025-10-31"),
    ("America/Asuncion", "2024-03-24"),
    ("America/Asuncion", "2024-10-06"),
    ("America/Sao_Paulo", "2018-02-18"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("Asia/Tehran", "2022-03-22"),
    ("Asia/Tehran", "2022-09-22"),
    ("Australia/Lord_Howe", "2025-04-06"),  # Half an hour.
    ("Australia/Lord_Howe", "2025-10-05"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("Antarctica/Troll", "2025-03-30"),  # Two hours.
    ("Antarctica/Troll", "2025-10-26"),
    ("Africa/Casablanca", "2026-02-15"),
    ("Africa/Casablanca", "2026-03-22"),
    ("America/St_Johns", "2010-03-14"),
    ("America/St_Johns", "2010-11-07"),  # One minute after midnight to 23:01 of the day before.
    ("Pacific/Apia", "2011-12-30"),  # A whole day is left out.
    ("Asia/Pyongyang", "2015-08-15"),  # Half an hour back over midnight, for good.
    ("Asia/Pyongyang", "2018-05-05"),  # And forward over midnight.
    ("America/Caracas", "2016-05-01"),
    ("Asia/Kathmandu", "2026-01-01"),
    ("Europe/Berlin", "2025-10-26"),
    ("Europe/Berlin", "2026-03-29"),
    ("America/New_York", "2025-11-02"),
    ("America/New_York", "2026-03-08"),
    ("Europe/Dublin", "2025-10-26"),
    ("Asia/Gaza", "2025-10-25"),
    ("Pacific/Chatham", "2026-04-05"),
]
CRONS = {
    "10 minutes": "*/10 * * * *",
    "hours": "0 * * * *",
    "days": "0 0 * * *",
    "days from 2:00": "0 2 * * *",
    "Sunday weeks": "0 0 * * 0",
    "ISO weeks": "0 0 * * 1",
    "months": "0 0 1 * *",
}
BEFORE = {"10 minutes": 3, "hours": 70, "days": 70}
"""Days before a change with which partitions begin."""
LEFT_OUT = {"2011-12-30"}
"""Day of Apia that no clock showed, though Dagster lists it."""
NO_SUCH_DAY = {("Africa/Casablanca", "2026-03-22"), ("Pacific/Apia", "2011-12-30")}
"""Changes at which Dagster lists a day from 2:00 and refuses a run of it: such feeds are refused at declaration."""
PAIRS = [
    ("hours", "days"),
    ("hours", "hours"),
    ("hours", "days from 2:00"),
    ("hours", "Sunday weeks"),
    ("hours", "ISO weeks"),
    ("hours", "months"),
    ("10 minutes", "hours"),
    ("days", "days"),
    ("days", "Sunday weeks"),
    ("days", "ISO weeks"),
    ("days", "months"),
    ("days", "hours"),
    ("Sunday weeks", "days"),
    ("Sunday weeks", "months"),
    ("months", "Sunday weeks"),
]
AROUND = {"10 minutes": 3 * HOUR, "hours": DAY}
"""Time around a change whose inputs and outputs are compared, by the parent; two days by default."""
MAPPINGS = [dg.TimeWindowPartitionMapping(*offsets) for offsets in ((0, 0), (-1, -1), (-2, 1))]
OURS = [Within(), BatchDate(), DayToDate()]


@cache
def windows(kind: str, zone: str, day: str) -> dg.TimeWindowPartitionsDefinition:
    """Return the partitions from some months before a change to some months after it."""
    fmt = "%Y-%m-%d" if CRONS[kind].startswith("0 0") else "%Y-%m-%d-%H:%M"
    start = (date.fromisoformat(day) - timedelta(days=BEFORE.get(kind, 150))).strftime(
        "%Y-%m-01-00:00"[: 8 if fmt == "%Y-%m-%d" else None]
    )
    start = f"{start}01" if len(start) == 8 else start
    return dg.TimeWindowPartitionsDefinition(cron_schedule=CRONS[kind], start=start, fmt=fmt, timezone=zone)


def near(definition: dg.TimeWindowPartitionsDefinition, zone: str, day: str, around: timedelta = 2 * DAY) -> list[str]:
    """Return the partitions that have a moment near the change."""
    midnight = datetime.combine(date.fromisoformat(day), time(), ZoneInfo(zone)).astimezone(UTC)
    keys = keys_between(definition, midnight - around, midnight + around)
    return [key for key in keys if is_there(definition, key, datetime.now(UTC))]


@each_case(("zone", "day"), CHANGES)
def test_an_output_needs_what_affects_it_and_nothing_else(zone, day):
    for parent, child in PAIRS:
        if (zone, day) not in NO_SUCH_DAY or "days from 2:00" not in (parent, child):
            agree(zone, day, parent, child)


def agree(zone: str, day: str, parent: str, child: str) -> None:
    above, below = windows(parent, zone, day), windows(child, zone, day)
    around = AROUND.get(parent, 2 * DAY)
    inputs, outputs = ({*near(each, zone, day, around)} for each in (above, below))
    assert inputs
    assert outputs
    for mapping in MAPPINGS:

        @cache
        def needed(output: str, mapping: dg.PartitionMapping = mapping) -> set[str]:
            return {*dagster_mappings.needed(mapping, below, above, output).existing}

        by_need = {(key, output) for output in outputs for key in needed(output) if key in inputs}
        by_change = {
            (key, output) for key in inputs for output in dagster_mappings.affected(mapping, below, above, [key])
        }
        assert by_need == {pair for pair in by_change if pair[1] in outputs}
        for key, output in sorted(pair for pair in by_change if pair[1] not in outputs)[::20]:
            assert key in needed(output)


@each_case(("zone", "day"), CHANGES)
def test_windows_follow_each_other_without_a_gap_and_keys_are_dagsters_own(zone, day):
    for kind in CRONS:
        if (zone, day) not in NO_SUCH_DAY or kind != "days from 2:00":
            follow_each_other(zone, day, kind)
            are_dagsters(zone, day, kind)


def follow_each_other(zone: str, day: str, kind: str) -> None:
    definition = windows(kind, zone, day)
    keys = near(definition, zone, day, 4 * HOUR if kind == "10 minutes" else 3 * DAY)
    found = [bounds(definition, key) for key in keys]
    assert len({*keys}) == len(keys)
    for before, after in pairwise(found):
        assert before[1] == after[0]
    for key, (start, end) in zip(keys, found, strict=True):
        for moment in (start, start + MINUTE, start + (end - start) / 2, end - MINUTE):
            assert key_at(definition, moment) == key
        assert (moved(definition, start, 1), moved(definition, end, -1)) == (end, start)


def are_dagsters(zone: str, day: str, kind: str) -> None:
    definition = windows(kind, zone, day)
    midnight = datetime.combine(date.fromisoformat(day), time(), ZoneInfo(zone)).astimezone(UTC)
    with dg.partition_loading_context(midnight + (2 if kind == "10 minutes" else 35) * DAY):
        listed = [*definition.get_partition_keys()]
    first, last = bounds(definition, listed[0])[0], bounds(definition, listed[-1])[0]
    assert [*keys_between(definition, first, last + MINUTE)] == [key for key in listed if key not in LEFT_OUT]


@each_case(
    ("zone", "output", "count", "first"),
    [
        ("Atlantic/Azores", "2025-10-26", 25, "2025-10-26-00:00"),
        ("Atlantic/Azores", "2026-03-29", 23, "2026-03-29-01:00"),
        ("America/Havana", "2025-11-02", 25, "2025-11-02-00:00"),
        ("America/Havana", "2026-03-08", 23, "2026-03-08-01:00"),
        ("Asia/Tehran", "2022-09-21", 25, "2022-09-21-00:00"),
        ("Africa/Cairo", "2025-10-30", 25, "2025-10-30-00:00"),
        ("Antarctica/Troll", "2025-10-26", 26, "2025-10-26-00:00"),
        ("Antarctica/Troll", "2025-03-30", 22, "2025-03-30-00:00"),
        # Hours that begin at half past may belong to two days.
        ("Australia/Lord_Howe", "2025-04-06", 25, "2025-04-06-00:00"),
        ("America/St_Johns", "2010-11-07", 25, "2010-11-07-00:00"),
        ("Europe/Berlin", "2025-10-26", 25, "2025-10-26-00:00"),
    ],
)
def test_a_day_needs_its_hours(zone, output, count, first):
    found = dagster_mappings.needed(MAPPINGS[0], windows("days", zone, output), windows("hours", zone, output), output)
    assert (len(found.existing), found.existing[0], found.absent) == (count, first, [])


@each_case(
    ("zone", "week", "count"),
    [
        ("Atlantic/Azores", "2025-10-26", 169),
        ("America/Havana", "2025-11-02", 169),
        ("Europe/Berlin", "2026-03-29", 167),
    ],
)
def test_a_week_whose_midnight_comes_twice_needs_both_and_each_affects_it(zone, week, count):
    weeks, hours = windows("Sunday weeks", zone, week), windows("hours", zone, week)
    found = dagster_mappings.needed(MAPPINGS[0], weeks, hours, week).existing
    assert len(found) == count
    assert dagster_mappings.affected(MAPPINGS[0], weeks, hours, found) == [week]
    assert all(dagster_mappings.affected(MAPPINGS[0], weeks, hours, [key]) == [week] for key in found)


@each_case(("zone", "day"), [("Atlantic/Azores", "2025-10-26"), ("America/Havana", "2025-11-02")])
def test_a_dimension_of_time_is_mapped_like_time_alone(zone, day):
    regions = dg.StaticPartitionsDefinition(["apac", "emea"])
    hours = dg.MultiPartitionsDefinition({"hour": windows("hours", zone, day), "region": regions})
    days = dg.MultiPartitionsDefinition({"day": windows("days", zone, day), "region": regions})
    with pytest.warns(dg.BetaWarning):
        by_name = dg.MultiPartitionMapping(
            {
                "hour": dg.DimensionPartitionMapping("day", dg.TimeWindowPartitionMapping()),
                "region": dg.DimensionPartitionMapping("region", dg.IdentityPartitionMapping()),
            }
        )
    assert dagster_mappings.is_by_time(by_name, days, hours)
    own = dagster_mappings.needed(by_name, days, hours, f"{day}/emea").existing
    assert len(own) == 25
    assert all(dagster_mappings.affected(by_name, days, hours, [path]) == [f"{day}/emea"] for path in own)
    to_one = dg.MultiToSingleDimensionPartitionMapping()
    alone = windows("days", zone, day)
    every = dagster_mappings.needed(to_one, alone, hours, day).existing
    assert len(every) == 50
    assert all(dagster_mappings.affected(to_one, alone, hours, [path]) == [day] for path in every)


def test_an_hour_or_a_day_that_clocks_leave_out_is_no_partition():
    hours = windows("hours", "America/New_York", "2026-03-08")
    assert not is_there(hours, "2026-03-08-02:00", NOW)
    assert is_there(hours, "2026-03-08-03:00", NOW)
    assert not is_there(windows("days", "Pacific/Apia", "2011-12-30"), "2011-12-30", NOW)


@each_case(("zone", "day"), CHANGES)
def test_mappings_by_spans_agree_too_from_and_to_utc_and_each_window_has_one_before(zone, day):
    for mapping in OURS:
        spans_agree(mapping, zone, day)
    for kind in ("hours", "days", "Sunday weeks", "months"):
        has_one_before(zone, day, kind)


def spans_agree(mapping: mappings.BySpan, zone: str, day: str) -> None:
    for child, parent in (("days", "hours"), ("hours", "hours"), ("days", "days"), ("Sunday weeks", "days")):
        for of, to in ((zone, "UTC"), ("UTC", zone), (zone, zone)):
            below, above = windows(child, of, day), windows(parent, to, day)
            outputs, inputs = near(below, of, day), near(above, to, day)
            by_need = {
                (key, path)
                for path in outputs
                for key in mappings.upstream(mapping, below, above, path)
                if key in inputs
            }
            by_change = set[tuple[str, str]]()
            for key in inputs:
                extent = extent_of(above, key)
                span = mappings.TimeSpan(extent.start, extent.end)
                reached = mappings.downstream(mapping, below, span, extent.zone, extent.values)
                by_change |= {(key, path) for path in reached if path in outputs}
            assert by_need == by_change


def has_one_before(zone: str, day: str, kind: str) -> None:
    definition = windows(kind, zone, day)
    keys = near(definition, zone, day, 2 * DAY)
    for before, after in pairwise(keys):
        assert mappings.upstream(Previous(), definition, definition, after) == [before]
        span = mappings.TimeSpan(*bounds(definition, before))
        assert mappings.downstream(Previous(), definition, span, zone, {}) == [after]


@each_case("zone", ["UTC", "Asia/Kolkata", "Europe/Berlin"])
def test_without_clock_changes_mappings_are_those_of_dagster(zone):
    """Include the first and the last partitions, which offsets leave."""
    for parent, child in PAIRS:
        is_dagsters(zone, parent, child)


def is_dagsters(zone: str, parent: str, child: str) -> None:
    above, below = windows(parent, zone, "2026-01-20"), windows(child, zone, "2026-01-20")
    start = above.start.astimezone(UTC)
    for now in (start + 40 * DAY, start + 70 * DAY + 5 * HOUR):
        with dg.partition_loading_context(now):
            for mapping in MAPPINGS:
                for output in [*below.get_partition_keys()][:4] + [*below.get_partition_keys()][-4:]:
                    theirs = mapping.get_upstream_mapped_partitions_result_for_partitions(
                        below.subset_with_partition_keys([output]), below, above
                    )
                    ours = dagster_mappings.needed(mapping, below, above, output)
                    assert ours.existing == sorted(theirs.partitions_subset.get_partition_keys())
                    assert ours.absent == sorted(theirs.required_but_nonexistent_subset.get_partition_keys())
                for key in [*above.get_partition_keys()][5:8] + [*above.get_partition_keys()][-8:-5]:
                    theirs = mapping.get_downstream_partitions_for_partitions(
                        above.subset_with_partition_keys([key]), above, below
                    )
                    assert dagster_mappings.affected(mapping, below, above, [key]) == sorted(
                        theirs.get_partition_keys()
                    )
