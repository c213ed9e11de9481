"""Profiles on Spark: measured with the checks, deep checks where they are off; of others' rows as a dataset."""

import pytest

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.profiles import Profile
from feed_assets.runs import checks
from feed_assets.runs.checks import Audited, Check
from feed_assets.runs.profiling import audit
from feed_assets.runs.recipe import Recipe

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
        ("sum(n) + 1", "clicks is 6: the median of 7 is 5, deviating by 0", ["deep"]),
        ("sum(if(n > 9, n, NULL))", "clicks is NULL: the median of 7 is 5, deviating by 0", ["deep"]),
        ("CAST('NaN' AS double)", "clicks is NULL: the median of 7 is 5, deviating by 0", ["deep"]),
    ],
)
def test_measures_and_checks_are_counted_together_and_deep_checks_run_where_one_is_off(audited, clicks, said, ran):
    results, measures = audit(recipe(clicks=clicks), audited, BEFORE)
    assert [each.check.name for each in results] == ["not_null_n", "profile", "deep"]
    assert (results[1].said, results[1].passed, SEEN) == (said, not ran, ran)
    assert measures.get("rows") == 2


def test_what_was_measured_is_shown_beside_what_is_usual(audited):
    results, _ = audit(recipe(clicks="sum(n) + 1"), audited, BEFORE)
    assert results[1].sample == (
        {"measure": "rows", "found": 2, "median": 2, "mad": 0, "is_anomaly": False},
        {"measure": "clicks", "found": 6, "median": 5, "mad": 0, "is_anomaly": True},
    )


def test_a_measure_that_is_no_number_is_refused(audited):
    with pytest.raises(InvalidDefinition, match="clicks of the profile measures 'a': expected a number"):
        audit(recipe(clicks="'a'"), audited, BEFORE)
