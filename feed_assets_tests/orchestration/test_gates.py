"""Conditions beside inputs, tick by tick: times, a sufficient number of inputs, named checks, waivers, closures."""

import json
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest
from typer.testing import CliRunner

from feed_assets import Completeness, Input, Wait, Within, feed_asset, state_table
from feed_assets.cli import app
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import Slots
from feed_assets.core.readiness import State
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import alerts, closures, log, pauses, quality, runs, updates, waivers
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import backfills
from feed_assets.ledger.states.window_queries import report_quality
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import Status, nodes_shown, status_of
from feed_assets.orchestration.ticks.deadlines import ALERTS, LOOK_BACK
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.window_reports import report_complete, report_counts
from feed_assets_tests.support.sum_projects import harness, raw_feed, rows

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 3, tzinfo=UTC)
"""End of the day that these tests use."""

RAW, DAILY = "web/raw/v1.0", "web/daily/v1.0"
DAY = "2026-01-02"
OUT = Partition(Feed.parse(DAILY), DAY)
KEYS = [f"{DAY}-{hour:02}:00" for hour in range(24)]
BY_DAY = dg.TimeWindowPartitionMapping()


def daily(read, name: str = DAILY, partitions_def=DAYS, **options) -> dg.AssetsDefinition:
    @feed_asset(name, partitions_def=partitions_def, inputs={"raw": read}, **options)
    def made(raw):
        """Read one input."""
        return raw

    return made


def hours(partitions_def=HOURS) -> dg.AssetSpec:
    return raw_feed(RAW, partitions_def)


def world(*assets, now: datetime = MIDNIGHT, give=lambda _: Given([{"n": 1}])):
    return harness(*assets, give=give, now=lambda: now)


def at(tested, moment: datetime) -> None:
    tested.now = lambda: moment


def made(found) -> list[str]:
    return [f"{run.assets[0].removeprefix('web/')} {run.partition}" for run in found]


def verdict(tested, output: Partition = OUT):
    graph = Graph(tested.definitions.resolve_asset_graph())
    with dg.partition_loading_context(tested.now()), open_ledger(settings().ledger).read() as connection:
        (found,) = verdicts(graph, connection, [output], tested.now())
    return found


def drop(tested, *keys: str, feed: str = RAW) -> None:
    for key in keys:
        tested.drop(feed, key, rows(1))


def newest(output: Partition = OUT) -> updates.UpdateRow:
    with open_ledger(settings().ledger).read() as connection:
        return updates.newest(connection, [output])[output]


def last_run(output: Partition = OUT) -> runs.Run:
    with open_ledger(settings().ledger).read() as connection:
        found = runs.last(connection, output)
    assert found
    return found


# Time


def test_a_partition_is_built_at_its_earliest_time_and_not_before():
    raw = raw_feed(RAW, DAYS)
    tested = world(raw, daily(raw, wait=Wait(earliest="0 6 * * *", delay=HOUR)))
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == []
    found = verdict(tested)
    assert (found.state, found.look_again) == (State.WAITS_FOR_TIME, MIDNIGHT + 6 * HOUR)
    at(tested, MIDNIGHT + 6 * HOUR - timedelta(seconds=1))
    assert made(tested.run_until_idle()) == []
    at(tested, MIDNIGHT + 6 * HOUR)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


def test_a_wait_without_time_partitions_is_refused():
    with pytest.raises(InvalidDefinition, match="no time partitions, but `wait` counts from the end of a partition"):
        daily(raw_feed(RAW, None), partitions_def=None, wait=Wait(delay=HOUR))


# Partitions that do not exist yet


def test_a_day_waits_for_hours_that_are_not_partitions_yet():
    raw, early = hours(), dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)
    tested = world(raw, daily(raw, partitions_def=early), now=MIDNIGHT - 2 * HOUR)
    drop(tested, *KEYS[:22])
    assert made(tested.run_until_idle()) == []
    found = verdict(tested)
    assert (found.state, found.reason) == (
        State.WAITS_FOR_INPUT,
        f"no valid update of {RAW} {KEYS[22]}, {RAW} {KEYS[23]}",
    )
    drop(tested, *KEYS[22:])
    assert made(tested.run_until_idle()) == []
    at(tested, MIDNIGHT)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


def test_with_mapping_within_a_day_waits_for_hours_that_are_not_partitions_yet():
    raw, early = hours(), dg.DailyPartitionsDefinition("2026-01-01", end_offset=1)
    tested = world(raw, daily(Input(raw, mapping=Within()), partitions_def=early), now=MIDNIGHT - HOUR)
    drop(tested, *KEYS[:23])
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).reason == f"no valid update of {RAW} {KEYS[23]}"
    at(tested, MIDNIGHT)
    drop(tested, KEYS[23])
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


def test_a_month_waits_for_the_week_that_ends_after_it():
    weeks = dg.WeeklyPartitionsDefinition("2025-12-28")
    months = dg.MonthlyPartitionsDefinition("2026-01-01")
    raw, march = raw_feed(RAW, weeks), Partition(Feed.parse(DAILY), "2026-03-01")
    tested = world(raw, daily(raw, partitions_def=months), now=datetime(2026, 4, 1, tzinfo=UTC))
    drop(tested, "2026-03-01", "2026-03-08", "2026-03-15", "2026-03-22")
    assert made(tested.run_until_idle()) == []
    assert verdict(tested, march).reason == f"no valid update of {RAW} 2026-03-29"
    at(tested, datetime(2026, 4, 5, tzinfo=UTC))
    drop(tested, "2026-03-29")
    assert made(tested.run_until_idle()) == ["daily 2026-03-01"]


# A sufficient number of inputs

ENOUGH = Wait(at_least="23 of 24", after=2 * HOUR)


def test_a_day_built_without_an_hour_records_the_missing_hour():
    raw = hours()
    tested = world(raw, daily(raw, wait=ENOUGH))
    drop(tested, *KEYS[:7], *KEYS[8:])
    assert made(tested.run_until_idle()) == []
    found = verdict(tested)
    assert (found.state, found.look_again) == (State.WAITS_FOR_INPUT, MIDNIGHT + 2 * HOUR)
    at(tested, MIDNIGHT + 2 * HOUR)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    assert json.loads(newest().without or "") == [f"{RAW} {KEYS[7]}"]
    (told,) = tested.reported("web/daily", DAY)
    assert told.metadata["without"] == {"inputs": [f"{RAW} {KEYS[7]}"]}
    assert verdict(tested).reason.endswith(f"was built from the newest inputs, without {RAW} {KEYS[7]}")


def test_an_hour_missing_at_the_build_is_late_data_when_it_arrives():
    raw = hours()
    tested = world(raw, daily(raw, wait=ENOUGH), now=MIDNIGHT + 2 * HOUR)
    drop(tested, *KEYS[:23])
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    drop(tested, KEYS[23])
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    assert newest().without is None
    assert last_run().why == f"{RAW} {KEYS[23]}: was not there before (all together 184 to 192 bytes)"


def test_fewer_inputs_than_at_least_are_waited_for_until_the_declaration_changes():
    raw, late = hours(), MIDNIGHT + 48 * HOUR
    tested = world(raw, daily(raw, wait=ENOUGH), now=late)
    drop(tested, *KEYS[:22])
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).reason.endswith("; 23 of 24 are enough, 22 are there")
    lowered = daily(raw, wait=Wait(at_least="22 of 24", after=2 * HOUR))
    assert made(world(raw, lowered, now=late).run_until_idle()) == [f"daily {DAY}"]


def test_a_run_by_hand_may_miss_inputs_only_once_the_sensor_may():
    raw = hours()
    tested = world(raw, daily(raw, wait=ENOUGH))
    drop(tested, *KEYS[:23])
    tested.run_until_idle()
    job = tested.definitions.resolve_implicit_global_asset_job_def()
    options = {"instance": tested.instance, "partition_key": DAY, "asset_selection": [dg.AssetKey(["web", "daily"])]}
    ran = job.execute_in_process(raise_on_error=False, **options)
    assert ran.success  # by the real clock the wait is long over
    assert json.loads(newest().without or "") == [f"{RAW} {KEYS[23]}"]
    assert (last_run().why, last_run().asked_by) == (None, "somebody in Dagster")


def test_a_wrong_total_in_at_least_is_an_alert_and_stops_no_other_dataset():
    raw = hours()
    tested = world(raw, daily(raw, wait=Wait(at_least="23 of 25", after=HOUR)), daily(raw, "web/other/v1.0"))
    drop(tested, *KEYS)
    assert made(tested.run_until_idle()) == [f"other {DAY}"]
    reason = opened()[f"undecided:{DAILY}"]
    assert "needs 24 partitions of its inputs, but at_least is '23 of 25': expected a number 'of 24'" in reason


def foo(**options) -> dg.AssetSpec:
    return state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)), **options)


def test_at_least_counts_complete_hours_of_a_table_and_reads_only_those():
    table, read = foo(), list[tuple[str, ...]]()

    def give(task):
        read.extend(tuple(each.key for each in span.windows) for span in task.spans.values())
        return Given([{"n": len(read)}])

    tested = world(table, daily(table, wait=ENOUGH), give=give, now=MIDNIGHT + 2 * HOUR)
    report_complete("2026-01-02-00:00", "2026-01-02-22:00")
    assert made(tested.run_until_idle()) == []
    report_complete("2026-01-02-23:00", "2026-01-03-00:00")
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    assert read == [(*KEYS[:22], KEYS[23])]
    assert json.loads(newest().without or "") == [f"web/foo hour@{KEYS[22]}"]
    report_complete("2026-01-02-22:00", "2026-01-02-23:00")
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    assert read[-1] == tuple(KEYS)


# Quality


def report_check(partition: Partition, check: str, state: str, reason: str | None = None) -> None:
    with open_ledger(settings().ledger).change() as connection:
        quality.report(connection, partition, check, state, reason, "dq", MIDNIGHT)


def test_an_input_with_a_named_check_waits_for_that_check_alone():
    raw, part = raw_feed(RAW, DAYS), Partition(Feed.parse(RAW), DAY)
    tested = world(raw, daily(Input(raw, checks=["no_bots"])), daily(raw, "web/any/v1.0"))
    report_check(part, "sums", quality.FAILED, "off by 3")
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).reason.endswith("(check no_bots has no result yet)")
    report_check(part, "no_bots", quality.FAILED, "41 % are bots")
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).reason.endswith("(check no_bots: 41 % are bots)")
    report_check(part, "no_bots", quality.WARNED, "4 % are bots")
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    report_check(part, "sums", quality.PASSED)
    assert made(tested.run_until_idle()) == [f"any {DAY}"]


def test_a_reader_of_a_table_waits_for_the_named_check_of_each_hour():
    table = foo()
    tested, ledger = world(table, daily(Input(table, checks=["no_bots"]))), open_ledger(settings().ledger)
    report_complete("2026-01-02-00:00", "2026-01-03-00:00")
    addresses = [WindowAddress(Feed.parse("web/foo"), "", "hour", key) for key in KEYS]
    for each in addresses[:23]:
        report_quality(ledger, each, "no_bots", "passed", None, "dq", MIDNIGHT)
    report_quality(ledger, addresses[3], "sums", "failed", "off", "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).reason == (f"hour {KEYS[23]} of web/foo: check no_bots has no result yet")
    report_quality(ledger, addresses[23], "no_bots", "passed", None, "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


def waive(*args: str):
    return CliRunner().invoke(app, ["state", "waive", *args, "--why", "known and harmless", "--who", "ann", "--json"])


def test_a_waiver_unblocks_consumers_of_one_partition_until_its_next_problem():
    raw, part = raw_feed(RAW, DAYS), Partition(Feed.parse(RAW), DAY)
    tested = world(raw, daily(raw))
    report_check(part, "sums", quality.FAILED, "off by 3")
    report_check(Partition(part.feed, "2026-01-01"), "sums", quality.FAILED, "off by 3")
    drop(tested, DAY, "2026-01-01")
    assert made(tested.run_until_idle()) == []
    assert json.loads(waive(RAW, DAY).stdout)["waived"] == "sums: off by 3"
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    drop(tested, DAY)
    report_check(part, "sums", quality.FAILED, "off by 4")
    tested.drop(RAW, DAY, rows(2))
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).state is State.WAITS_FOR_QUALITY


def test_a_waiver_of_a_window_unblocks_its_readers_in_sensor_and_run():
    table = foo()
    tested, ledger = world(table, daily(table, partitions_def=HOURS)), open_ledger(settings().ledger)
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    at_hour = WindowAddress(Feed.parse("web/foo"), "", "hour", KEYS[15])
    report_quality(ledger, at_hour, "no_bots", "failed", "41 % are bots", "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == []
    assert f"hour@{KEYS[15]}" in str(waive("web/foo", KEYS[15]).exception), "the key alone is that of 5 minutes, too"
    waived = json.loads(waive("web/foo", f"hour@{KEYS[15]}").stdout)["waived"]
    assert "no_bots: 41 % are bots" in waived
    (ran,) = tested.run_until_idle()
    assert (ran.partition, ran.error) == (KEYS[15], None)


def test_a_bare_key_waives_the_only_window_with_a_problem():
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    ledger, at_five = (
        open_ledger(settings().ledger),
        WindowAddress(Feed.parse("web/foo"), "", "5min", "2026-01-02-15:05"),
    )
    report_quality(ledger, at_five, "no_bots", "failed", "41 % are bots", "dq", MIDNIGHT)
    found = json.loads(waive("web/foo", at_five.key).stdout)
    assert (found["partition"], found["waived"]) == ("5min@2026-01-02-15:05", "no_bots: 41 % are bots")
    with ledger.read() as connection:
        assert {*waivers.waived(connection, [at_five.partition, Partition(at_five.dataset, at_five.key)])} == {
            at_five.partition
        }


@pytest.mark.parametrize("data", ["same", "other"])
def test_a_waiver_does_not_cover_a_later_problem_of_the_same_name(data):
    raw, part = raw_feed(RAW, DAYS), Partition(Feed.parse(RAW), DAY)
    tested = world(raw, daily(raw), daily(raw, "web/late/v1.0"))
    report_check(part, "sums", quality.FAILED)
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == []
    waive(RAW, DAY)
    report_check(part, "sums", quality.FAILED)
    assert made(tested.run_until_idle()) == [f"daily {DAY}", f"late {DAY}"], "to say the same again ends no waiver"
    if data == "same":
        report_check(part, "sums", quality.PASSED)
        report_check(part, "sums", quality.FAILED)
    tested.drop(RAW, DAY, rows(2, 3))
    assert made(tested.run_until_idle()) == []
    assert verdict(tested).state is State.WAITS_FOR_QUALITY


def test_a_waiver_given_before_the_data_arrive_covers_a_partly_fixed_problem():
    raw, part = raw_feed(RAW, DAYS), Partition(Feed.parse(RAW), DAY)
    tested = world(raw, daily(raw))
    report_check(part, "sums", quality.FAILED, "off by 3")
    report_check(part, "bots", quality.FAILED, "41 % are bots")
    waive(RAW, DAY)
    report_check(part, "bots", quality.PASSED)
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


def test_a_waiver_of_a_window_ends_when_its_check_passes():
    table = foo()
    tested, ledger = world(table, daily(table, partitions_def=HOURS)), open_ledger(settings().ledger)
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    at_hour = WindowAddress(Feed.parse("web/foo"), "", "hour", KEYS[15])
    for state in ("failed", "failed", "passed", "failed"):
        if state == "passed":
            assert json.loads(waive("web/foo", f"hour@{KEYS[15]}").stdout)["waived"] == "check no_bots failed"
        report_quality(ledger, at_hour, "no_bots", state, None, "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == []


def test_a_waiver_of_an_hour_ends_when_its_days_check_passes():
    """The log has only the states of the hour, no check of its own."""
    table, day = foo(), WindowAddress(Feed.parse("web/foo"), "", "day", DAY)
    tested, ledger = world(table, daily(table, partitions_def=HOURS)), open_ledger(settings().ledger)
    report_complete("2026-01-02-00:00", "2026-01-03-00:00")
    report_quality(ledger, day, "no_bots", "failed", None, "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == []
    waive("web/foo", f"hour@{KEYS[15]}")
    assert made(tested.run_until_idle()) == [f"daily {KEYS[15]}"]
    waive("web/foo", f"hour@{KEYS[16]}")
    for state in ("passed", "failed"):
        report_quality(ledger, day, "no_bots", state, None, "dq", MIDNIGHT)
    assert made(tested.run_until_idle()) == []


def test_a_waiver_unblocks_an_input_with_a_named_check():
    raw, table, part = raw_feed(RAW, DAYS), foo(), Partition(Feed.parse(RAW), DAY)
    by_hour = daily(Input(table, checks=["no_bots"]), "web/hourly/v1.0", partitions_def=HOURS)
    tested = world(raw, table, daily(Input(raw, checks=["no_bots"])), by_hour)
    drop(tested, DAY)
    report_complete("2026-01-02-15:00", "2026-01-02-16:00")
    at_hour = WindowAddress(Feed.parse("web/foo"), "", "hour", KEYS[15])
    report_quality(open_ledger(settings().ledger), at_hour, "no_bots", "failed", None, "dq", MIDNIGHT)
    report_check(part, "no_bots", quality.FAILED, "41 % are bots")
    assert made(tested.run_until_idle()) == []
    waive(RAW, DAY)
    waive("web/foo", f"hour@{KEYS[15]}")
    assert sorted(made(tested.run_until_idle())) == [f"daily {DAY}", f"hourly {KEYS[15]}"]


def test_waiving_the_same_problem_twice_writes_nothing():
    def last() -> int:
        with open_ledger(settings().ledger).read() as connection:
            return log.last(connection)

    report_check(Partition(Feed.parse(RAW), DAY), "sums", quality.FAILED, "off by 3")
    told = [(waive(RAW, DAY).exit_code, last()) for _ in range(2)]
    assert told[0] == told[1] == (0, last())


def test_a_partition_without_a_problem_cannot_be_waived():
    found = waive(RAW, DAY)
    assert (found.exit_code, "has no problem that stops its consumers" in str(found.exception)) == (1, True)


# Closed


def test_a_run_still_publishes_if_its_partition_is_closed_meanwhile():
    raw = raw_feed(RAW, DAYS)

    def give(_):
        closures.close(open_ledger(settings().ledger), [OUT], "2026 is final", "ann", MIDNIGHT)
        return Given([{"n": 1}])

    tested = world(raw, daily(raw), give=give)
    drop(tested, DAY)
    assert [run.succeeded for run in tested.run_until_idle()] == [True]
    assert newest().state == updates.PUBLISHED
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == []


def test_a_closed_partition_is_not_built_until_it_is_reopened():
    raw = raw_feed(RAW, DAYS)
    tested, ledger = world(raw, daily(raw)), open_ledger(settings().ledger)
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    closures.close(ledger, [OUT], "2026 is final", "ann", MIDNIGHT)
    tested.drop(RAW, DAY, rows(1, 2))
    assert made(tested.run_until_idle()) == []
    found = verdict(tested)
    assert (found.state, found.reason) == (State.CLOSED, "closed by ann at 2026-01-03 00:00 UTC: 2026 is final")
    closures.reopen(ledger, [OUT], "not so final", "ann", MIDNIGHT)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]


# Reprocessing


@pytest.mark.parametrize(
    ("reprocess", "same_rows", "other_rows"),
    [("if_data_changed", 0, 1), ("always", 1, 1), ("never", 0, 0)],
)
@pytest.mark.parametrize("partitions_def", [HOURS, DAYS], ids=["hourly", "daily"])
def test_reprocess_decides_whether_a_backfilled_hour_rebuilds_its_readers(
    reprocess, same_rows, other_rows, partitions_def
):
    table, key = foo(), KEYS[15] if partitions_def is HOURS else DAY
    tested = world(table, daily(table, partitions_def=partitions_def, reprocess=reprocess))
    ledger, hour = open_ledger(settings().ledger), WindowAddress(Feed.parse("web/foo"), "", "hour", KEYS[15])
    first, end = ("2026-01-02-15:00", "2026-01-02-16:00") if partitions_def is HOURS else (KEYS[0], "2026-01-03-00:00")
    report_complete(first, end)
    assert made(tested.run_until_idle()) == [f"daily {key}"]
    built = []
    for more in (0, 1):
        backfills.begin(ledger, hour, "bots", "ann", MIDNIGHT)
        assert made(tested.run_until_idle()) == []
        for tier in ("kafka", "") * more:
            report_counts("2026-01-02-15:00", "2026-01-02-16:00", tier, more, part="more")
        backfills.finish(ledger, hour, "bots", "ann", MIDNIGHT)
        built.append(len(tested.run_until_idle()))
    assert built == [same_rows, other_rows]


# Deadlines


def opened() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_a_deadline_alerts_before_and_at_its_miss_even_without_any_input():
    raw = raw_feed(RAW, DAYS)
    tested = world(raw, daily(raw, wait=Wait(warn=HOUR, deadline=2 * HOUR)))
    near, missed = f"deadline:{DAILY}|{DAY}|near", f"deadline:{DAILY}|{DAY}|missed"
    tested.tick()
    assert opened() == {}
    at(tested, MIDNIGHT + HOUR)
    tested.tick()
    assert opened() == {
        near: f"{DAILY} {DAY} should be built by 2026-01-03 02:00 UTC, but no input has arrived yet. See "
        f"`feed-assets explain {DAILY} {DAY}`."
    }
    at(tested, MIDNIGHT + 2 * HOUR)
    tested.tick()
    assert {*opened()} == {near, missed}
    assert tested.checks("web/daily")["on_time"] is False
    drop(tested, DAY)
    tested.run_until_idle()
    assert opened() == {}
    tested.tick()
    assert tested.checks("web/daily")["on_time"] is True


def page(tested) -> Status:
    """Return the status page of the day."""
    graph = Graph(tested.definitions.resolve_asset_graph())
    with dg.partition_loading_context(tested.now()), open_ledger(settings().ledger).read() as connection:
        slots = Slots.of(date.fromisoformat(DAY), 1)
        return status_of(graph, connection, nodes_shown(graph), slots, tested.now())


def whys(tested) -> dict[Partition, str]:
    """Return the explanation of each partition of the day on the status page."""
    return {each.partition: each.why for row in page(tested).rows for each in row.shown}


def test_the_status_page_shows_a_missed_deadline_until_the_partition_is_built():
    raw = raw_feed(RAW, DAYS)
    tested, missed = (
        world(raw, daily(raw, wait=Wait(deadline=2 * HOUR))),
        "it should have been built by 2026-01-03 02:00 UTC",
    )
    tested.tick()
    assert missed not in whys(tested)[OUT]
    at(tested, MIDNIGHT + 2 * HOUR)
    assert whys(tested)[OUT].endswith(missed)
    drop(tested, DAY)
    tested.run_until_idle()
    assert missed not in whys(tested)[OUT]


def test_the_status_page_notes_paused_datasets_and_partitions_of_other_days():
    raw, other = raw_feed(RAW, DAYS), raw_feed("web/other/v1.0", DAYS)

    @feed_asset(DAILY, partitions_def=DAYS, inputs={"raw": raw, "other": other})
    def made(raw, other):
        """Read both inputs."""

    tested = world(raw, other, made, daily(raw, "web/any/v1.0"))
    drop(tested, DAY, "2026-01-01")
    tested.run_until_idle()
    found = page(tested)
    assert found.notes == ()
    assert [(str(each.feed), each.state, each.count) for each in found.elsewhere] == [(DAILY, "waits for input", 1)]
    assert [each.key for each in found.elsewhere[0].examples] == ["2026-01-01"]
    pauses.pause_consumer(open_ledger(settings().ledger), OUT.feed, "INC-1", "ann", MIDNIGHT)
    assert page(tested).notes == (
        f"{DAILY}: paused since 2026-01-03 00:00 UTC by ann: INC-1; `feed-assets events resume {DAILY}` ends it",
    )


def test_each_partition_past_its_deadline_has_an_alert_with_its_reason():
    raw = hours()
    tested = world(raw, daily(raw, wait=Wait(deadline=HOUR)), now=MIDNIGHT - 3 * HOUR)
    tested.tick()
    drop(tested, KEYS[0])
    at(tested, MIDNIGHT + 26 * HOUR)
    tested.run_until_idle()
    first, second = sorted(opened().values())
    assert first.startswith(
        f"{DAILY} {DAY} should have been built by 2026-01-03 01:00 UTC, but waits for input: no valid"
    )
    assert second.startswith(f"{DAILY} 2026-01-03 should have been built by 2026-01-04 01:00 UTC, but no input has")


def test_partitions_before_the_declaration_of_a_deadline_are_not_missed():
    raw = raw_feed(RAW, DAYS)
    tested = world(raw, daily(raw, wait=Wait(deadline=HOUR)), now=MIDNIGHT + 5 * HOUR)
    tested.tick()
    tested.tick()
    assert opened() == {}


def test_the_newest_missed_deadlines_have_alerts_and_the_last_counts_the_rest():
    parts = dg.MultiPartitionsDefinition(
        {"date": DAYS, "k": dg.StaticPartitionsDefinition([f"k{number:03}" for number in range(ALERTS // 2 + 20)])}
    )
    raw = raw_feed(RAW, parts)
    tested = world(raw, daily(raw, partitions_def=parts, wait=Wait(deadline=HOUR)), now=MIDNIGHT - HOUR)
    tested.tick()
    at(tested, MIDNIGHT + 25 * HOUR)
    for _ in range(2):  # The second tick finds the alerts of the first.
        tested.tick()
        found = opened()
        named = sorted(found)
        assert [len(named), named[-1]] == [ALERTS, f"deadline:{DAILY}|2026-01-03/k119|missed"]
        assert named[0] == f"deadline:{DAILY}|2026-01-02/k040|missed"
        assert [name for name, why in found.items() if "40 older partitions are late, too" in why] == named[:1]


def test_a_deadline_that_was_missed_long_ago_raises_no_alert():
    raw = hours()
    tested = world(raw, daily(raw, partitions_def=HOURS, wait=Wait(deadline=HOUR)), now=MIDNIGHT)
    tested.tick()
    at(tested, MIDNIGHT + LOOK_BACK + 12 * HOUR)
    tested.tick()
    named = sorted(opened())
    assert named[0] == f"deadline:{DAILY}|2026-01-03-11:00|missed"
    assert named[-1] == f"deadline:{DAILY}|2026-01-10-10:00|missed"


def test_closing_a_partition_ends_its_deadline_alerts():
    raw = raw_feed(RAW, DAYS)
    tested, ledger = world(raw, daily(raw, wait=Wait(warn=HOUR, deadline=2 * HOUR))), open_ledger(settings().ledger)
    of_the_day = {f"deadline:{DAILY}|{DAY}|{which}" for which in ("near", "missed")}
    tested.tick()
    closures.close(ledger, [Partition(OUT.feed, "2026-01-03")], "it is a holiday", "ann", MIDNIGHT)
    at(tested, MIDNIGHT + 27 * HOUR)
    tested.tick()
    assert {*opened()} == of_the_day
    closures.close(ledger, [OUT], "it is one, too", "ann", MIDNIGHT)
    tested.tick()
    assert opened() == {}
    closures.reopen(ledger, [OUT], "it is none", "ann", MIDNIGHT)
    tested.tick()
    assert {*opened()} == of_the_day


def test_a_deadline_alert_stays_open_until_the_partition_is_built():
    raw = raw_feed(RAW, dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03"))
    tested = world(raw, daily(raw, partitions_def=raw.partitions_def, wait=Wait(deadline=HOUR)))
    tested.tick()
    missed = f"deadline:{DAILY}|{DAY}|missed"
    for moment in (MIDNIGHT + HOUR, MIDNIGHT + LOOK_BACK, MIDNIGHT + LOOK_BACK + 2 * HOUR, MIDNIGHT + 9 * LOOK_BACK):
        at(tested, moment)
        tested.tick()
        assert [*opened()] == [missed], moment
    drop(tested, DAY)
    assert made(tested.run_until_idle()) == [f"daily {DAY}"]
    assert opened() == {}


# Why it ran


def test_a_run_records_the_reason_of_its_request():
    raw = raw_feed(RAW, DAYS)
    tested = world(raw, daily(raw))
    drop(tested, DAY)
    tested.run_until_idle()
    assert last_run().why == "it has no valid update, and every input is there"
    tested.drop(RAW, DAY, rows(1, 2))
    tested.run_until_idle()
    assert "was consumed, the newest is" in (last_run().why or "")
