"""Profiles, the deep checks that an anomaly starts, and checks that only warn, tick by tick."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets import Completeness, Input, Profile, checks, feed_asset, foreign_feed, profiled, state_table
from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import log, newest_profiles, quality
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import backfills, window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.tables import change
from feed_assets.orchestration.declare.baselines import baseline_of
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness as world
from feed_assets_tests.support.sum_projects import outcomes, raw_feed, rows

NOW = datetime(2026, 1, 20, tzinfo=UTC)
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
SUMS, DAILY = "t/sums/v1.0", Profile({"rows": "count(1)", "n": "sum(n)"}, "28 partitions")
NO_BOTS = checks.Check("no_bots", "no row may be of a bot", lambda found: found == 0, "count_if(n = 13)")
EQUAL = {"rows": 1.0, "n": 5.0}


def sums_of(**options) -> dg.AssetsDefinition:
    @feed_asset(SUMS, partitions_def=DAYS, inputs={"raw": raw_feed(partitions_def=DAYS)}, **options)
    def sums(raw):
        """Sum numbers."""

    return sums


def picked_of(sums) -> dg.AssetsDefinition:
    @feed_asset("t/picked/v1.0", partitions_def=DAYS, inputs={"sums": sums})
    def picked(sums):
        """Pick some sums."""

    return picked


class Days:
    """A world with chosen measures and check results for some days; all other days are alike."""

    def __init__(self, *assets) -> None:
        self.measures: dict[str, dict[str, float]] = {}
        self.failed: dict[str, dict[str, float]] = {}
        self.harness = world(raw_feed(partitions_def=DAYS), *assets, give=self._give, now=lambda: NOW)

    def _give(self, task) -> Given:
        has = {check.name for check in task.recipe.all_checks}
        failed = {name: found for name, found in self.failed.get(task.output.key, {}).items() if name in has}
        return Given([{"n": 1}], measures=self.measures.get(task.output.key, EQUAL), failed=failed)

    def drop(self, *days: int) -> list[tuple[str, str | None, bool]]:
        """Drop data for some days of January, and return the runs."""
        for day in days:
            self.harness.drop("t/raw/v1.0", f"2026-01-{day:02}", rows(day))
        return outcomes(self.harness.run_until_idle())

    def checks(self, day: int) -> dict[str, str]:
        """Return the states of the checks of a day's sums in the ledger."""
        return check_states_of(Partition(Feed.parse(SUMS), f"2026-01-{day:02}"))


def check_states_of(partition: Partition) -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {name: each.state for (_, name), each in quality.check_states(connection, [partition]).items()}


def check_reason(partition: Partition, check: str) -> str | None:
    with open_ledger(settings().ledger).read() as connection:
        return quality.check_states(connection, [partition])[partition, check].reason


def test_deep_checks_run_while_the_baseline_is_small_and_then_on_anomalies():
    days = Days(sums_of(profile=DAILY, deep_checks=[NO_BOTS]))
    days.failed = {f"2026-01-{day:02}": {"no_bots": 1} for day in (7, 8, 9)}
    days.measures["2026-01-09"] = {"rows": 1.0, "n": 6.0}
    assert all(ok for _, _, ok in days.drop(*range(1, 7)))
    assert days.drop(7) == [("sums", "2026-01-07", False)]  # six days before it: too few to know what is usual
    days.failed.pop("2026-01-07")
    days.harness.drop("t/raw/v1.0", "2026-01-07", rows(70))
    assert outcomes(days.harness.run_until_idle()) == [("sums", "2026-01-07", True)]
    assert days.drop(8) == [("sums", "2026-01-08", True)]  # seven days, and it is like them: the check was not run
    assert days.drop(9) == [("sums", "2026-01-09", False)]
    assert days.checks(8) == {"profile": "passed", "no_bots": "passed"}
    assert days.checks(9) == {"profile": "warned", "no_bots": "failed"}
    assert days.harness.checks("t/sums", "2026-01-09") == {"profile": False, "no_bots": False}


def test_an_anomaly_with_passed_deep_checks_warns_and_stops_no_consumer():
    sums = sums_of(profile=DAILY, deep_checks=[NO_BOTS])
    days = Days(sums, picked_of(sums))
    days.drop(*range(1, 8))
    days.measures["2026-01-08"] = {"rows": 1.0, "n": 9.0}
    assert days.drop(8) == [("sums", "2026-01-08", True), ("picked", "2026-01-08", True)]
    assert days.checks(8) == {"profile": "warned", "no_bots": "passed"}
    assert check_reason(Partition(Feed.parse(SUMS), "2026-01-08"), "profile") == (
        "profile: no measure may be off from those of its baseline; n is 9: the median of 7 is 5, their deviation 0"
    )
    assert days.harness.checks("t/sums", "2026-01-08") == {"profile": False, "no_bots": True}


def test_measures_are_kept_only_of_published_updates():
    days = Days(sums_of(profile=DAILY, deep_checks=[NO_BOTS]))
    days.failed["2026-01-02"] = {"no_bots": 1}
    days.drop(1, 2)
    partitions = [Partition(Feed.parse(SUMS), f"2026-01-{day:02}") for day in (1, 2)]
    with open_ledger(settings().ledger).read() as connection:
        assert newest_profiles.profiles_of(connection, partitions) == {partitions[0]: EQUAL}


@pytest.mark.parametrize(("found", "ok", "state"), [(2, True, "warned"), (3, False, "failed")])
def test_a_severity_function_decides_whether_a_check_blocks(found, ok, state):
    few = checks.Check(
        "few",
        "there must be none",
        lambda found: found == 0,
        "count_if(n = 13)",
        severity=lambda found: "WARN" if found < 3 else "ERROR",
    )
    sums = sums_of(checks=[few])
    days = Days(sums, picked_of(sums))
    days.failed["2026-01-01"] = {"few": found}
    assert days.drop(1) == [("sums", "2026-01-01", ok), *([("picked", "2026-01-01", True)] if ok else [])]
    assert days.checks(1) == {"few": state}
    assert days.harness.checks("t/sums", "2026-01-01") == {"few": False}


def test_a_warning_check_does_not_block_and_can_pass_again():
    days = Days(sums_of(checks=[NO_BOTS.warn()]))
    days.failed["2026-01-01"] = {"no_bots": 4}
    assert days.drop(1) == [("sums", "2026-01-01", True)]
    (key,) = [key for key in days.harness.definitions.resolve_asset_graph().asset_check_keys if key.name == "no_bots"]
    (row,) = days.harness.instance.event_log_storage.get_asset_check_execution_history(key, limit=9)
    assert row.event.dagster_event.asset_check_evaluation_data.severity is dg.AssetCheckSeverity.WARN
    days.failed.clear()
    days.harness.drop("t/raw/v1.0", "2026-01-01", rows(8))
    assert outcomes(days.harness.run_until_idle()) == [("sums", "2026-01-01", True)]
    assert days.checks(1) == {"no_bots": "passed"}


def test_passed_checks_are_recorded_without_a_log_entry():
    days = Days(sums_of(checks=[NO_BOTS]))
    days.drop(1)
    assert days.checks(1) == {"no_bots": "passed"}
    with open_ledger(settings().ledger).read() as connection:
        assert log.QUALITY not in connection.execute(sa.select(change.c.kind)).scalars().all()


FOO = Feed.parse("web/foo")
BY_HOUR = Profile(baseline="28 same hours")


def foo() -> dg.AssetSpec:
    return state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))


def complete(hour: int, day: int = 2, count: int = 100, version: int = 0) -> None:
    """Report an hour as complete."""
    first = datetime(2026, 1, day, hour, tzinfo=UTC)
    counted = tuple((first + timedelta(minutes=5 * each), count) for each in range(12))
    parts = [Report(FOO, "", f"{first}", counted, tier, version=f"{version:020d}") for tier in ("kafka", "")]
    report(open_ledger(settings().ledger), parts, NOW)


def state_of(hour: int, day: int = 2) -> WindowState:
    at = WindowAddress(FOO, "", "hour", f"2026-01-{day:02}-{hour:02}:00")
    with open_ledger(settings().ledger).read() as connection:
        return window_queries.stored_windows(connection, [at])[at].state


def hour_of(hour: int, day: int = 2) -> Partition:
    return WindowAddress(FOO, "", "hour", f"2026-01-{day:02}-{hour:02}:00").partition


def test_a_tables_monitor_measures_each_hour_and_reports_for_its_window():
    days = Days(foo(), profiled(foo(), BY_HOUR, deep_checks=[NO_BOTS], rows=lambda span: span))
    complete(15)
    assert outcomes(days.harness.run_until_idle()) == [("web/foo_profile", "2026-01-02-15:00", True)]
    assert check_states_of(hour_of(15)) == {"profile": "passed", "no_bots": "passed"}
    assert check_states_of(Partition(Feed.parse("web/foo_profile/v1.0"), "2026-01-02-15:00")) == {}
    assert state_of(15) is WindowState.COMPLETE
    assert days.harness.checks("web/foo_profile", "2026-01-02-15:00") == {"profile": True, "no_bots": True}


def test_a_failed_deep_check_of_a_monitor_makes_the_hour_invalid():
    days = Days(foo(), profiled(foo(), BY_HOUR, deep_checks=[NO_BOTS], rows=lambda span: span))
    days.failed["2026-01-02-15:00"] = {"no_bots": 3}
    complete(15)
    assert outcomes(days.harness.run_until_idle()) == [("web/foo_profile", "2026-01-02-15:00", True)]
    assert state_of(15) is WindowState.INVALID
    assert days.harness.newest("web/foo_profile/v1.0", "2026-01-02-15:00")
    measured = Partition(Feed.parse("web/foo_profile/v1.0"), "2026-01-02-15:00")
    with open_ledger(settings().ledger).read() as connection:
        assert newest_profiles.profiles_of(connection, [measured]) == {measured: EQUAL}
    assert days.harness.checks("web/foo_profile", "2026-01-02-15:00") == {"profile": True, "no_bots": False}


def test_a_tables_monitor_compares_an_hour_with_the_same_hour_of_other_days():
    days = Days(foo(), profiled(foo(), BY_HOUR, deep_checks=[NO_BOTS], rows=lambda span: span))
    for day in range(2, 9):
        days.measures[f"2026-01-{day:02}-14:00"] = {"rows": 900.0}
        complete(15, day)
        complete(14, day)
    days.harness.run_until_idle()
    complete(15, 9)
    days.measures["2026-01-09-15:00"] = {"rows": 900.0}
    days.harness.run_until_idle()
    assert check_states_of(hour_of(15, 9))["profile"] == "warned"
    assert "rows is 900: the median of 7 is 1," in (check_reason(hour_of(15, 9), "profile") or "")


def test_a_feeds_monitor_reports_for_the_partition_and_has_no_rejects():
    raw = raw_feed(partitions_def=DAYS)
    days = Days(raw, profiled(raw, Profile(baseline="28 partitions"), deep_checks=[NO_BOTS]), sums_of())
    days.failed["2026-01-01"] = {"no_bots": 3}
    days.drop(1)
    assert check_states_of(Partition(Feed.parse("t/raw/v1.0"), "2026-01-01")) == {
        "profile": "passed",
        "no_bots": "failed",
    }
    keys = {spec.key.to_user_string() for spec in days.harness.definitions.resolve_all_asset_specs()}
    assert keys == {"t/raw", "t/raw_profile", "t/sums", "t/sums_rejects"}


EMPTY = foreign_feed("t/one/v1.0", schema="k string")


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda: profiled(foo(), BY_HOUR), "expected rows= for a state table, a function that reads the Span"),
        (lambda: profiled(EMPTY, BY_HOUR), "has a profile, but no time partitions"),
        (lambda: profiled(Input(sums_of()).spec, BY_HOUR), "use its argument profile="),
        (lambda: sums_of(deep_checks=[NO_BOTS]), "`deep_checks` and no `profile`"),
        (lambda: sums_of(checks=[NO_BOTS], profile=DAILY, deep_checks=[NO_BOTS]), "check no_bots twice"),
        (lambda: sums_of(profile=DAILY, deep_checks=[checks.references("x", "raw", "k")]), "names the input 'x'"),
    ],
)
def test_an_impossible_profile_is_refused_at_its_declaration(declare, words):
    with pytest.raises(InvalidDefinition, match=words):
        declare()


def test_a_baseline_has_the_same_local_times():
    berlin = dg.HourlyPartitionsDefinition("2026-03-20-00:00", timezone="Europe/Berlin")
    by_region = dg.MultiPartitionsDefinition({"date": DAYS, "region": dg.StaticPartitionsDefinition(["a", "b"])})
    weekly, monthly = dg.WeeklyPartitionsDefinition("2026-01-01"), dg.MonthlyPartitionsDefinition("2025-12-01")
    # In Berlin there is no 02:00 on March 29.
    assert baseline(berlin, "2026-03-30-02:00", "7 same hours")[:2] == ["2026-03-28-02:00", "2026-03-27-02:00"]
    assert baseline(berlin, "2026-03-29-03:00", "7 same hours")[:2] == ["2026-03-28-03:00", "2026-03-27-03:00"]
    assert baseline(berlin, "2026-03-20-02:00", "9 partitions") == ["2026-03-20-01:00", "2026-03-20-00:00"]
    assert baseline(DAYS, "2026-01-20", "7 same weekdays")[:2] == ["2026-01-13", "2026-01-06"]
    assert baseline(by_region, "2026-01-20/b", "7 partitions")[:2] == ["2026-01-19/b", "2026-01-18/b"]
    assert baseline(weekly, "2026-01-18", "9 partitions") == ["2026-01-11", "2026-01-04"]
    assert baseline(monthly, "2026-02-01", "9 partitions") == ["2026-01-01", "2025-12-01"]


def baseline(partitions_def, key: str, wanted: str) -> list[str]:
    found = baseline_of(partitions_def, Profile(baseline=wanted), Partition(Feed.parse(SUMS), key))
    return [each.key for each in found]


def test_a_monitor_measures_a_backfilled_hour_again_although_data_are_equal():
    days = Days(foo(), profiled(foo(), BY_HOUR, deep_checks=[NO_BOTS], rows=lambda span: span))
    days.failed["2026-01-02-15:00"] = {"no_bots": 3}
    complete(15)
    days.harness.run_until_idle()
    days.failed.clear()
    ledger, at = open_ledger(settings().ledger), WindowAddress(FOO, "", "hour", "2026-01-02-15:00")
    backfills.begin(ledger, at, "bots removed", "ann", NOW)
    backfills.finish(ledger, at, "bots removed", "ann", NOW)
    assert check_states_of(hour_of(15)) == {"profile": "passed", "no_bots": "stale"}
    assert outcomes(days.harness.run_until_idle()) == [("web/foo_profile", "2026-01-02-15:00", True)]
    assert check_states_of(hour_of(15)) == {"profile": "passed", "no_bots": "passed"}
    assert state_of(15) is WindowState.BACKFILLED


def test_a_reader_that_names_a_monitors_check_waits_until_it_passes():
    @feed_asset("web/minds/v1.0", partitions_def=HOURS, inputs={"foo": Input(foo(), checks=["no_bots"])})
    def minds(foo):
        """Read foo."""

    days = Days(foo(), profiled(foo(), BY_HOUR, deep_checks=[NO_BOTS], rows=lambda span: span), minds)
    days.failed["2026-01-02-15:00"] = {"no_bots": 3}
    complete(14)
    complete(15)
    assert sorted(outcomes(days.harness.run_until_idle())) == [
        ("web/foo_profile", "2026-01-02-14:00", True),
        ("web/foo_profile", "2026-01-02-15:00", True),
        ("web/minds", "2026-01-02-14:00", True),
    ]


@pytest.mark.parametrize("severity", ["ERROR", "WARN"])
def test_a_deep_check_that_did_not_pass_runs_again_without_an_anomaly(severity):
    deep = NO_BOTS if severity == "ERROR" else NO_BOTS.warn()
    days = Days(sums_of(profile=DAILY, deep_checks=[deep]))
    days.drop(*range(1, 8))
    days.failed["2026-01-08"], days.measures["2026-01-08"] = {"no_bots": 3}, {"rows": 1.0, "n": 9.0}
    days.drop(8)
    before = days.checks(8)["no_bots"]
    assert before == ("failed" if severity == "ERROR" else "warned")
    del days.measures["2026-01-08"]
    days.harness.drop("t/raw/v1.0", "2026-01-08", rows(80))
    assert outcomes(days.harness.run_until_idle()) == [("sums", "2026-01-08", severity == "WARN")]
    assert days.checks(8)["no_bots"] == before
    days.failed.clear()
    days.harness.drop("t/raw/v1.0", "2026-01-08", rows(81))
    assert outcomes(days.harness.run_until_idle()) == [("sums", "2026-01-08", True)]
    assert days.checks(8) == {"profile": "passed", "no_bots": "passed"}
