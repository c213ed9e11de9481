"""Profiles on Spark: measured with the checks, with deep checks if they are off; also of others' rows, as a dataset."""

import re
from dataclasses import replace

import pytest

from feed_assets.core.errors import InvalidDefinition, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.profiles import Profile
from feed_assets.ledger import newest_profiles, quality
from feed_assets.runs import checks
from feed_assets.runs.checks import Audited, Check
from feed_assets.runs.phases import Published
from feed_assets.runs.profiling import audit
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.wrong_sql import naming_sql
from feed_assets.spark.spark_errors import SPARK_ERRORS
from feed_assets_tests.support.build_lake import CLEAN, DAY, RAW, rows, stepping
from feed_assets_tests.support.each_case import each_case

SEEN: list[str] = []
DEEP = Check("deep", "it must be seen", bool, measure=lambda audited: SEEN.append("deep") or audited.records)
BEFORE = [{"rows": 2.0, "clicks": 5.0}] * 7


def recipe(**measures) -> Recipe:
    wanted = {"rows": "count(1)", **measures}
    return Recipe(
        Feed.parse("t/a/v1.0"), (), print, (checks.not_null("n"),), profile=Profile(wanted), deep_checks=(DEEP,)
    )


@pytest.fixture
def audited(spark):
    SEEN.clear()
    frame = spark.createDataFrame([(2,), (3,)], "n int")
    return Audited(frame, 2, 0, {}, {})


@pytest.mark.parametrize(
    ("clicks", "said", "ran"),
    [
        ("sum(n)", "nothing is off", []),
        ("sum(n) + 1", "clicks is 6: the median of 7 is 5, their deviation 0", ["deep"]),
        ("sum(if(n > 9, n, NULL))", "clicks is NULL: the median of 7 is 5, their deviation 0", ["deep"]),
        ("CAST('NaN' AS double)", "clicks is NULL: the median of 7 is 5, their deviation 0", ["deep"]),
    ],
)
def test_measures_and_checks_share_a_pass_and_deep_checks_run_if_one_is_off(audited, clicks, said, ran):
    results, measures, _ = audit(recipe(clicks=clicks), audited, BEFORE)
    assert [each.check.name for each in results] == ["not_null_n", "profile", "deep"]
    assert (results[1].finding, results[1].passed, SEEN) == (said, not ran, ran)
    assert measures.get("rows") == 2


def test_a_profile_is_shown_beside_its_baseline(audited):
    results, _, _ = audit(recipe(clicks="sum(n) + 1"), audited, BEFORE)
    assert results[1].sample == (
        {"measure": "rows", "found": 2, "median": 2, "mad": 0, "is_anomaly": False},
        {"measure": "clicks", "found": 6, "median": 5, "mad": 0, "is_anomaly": True},
    )


def test_a_non_numeric_measure_is_refused(audited):
    with pytest.raises(InvalidDefinition, match="the measure clicks is 'a': expected a number"):
        audit(recipe(clicks="'a'"), audited, BEFORE)


@each_case(
    ("sql", "spark_says"),
    [
        ("sum(nn)", "UNRESOLVED_COLUMN"),
        ("sum(n", "PARSE_SYNTAX_ERROR"),
        ("n", "MISSING_GROUP_BY"),
        ("sum(n) / sum(n - n)", "DIVIDE_BY_ZERO"),
    ],
)
def test_an_aggregate_that_cannot_be_computed_is_named_with_what_it_is_of(audited, sql, spark_says):
    made = replace(recipe(), figures={"rows": "count(1)", "clicks": sql})
    said = rf"t/a/v1.0: the figure 'clicks' is '{re.escape(sql)}', which .*{spark_says}.* Correct it in figures\."
    with pytest.raises(InvalidDefinition, match=said), naming_sql(made, audited.written):
        audit(made, audited, BEFORE)
    measured = recipe(clicks=sql)
    with pytest.raises(InvalidDefinition, match="the measure 'clicks'"), naming_sql(measured, audited.written):
        audit(measured, audited, BEFORE)


def test_rows_that_cannot_be_read_are_nobodys_mistake_in_sql(audited):
    lost = replace(audited, written=audited.written.selectExpr("raise_error('lost') AS n"))
    made = replace(recipe(), figures={"clicks": "sum(n)"})
    with pytest.raises(SPARK_ERRORS, match="lost"), naming_sql(made, lost.written):
        audit(made, lost, BEFORE)


def test_an_error_that_may_pass_is_nobodys_mistake_in_sql(audited):
    made = replace(recipe(), figures={"clicks": "max(if(n > 0, raise_error('connection lost'), 0))"})
    with pytest.raises(SPARK_ERRORS, match="connection lost"), naming_sql(made, audited.written):
        audit(made, audited, BEFORE)


LINES = ("1,2019-11-24 01:00:00", "2,2019-11-24 02:00:00", "x,2019-11-24 03:00:00")
NOT_TWO = Check("not_two", "id 2 must not occur", lambda found: found == 0, "count_if(id = 2)")
MEASURES = Profile({"rows": "count(1)", "ids": "count(DISTINCT id)"}, "7 partitions")


def known(lake, feed=CLEAN):
    """Return the states of a day's checks, and its profile."""
    partition = Partition(feed, DAY)
    with lake.services.ledger.read() as connection:
        found = quality.check_states(connection, [partition])
        measured = newest_profiles.profiles_of(connection, [partition])
    return {check: each.state for (_, check), each in found.items()}, measured.get(partition)


def test_findings_of_a_killed_run_are_kept_once_its_update_is_published(lake):
    def die(step: str) -> None:
        if step == f"manifest of {CLEAN} written":
            raise KeyboardInterrupt

    lake.drop(*LINES)
    with pytest.raises(KeyboardInterrupt):
        lake.clean(services=stepping(lake, die), checks=(NOT_TWO.warn(),), profile=MEASURES)
    assert lake.newest()
    assert known(lake) == ({"not_two": "warned", "profile": "passed"}, {"rows": 2.0, "ids": 2.0})


def test_findings_of_an_unpublished_update_are_dropped(lake):
    def die(step: str) -> None:
        if step == "audited":
            raise KeyboardInterrupt

    lake.drop(*LINES)
    with pytest.raises(KeyboardInterrupt):
        lake.clean(services=stepping(lake, die), checks=(NOT_TWO.warn(),))
    assert known(lake)[0] == {}


COMPANION = {"is_companion": True, "rejects": None, "event_time": None, "profile": MEASURES, "deep_checks": (NOT_TWO,)}


def test_a_monitor_publishes_the_profile_of_foreign_rows_with_its_findings(lake):
    lake.drop(*LINES)
    assert isinstance(lake.clean(**COMPANION), Published)
    assert rows(lake) == [("ids", 2.0, None, None, False), ("rows", 2.0, None, None, False)]
    assert known(lake) == ({"inputs": "marked"}, {"rows": 2.0, "ids": 2.0})  # by what it has found itself
    assert known(lake, RAW)[0] == {"profile": "passed", "not_two": "failed"}
    lake.drop(*LINES[:1])
    lake.clean(**COMPANION)
    assert known(lake, RAW)[0] == {"profile": "passed", "not_two": "passed"}


def test_a_monitor_killed_before_publishing_has_recorded_its_findings(lake):
    def die(step: str) -> None:
        if step.startswith("manifest of"):
            raise KeyboardInterrupt

    lake.drop(*LINES)
    with pytest.raises(KeyboardInterrupt):
        lake.clean(services=stepping(lake, die), **COMPANION)
    assert known(lake, RAW)[0] == {"profile": "passed", "not_two": "failed"}


def test_a_companion_says_nothing_of_what_has_changed_while_it_was_measured(lake):
    def drop(step: str) -> None:
        if step == "audited":
            lake.drop(*LINES[:1])

    lake.drop(*LINES)
    with pytest.raises(UpdateChanged, match="has changed while it was measured"):
        lake.clean(services=stepping(lake, drop), **COMPANION)
    assert known(lake, RAW)[0] == {}
    assert lake.bad_ends()[0][0] == "abandoned"
