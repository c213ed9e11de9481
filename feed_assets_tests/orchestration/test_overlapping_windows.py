"""Datasets that wait for complete windows of a table or feed, tick by tick."""

import json
from datetime import datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import (
    BatchDate,
    Completeness,
    DayToDate,
    Input,
    Late,
    Member,
    Regions,
    SubPartitions,
    Watermark,
    Within,
    feed_asset,
    foreign_feed,
    state_table,
)
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State, Verdict
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import due, log, quality, updates
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.states.window_queries import accept, declare, report_quality
from feed_assets.orchestration import by_hand
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.window_reports import BASE, NOW, moment, report_complete, report_counts
from feed_assets_tests.support.sum_projects import harness as world
from feed_assets_tests.support.sum_projects import raw_feed, rows

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
TENS = dg.TimeWindowPartitionsDefinition(cron_schedule="*/10 * * * *", start="2026-01-01-00:00", fmt="%Y-%m-%d-%H:%M")
FOO = Feed.parse("web/foo")
KAFKA = Completeness(tiers=("kafka",))


def days(zone: str) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition("2026-01-01", timezone=zone)


def foo(partitions_def=HOURS, **options) -> dg.AssetSpec:
    return state_table("web/foo", partitions_def=partitions_def, completeness=KAFKA, **options)


def reader(name: str, partitions_def, read, **options) -> dg.AssetsDefinition:
    """Build a dataset that reads foo."""

    @feed_asset(f"web/{name}/v1.0", partitions_def=partitions_def, inputs={"foo": read}, **options)
    def made(foo):
        """Read foo."""

    return made


@pytest.fixture
def harness():
    """Return a function that builds a world of some assets, with a clock at NOW."""

    def make(*assets, now: datetime = NOW):
        return world(*assets, give=give, now=lambda: now)

    READ.clear()
    return make


READ: list[tuple[str, str, tuple[str, ...]]] = []
"""Reads of runs, as (output, sub-partition, keys of windows)."""


def give(task) -> Given:
    READ.extend(
        (task.output.path, span.sub_partition, tuple(each.key for each in span.windows))
        for span in task.spans.values()
        if span
    )
    return Given([{"n": len(READ)}])


def verdict(tested, dataset: str, key: str) -> Verdict:
    """Return the current verdict of a partition, as `explain` shows it."""
    graph, output = Graph(tested.definitions.resolve_asset_graph()), Partition(Feed.parse(f"web/{dataset}/v1.0"), key)
    with dg.partition_loading_context(tested.now()), open_ledger(settings().ledger).read() as connection:
        (found,) = verdicts(graph, connection, [output], tested.now())
    return found


def address(grain: str, key: str, sub_partition: str = "") -> WindowAddress:
    return WindowAddress(FOO, sub_partition, grain, key)


def ledger_of_home():
    return open_ledger(settings().ledger)


def made(runs) -> list[str]:
    return [f"{run.assets[0].removeprefix('web/')} {run.partition}" for run in runs]


def test_an_hour_is_built_in_the_tick_that_finds_its_window_complete(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    assert made(tested.run_until_idle()) == []
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    assert made(tested.tick()) == ["hourly 2026-01-02-15:00"]
    assert READ == [("web/hourly/v1.0/2026-01-02-15:00", "", ("2026-01-02-15:00",))]
    assert made(tested.run_until_idle()) == []


def test_a_refused_completeness_declaration_stops_no_other_table(harness):
    coarse = Tracked(("hour", "day"), "99.995%")
    other = state_table("web/other", partitions_def=HOURS)
    tested = harness(foo(), other, reader("hourly", HOURS, foo()))
    declare(open_ledger(settings().ledger), {Feed.parse("web/other"): coarse}, NOW)
    report_counts("2026-01-02-15:00", "2026-01-02-15:05", dataset="web/other")
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    assert made(tested.tick()) == ["hourly 2026-01-02-15:00"]
    with open_ledger(settings().ledger).read() as connection:
        reasons = {each.name: each.reason for each in open_alerts(connection)}
    assert [reason for name, reason in reasons.items() if "web/other" in name] == [
        "web/other has counts by windows of hour, its declaration says 5min: expected the grain of the counts, or a "
        "multiple of it. Correct the declaration, or give the dataset another name or version."
    ]


def test_an_open_window_names_the_missing_counts_in_plain_words(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    report_complete("2026-01-02-15:00", "2026-01-02-15:55")
    report_counts("2026-01-02-15:55", "2026-01-02-16:00", "kafka", 134)
    report_counts("2026-01-02-15:55", "2026-01-02-16:00", count=103)
    tested.tick()
    assert verdict(tested, "hourly", "2026-01-02-15:00").reason == (
        "hour 2026-01-02-15:00 of web/foo is open: 5min 2026-01-02-15:55 has 103 of 134 records at kafka (76.8656 %)"
    )
    assert verdict(tested, "hourly", "2026-01-02-16:00").reason == (
        "hour 2026-01-02-16:00 of web/foo is open: nothing is reported of it yet"
    )


def test_a_complete_window_wakes_only_the_outputs_that_wait_for_it(harness):
    tested = harness(foo(), reader("ten", TENS, foo()), reader("hourly", HOURS, foo()), reader("daily", DAYS, foo()))
    report_complete("2026-01-02-15:00", "2026-01-02-15:10")
    assert made(tested.tick()) == ["ten 2026-01-02-15:00"]
    with open_ledger(settings().ledger).read() as connection:
        assert due.look(connection, [Feed.parse(f"web/{name}/v1.0") for name in ("hourly", "daily")], NOW, 9) == ()


def test_an_unfinished_output_is_built_at_its_end(harness):
    tested = harness(foo(), reader("daily", DAYS, foo()), now=moment("2026-01-02-23:30"))
    report_complete("2026-01-02-00:00", "2026-01-03-00:00")
    assert made(tested.run_until_idle()) == []
    tested.now = lambda: moment("2026-01-03-00:00")
    assert made(tested.tick()) == ["daily 2026-01-02"]


REGIONS = Regions({"apac": "Asia/Singapore", "india": "Asia/Kolkata", "west": "America/Los_Angeles"})
BY_REGION = dg.MultiPartitionsDefinition({"hour": HOURS, "region": dg.StaticPartitionsDefinition([*REGIONS.members])})


@pytest.mark.parametrize(
    ("region", "zone", "date", "start", "end", "grain"),
    [
        ("apac", "Asia/Singapore", "2026-01-02", "2026-01-01-16:00", "2026-01-02-16:00", "day"),
        ("india", "Asia/Kolkata", "2026-01-02", "2026-01-01-18:30", "2026-01-02-18:30", "day"),
        ("west", "America/Los_Angeles", "2026-03-08", "2026-03-08-08:00", "2026-03-09-07:00", "day"),  # 23 hours
        ("west", "America/Los_Angeles", "2026-11-01", "2026-11-01-07:00", "2026-11-02-08:00", "day"),  # 25 hours
        ("apac", "Asia/Kolkata", "2026-01-02", "2026-01-01-18:30", "2026-01-02-18:30", "10min"),  # other clock
    ],
)
def test_a_regions_day_is_built_when_its_own_hours_are_complete(harness, region, zone, date, start, end, grain):
    table = foo(BY_REGION, regions=REGIONS)
    read = Input(table, mapping=Within(only={"region": region}))
    tested = harness(table, reader("day", days(zone), read), now=moment("2026-12-01-00:00"))
    tested.tick()
    last = (moment(end) - BASE).strftime("%Y-%m-%d-%H:%M")
    report_complete(start, last, f"region={region}")
    assert made(tested.tick()) == []
    report_complete(last, end, f"region={region}")
    assert made(tested.tick()) == [f"day {date}"]
    ((_, sub_partition, keys),) = READ
    assert (sub_partition, len(keys)) == (f"region={region}", {"day": 1, "10min": 144}[grain])


def test_a_global_day_is_built_when_the_days_of_all_regions_are_complete(harness):
    table = foo(BY_REGION, regions=REGIONS)
    tested = harness(table, reader("world", DAYS, Input(table, mapping=BatchDate())))
    tested.tick()
    report_complete("2026-01-01-16:00", "2026-01-02-16:00", "region=apac")
    report_complete("2026-01-01-18:30", "2026-01-02-18:30", "region=india")
    assert made(tested.tick()) == []
    report_complete("2026-01-02-08:00", "2026-01-03-08:00", "region=west")
    assert made(tested.tick()) == ["world 2026-01-02"]
    assert READ == [("web/world/v1.0/2026-01-02", "", ("2026-01-02",))]


def test_an_output_of_a_region_waits_for_its_own_region(harness):
    table, parts = foo(BY_REGION, regions=REGIONS), dg.StaticPartitionsDefinition(["apac", "west"])
    both = dg.MultiPartitionsDefinition({"hour": HOURS, "region": parts})
    tested = harness(table, reader("hourly", both, table))
    tested.tick()
    report_complete("2026-01-02-15:00", "2026-01-02-16:00", "region=west")
    assert made(tested.tick()) == ["hourly 2026-01-02-15:00|west"]


def test_day_to_date_reads_all_hours_up_to_its_own(harness):
    tested = harness(foo(), reader("so_far", HOURS, Input(foo(), mapping=DayToDate())))
    tested.tick()
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    assert made(tested.tick()) == []
    report_complete("2026-01-02-00:00", "2026-01-02-15:00")
    assert "so_far 2026-01-02-15:00" in made(tested.run_until_idle())
    assert READ[-1] == ("web/so_far/v1.0/2026-01-02-15:00", "", tuple(f"2026-01-02-{h:02}:00" for h in range(16)))


def built(harness, **options):
    """Build an hour from 1,200 records."""
    tested = harness(foo(), reader("hourly", HOURS, foo(), **options))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka")
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one")
    assert made(tested.run_until_idle()) == ["hourly 2026-01-02-15:00"]
    return tested


def test_a_reopened_window_is_late_data_once_it_is_complete_again(harness):
    tested = built(harness)
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=90)
    assert made(tested.run_until_idle()) == []
    found = verdict(tested, "hourly", "2026-01-02-15:00")
    assert found.state is State.WAITS_FOR_INPUT
    assert "is open: 5min 2026-01-02-15:00 has 90 of 100 records" in found.reason
    assert found.reason.endswith("which was built before, is still served")
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=100)
    assert made(tested.run_until_idle()) == ["hourly 2026-01-02-15:00"]
    assert made(tested.run_until_idle()) == []


def test_late_records_of_a_window_are_weighed_by_the_late_policy(harness):
    tested = built(harness, late=Late(growth="10%", max_age=timedelta(days=1)))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka", count=105)
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=105)
    assert made(tested.run_until_idle()) == []
    found = verdict(tested, "hourly", "2026-01-02-15:00")
    assert (found.state, found.look_again) == (State.WAITS_FOR_LATE_DATA, NOW + timedelta(days=1))
    tested.now = lambda: NOW + timedelta(days=1)
    assert made(tested.run_until_idle()) == ["hourly 2026-01-02-15:00"]


def test_a_window_with_issue_stops_all_readers_but_those_that_ignore_quality(harness):
    table = foo()
    minds = reader("minds", HOURS, table)
    tested = harness(table, minds, reader("not", HOURS, Input(table, ignore_quality_issue=True)))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka")
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", count=101)
    assert made(tested.run_until_idle()) == ["not 2026-01-02-15:00"]
    found = verdict(tested, "minds", "2026-01-02-15:00")
    assert found.state is State.WAITS_FOR_QUALITY
    assert found.reason.startswith("hour 2026-01-02-15:00 of web/foo is complete with issue: ")


def test_an_invalid_window_stops_its_readers_until_its_check_passes(harness):
    tested, ledger = harness(foo(), reader("hourly", HOURS, foo())), open_ledger(settings().ledger)
    at = address("hour", "2026-01-02-15:00")
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    report_quality(ledger, at, "no_bots", "failed", "41 % of rows are bots", "dq", NOW)
    assert made(tested.run_until_idle()) == []
    found = verdict(tested, "hourly", "2026-01-02-15:00")
    assert (found.state, "41 % of rows are bots" in found.reason) == (State.WAITS_FOR_QUALITY, True)
    report_quality(ledger, at, "no_bots", "passed", None, "dq", NOW)
    assert made(tested.run_until_idle()) == ["hourly 2026-01-02-15:00"]


def test_a_reader_that_ignores_quality_still_waits_for_complete_windows(harness):
    table = foo()
    tested = harness(table, reader("not", HOURS, Input(table, ignore_quality_issue=True)))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka")
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=1)
    at = address("hour", "2026-01-02-15:00")
    report_quality(open_ledger(settings().ledger), at, "no_bots", "failed", "41 % of rows are bots", "dq", NOW)
    assert made(tested.run_until_idle()) == []
    assert "is open: 5min 2026-01-02-15:00 has 1 of 100 records" in verdict(tested, "not", "2026-01-02-15:00").reason
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=100)
    assert made(tested.run_until_idle()) == ["not 2026-01-02-15:00"]


SENSOR = {"dagster/sensor_name": "feeds"}


@pytest.mark.parametrize(
    ("ignores", "tags", "end", "reads"),
    [
        pytest.param(False, {}, "16:00", True, id="by hand nobody waits for quality"),
        pytest.param(False, {}, "15:55", False, id="by hand its data are needed"),
        pytest.param(False, SENSOR, "16:00", False, id="invalid since a sensor requested it"),
        pytest.param(True, SENSOR, "16:00", True, id="who does not mind"),
    ],
)
def test_an_invalid_window_is_read_by_hand_or_with_ignored_quality(harness, ignores, tags, end, reads):
    table, key = foo(), "2026-01-02-15:00"
    tested, ledger = (
        harness(table, reader("hourly", HOURS, Input(table, ignore_quality_issue=ignores))),
        ledger_of_home(),
    )
    report_complete(key, f"2026-01-02-{end}")
    report_quality(ledger, address("hour", key), "no_bots", "failed", "bots", "dq", NOW)
    job = tested.definitions.resolve_implicit_global_asset_job_def()
    keys = [dg.AssetKey(["web", "hourly"])]
    options = {"instance": tested.instance, "partition_key": key, "asset_selection": keys, "tags": tags}
    ran = job.execute_in_process(raise_on_error=False, **options)
    assert (ran.success, bool(READ)) == (reads, reads)
    with ledger.read() as connection:
        marked = quality.failed(connection, [Partition(Feed.parse("web/hourly/v1.0"), key)], [quality.MARKED])
    assert bool(marked) == reads, "what is made of bad data is marked"


def test_an_output_that_waits_for_window_quality_is_not_listed_as_refused(harness):
    tested, ledger = built(harness), ledger_of_home()
    report_quality(ledger, address("hour", "2026-01-02-15:00"), "no_bots", "failed", "bots", "dq", NOW)
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka", count=105)
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=105)
    assert made(tested.run_until_idle()) == []
    output = Partition(Feed.parse("web/hourly/v1.0"), "2026-01-02-15:00")
    with ledger.read() as connection:
        assert output in quality.failed(connection, [output], [quality.MARKED])
    assert output in tested.runner.waiting(State.WAITS_FOR_QUALITY)
    assert tested.runner.refused() == {}


def test_a_plan_by_hand_has_only_outputs_whose_windows_are_complete(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    graph, services = Graph(tested.definitions.resolve_asset_graph()), Services.of(settings())
    outputs = [Partition(Feed.parse("web/hourly/v1.0"), f"2026-01-02-{hour}:00") for hour in (15, 16)]
    by_hand.look(graph, services, outputs)
    planned = by_hand.with_inputs(by_hand.plan(graph, services, outputs))
    assert [each.output.key for each in planned] == ["2026-01-02-15:00"]


def test_two_sub_partitions_with_the_same_key_are_refused():
    below = SubPartitions(
        "a",
        {"a.b": Member(below=SubPartitions("b", {"c": None})), "a": Member(below=SubPartitions("b", {"b.c": None}))},
    )
    with pytest.raises(InvalidDefinition, match=r"found two with the key 'a\.b\.c'"):
        state_table("web/foo", partitions_def=HOURS, completeness=KAFKA, sub_partitions=below)


def test_an_accepted_window_is_read_although_counts_are_missing(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", count=99)
    tested.tick()
    accept(open_ledger(settings().ledger), address("hour", "2026-01-02-15:00"), "kafka lost them", "ann", NOW)
    assert made(tested.tick()) == ["hourly 2026-01-02-15:00"]


def test_the_lineage_of_an_update_has_its_windows(harness):
    tested = built(harness)
    output = Partition(Feed.parse("web/hourly/v1.0"), "2026-01-02-15:00")
    with open_ledger(settings().ledger).read() as connection:
        (pin,) = updates.consumed_by(connection, output, tested.newest("web/hourly/v1.0", output.key))
    assert (pin.partition.path, pin.size) == ("web/foo/hour@2026-01-02-15:00", 1200)


def events_of(tested, asset: str, kind: str) -> list[tuple[str | None, dict]]:
    """Return partition and metadata of an asset's events in Dagster, oldest first."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string(asset))
    records = getattr(tested.instance, f"fetch_{kind}s")(wanted, limit=100).records
    found = [getattr(record, f"asset_{kind}") for record in reversed(records)]
    return [(each.partition, {name: value.value for name, value in each.metadata.items()}) for each in found]


def descriptions_of(tested, kind: str) -> list[str]:
    """Return the descriptions of foo's events in Dagster, oldest first."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey.from_user_string("web/foo"))
    records = getattr(tested.instance, f"fetch_{kind}s")(wanted, limit=100).records
    return [getattr(record, f"asset_{kind}").description for record in reversed(records)]


def test_dagster_shows_accepted_windows_apart_from_complete_ones(harness):
    tested = harness(foo())
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    accept(open_ledger(settings().ledger), address("hour", "2026-01-02-16:00"), "kafka lost a broker", "ops", NOW)
    tested.run_until_idle()
    counted, accepted = descriptions_of(tested, "materialization")
    assert counted.startswith("complete: of ")
    assert accepted == "complete: accepted by ops: kafka lost a broker"
    (_, told) = events_of(tested, "web/foo", "materialization")[1]
    assert (told["who"], told["why"]) == ("ops", "accepted by ops: kafka lost a broker")


def test_windows_are_reported_to_dagster_at_the_grain_of_the_assets_partitions(harness):
    table = foo(BY_REGION, regions=REGIONS)
    tested = harness(table)
    report_complete("2026-01-02-15:00", "2026-01-02-16:00", "region=apac")
    tested.run_until_idle()
    (known,) = tested.reported("web/foo")
    assert (known.partition, known.metadata["window"]) == (
        "2026-01-02-15:00|apac",
        "hour@2026-01-02-15:00/region=apac",
    )
    assert int(known.version or 0) > 0


def test_a_reopened_window_is_an_observation_and_then_a_new_data_version(harness):
    tested = built(harness)
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=90)
    tested.run_until_idle()
    ((partition, told),) = events_of(tested, "web/foo", "observation")
    assert (partition, told["window"]) == ("2026-01-02-15:00", "hour@2026-01-02-15:00")
    assert (told["from"], told["to"]) == ("complete", "open")
    assert told["why"]
    assert descriptions_of(tested, "observation") == [f"open again: {told['why']}"]
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", part="one", count=100)
    tested.run_until_idle()
    newest, before = tested.reported("web/foo")
    assert newest.version != before.version


def test_a_regions_day_is_reported_as_the_assets_day(harness):
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition([*REGIONS.members])})
    tested = harness(foo(both, regions=REGIONS))
    tested.tick()
    report_complete("2026-01-01-16:00", "2026-01-02-16:00", "region=apac")
    tested.run_until_idle()
    assert [each.partition for each in tested.reported("web/foo")] == ["2026-01-02|apac"]


def test_window_transitions_are_written_to_the_teams_event_sink(harness, setting, home):
    setting(events_to="blackboard:out")
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    report_complete("2026-01-02-15:50", "2026-01-02-16:00")
    tested.run_until_idle()
    files = sorted((home / "blackboard" / "out").iterdir())
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(each["partition_key"] for each in lines) == [
        "10min@2026-01-02-15:50",
        "5min@2026-01-02-15:50",
        "5min@2026-01-02-15:55",
    ]
    said = next(json.loads(each["context"])["transition"] for each in lines if "10min" in each["partition_key"])
    assert (said["from"], said["to"], said["start"]) == ("open", "complete", "2026-01-02T15:50:00+00:00")


def test_mappings_of_our_own_edges_are_never_requested_from_dagster(harness):
    """Dagster has `AllPartitionMapping` there for its picture. It would name every hour of a year."""
    table, raw = foo(), raw_feed("web/raw/v1.0", HOURS)
    by_zone = reader("daily", days("Asia/Singapore"), Input(raw, mapping=Within()))
    tested = harness(table, raw, reader("hourly", HOURS, table), by_zone)
    probe = Probe(tested.definitions.resolve_asset_graph())
    graph = Graph(probe)
    changed = Partition(Feed.parse("web/raw/v1.0"), "2026-01-02-15:00")
    hourly, daily = (graph.node(Feed.parse(f"web/{name}/v1.0")) for name in ("hourly", "daily"))
    (parent,) = graph.parents(daily)
    assert graph.affected_by_window(hourly, address("hour", "2026-01-02-15:00"), NOW)
    assert graph.affected(daily, changed, NOW)
    assert graph.downstream(parent, daily, [changed])
    assert not graph.is_one_to_one(parent, daily)
    assert need_of(graph, hourly.partition("2026-01-02-15:00")).windows
    assert len(need_of(graph, daily.partition("2026-01-02")).partitions) == 24
    assert graph.own()
    assert probe.asked == []


class Probe:
    """An asset graph that records each edge whose mapping is requested."""

    def __init__(self, assets) -> None:
        self.assets, self.asked = assets, []

    def __getattr__(self, name: str):
        return getattr(self.assets, name)

    def get_partition_mapping(self, key, parent_key):
        self.asked.append((key, parent_key))
        return self.assets.get_partition_mapping(key, parent_key)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Singapore"])
def test_a_day_in_another_zone_is_built_from_its_24_utc_hours(harness, zone):
    raw = raw_feed("web/raw/v1.0", HOURS)
    tested = harness(raw, reader("daily", days(zone), Input(raw, mapping=Within())), now=moment("2026-01-03-00:00"))
    start = {"UTC": moment("2026-01-02-00:00"), "Asia/Singapore": moment("2026-01-01-16:00")}[zone]
    keys = [(start + timedelta(hours=hour)).strftime("%Y-%m-%d-%H:%M") for hour in range(24)]
    for key in reversed(keys[1:]):
        tested.drop("web/raw/v1.0", key, rows(1))
    assert made(tested.run_until_idle()) == []
    assert verdict(tested, "daily", "2026-01-02").reason == f"no valid update of web/raw/v1.0 {keys[0]}"
    tested.drop("web/raw/v1.0", keys[0], rows(1))
    assert [run.partition for run in tested.run_until_idle()] == ["2026-01-02"]
    tested.drop("web/raw/v1.0", keys[7], rows(1, 2))
    assert [run.partition for run in tested.run_until_idle()] == ["2026-01-02"]


def test_previous_bucket_chains_hours_and_the_first_hour_needs_none(harness):
    raw, first = raw_feed("web/raw/v1.0", HOURS), "2026-01-01-00:00"

    @feed_asset("web/total/v1.0", partitions_def=HOURS, inputs={"foo": raw, "before": Input.previous_bucket()})
    def total(foo, before):
        """Return a running sum."""
        return foo

    tested = world(raw, total, now=lambda: NOW)
    for key in ("2026-01-01-02:00", "2026-01-01-01:00"):
        tested.drop("web/raw/v1.0", key, rows(1))
    assert tested.run_until_idle() == []
    tested.drop("web/raw/v1.0", first, rows(1))
    ran = tested.run_until_idle()
    assert [run.error for run in ran] == [None] * 3
    assert [run.partition for run in ran] == [first, "2026-01-01-01:00", "2026-01-01-02:00"]
    tested.drop("web/raw/v1.0", first, rows(1, 2))
    assert tested.run_until_idle()[0].partition == first


def test_an_optional_input_is_not_waited_for_and_read_once_it_arrives(harness):
    raw, extra = raw_feed("web/raw/v1.0", DAYS), raw_feed("web/extra/v1.0", DAYS)

    @feed_asset("web/both/v1.0", partitions_def=DAYS, inputs={"raw": raw, "extra": Input(extra, optional=True)})
    def both(raw, extra):
        """Return raw, with the extra rows if any."""
        return raw

    tested = world(raw, extra, both, now=lambda: NOW)
    tested.drop("web/raw/v1.0", "2026-01-02", rows(1))
    assert [run.succeeded for run in tested.run_until_idle()] == [True]
    tested.drop("web/extra/v1.0", "2026-01-02", rows(5))
    assert [run.succeeded for run in tested.run_until_idle()] == [True]
    assert tested.run_until_idle() == []


def test_an_optional_state_table_is_read_once_all_of_it_is_complete(harness):
    raw = raw_feed("web/raw/v1.0", DAYS)

    @feed_asset("web/both/v1.0", partitions_def=DAYS, inputs={"raw": raw, "foo": Input(foo(), optional=True)})
    def both(raw, foo):
        """Return raw, with foo if it is complete."""
        return raw

    tested = harness(raw, foo(), both)
    tested.drop("web/raw/v1.0", "2026-01-02", rows(1))
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    assert ([run.succeeded for run in tested.run_until_idle()], READ) == ([True], [])
    report_complete("2026-01-02-00:00", "2026-01-03-00:00")
    assert len(tested.run_until_idle()) == 1
    assert READ == [("web/both/v1.0/2026-01-02", "", ("2026-01-02",))]
    assert tested.run_until_idle() == []


def test_a_complete_window_without_a_valid_update_is_waited_for(harness):
    shown = foreign_feed("web/shown/v1.0", schema="k string, n int", partitions_def=HOURS, completeness=KAFKA)
    tested = harness(shown, reader("counts", HOURS, shown), reader("hourly", HOURS, shown))
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", "kafka", dataset="web/shown/v1.0")
    report_counts("2026-01-02-15:00", "2026-01-02-16:00", dataset="web/shown/v1.0")
    assert made(tested.run_until_idle()) == []
    reason = verdict(tested, "hourly", "2026-01-02-15:00").reason
    assert reason == "no valid update of web/shown/v1.0 2026-01-02-15:00"


def test_an_input_with_a_watermark_is_waited_for_and_never_causes_a_rerun(harness):
    raw, dim = raw_feed("web/raw/v1.0", DAYS), raw_feed("web/dim/v1.0", None)
    beyond = Input(dim, beyond=Watermark("end of partition"))

    @feed_asset("web/hourly/v1.0", partitions_def=DAYS, inputs={"raw": raw, "dim": beyond})
    def joined(raw, dim):
        """Return raw joined with the dimension."""
        return raw

    tested = world(raw, dim, joined, now=lambda: NOW)
    tested.drop("web/raw/v1.0", "2026-01-02", rows(1))
    goes_to(tested, "2026-01-02-23:00")
    assert tested.run_until_idle() == []
    assert verdict(tested, "hourly", "2026-01-02").reason == (
        "the data of web/dim/v1.0 reach 2026-01-02 23:00:00 UTC, expected 2026-01-03 00:00:00 UTC or later"
    )
    goes_to(tested, "2026-01-03-00:00")
    assert [run.error for run in tested.run_until_idle()] == [None]
    goes_to(tested, "2026-01-04-00:00")
    assert tested.run_until_idle() == []
    tested.drop("web/raw/v1.0", "2026-01-02", rows(2))
    assert [run.error for run in tested.run_until_idle()] == [None]


def test_a_watermark_on_an_appendable_feed_is_refused():
    raw = foreign_feed("web/raw/v1.0", partitions_def=DAYS, schema="k string", appendable=True)
    with pytest.raises(InvalidDefinition, match=r"web/daily/v1\.0 waits until the batches of web/raw/v1\.0 reach far"):
        reader("daily", DAYS, Input(raw, beyond=Watermark("end of partition")))


def goes_to(tested, last: str) -> None:
    """Drop an update of the dimension with this newest event time."""
    tested.drop("web/dim/v1.0", "", rows(1))
    tested.tick()
    table = updates.update
    with open_ledger(settings().ledger).change() as connection:
        connection.execute(sa.update(table).where(table.c.feed == "web/dim/v1.0").values(last=moment(last)))
        newest = updates.newest(connection, [Partition(Feed.parse("web/dim/v1.0"), "")])
        log.append(connection, [Change(at, log.UNCHANGED, row.id, NOW) for at, row in newest.items()])
