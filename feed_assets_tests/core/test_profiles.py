"""Outliers against a baseline, by median absolute deviations."""

import pytest

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.profiles import ENOUGH, Profile, asks_for_more, compare, in_words
from feed_assets_tests.support.each_case import each_case

ROWS = Profile()


def before(*numbers):
    return [{"rows": float(number)} for number in numbers]


@each_case(
    ("found", "is_off"),
    [(100, False), (92, False), (91.9, True), (108, False), (108.1, True), (0, True)],
)
def test_a_measure_beyond_the_allowed_deviations_is_off(found, is_off):
    # The median is 100, the deviations are 0, 1, 1, 2, 2, 3, 900: their median is 2, and 4 of them are 8.
    (rows,) = compare(ROWS, {"rows": found}, before(100, 99, 101, 98, 102, 97, 1000))
    assert (rows.median, rows.deviation, rows.is_off) == (100, 2, is_off)


def test_a_baseline_that_never_differed_makes_any_other_number_off():
    baseline = before(*[5] * ENOUGH)
    assert [compare(ROWS, {"rows": n}, baseline)[0].is_off for n in (5, 5.001, 4)] == [False, True, True]


@each_case("known", [0, 1, ENOUGH - 1])
def test_with_too_few_to_compare_with_nothing_is_off_and_the_deep_checks_run(known):
    compared = compare(ROWS, {"rows": 7}, before(*[5] * known))
    assert (compared[0].is_off, asks_for_more(compared)) == (False, True)
    assert in_words(compared) == f"rows is 7, with {known} of 7 partitions to compare it with"


def test_with_enough_the_deep_checks_run_only_if_something_is_off():
    baseline = before(*[5] * ENOUGH)
    assert [asks_for_more(compare(ROWS, {"rows": n}, baseline)) for n in (5, 6)] == [False, True]


def test_each_measure_has_a_baseline_of_its_own():
    profile = Profile({"rows": "count(1)", "clicks": "sum(click)"})
    baseline = [{"rows": 5.0, "clicks": 1.0}] * 3 + [{"rows": 5.0}] * 4
    compared = compare(profile, {"rows": 6, "clicks": 9}, baseline)
    assert [(each.measure, each.baseline_count, each.is_off) for each in compared] == [
        ("rows", 7, True),
        ("clicks", 3, False),
    ]
    assert in_words(compared) == "rows is 6: the median of 7 is 5, their deviation 0"


def test_a_measure_that_is_null_is_off_where_it_never_was():
    (rows,) = compare(ROWS, {}, before(*[5] * ENOUGH))
    phrase = "rows is NULL: the median of 7 is 5, their deviation 0"
    assert (rows.value, rows.is_off, rows.phrase) == (None, True, phrase)


def test_a_measure_that_is_null_is_not_off_where_it_was_before():
    (rows,) = compare(ROWS, {}, [*before(*[5] * ENOUGH), {}])
    assert (rows.value, rows.baseline_count, rows.is_off) == (None, ENOUGH, False)


def test_measures_that_are_null_in_the_baseline_do_not_count():
    (rows,) = compare(ROWS, {"rows": 5}, [*before(*[5] * ENOUGH), {}, {}])
    assert (rows.baseline_count, rows.is_off) == (ENOUGH, False)


@each_case(
    ("given", "days"),
    [("28 same hours", (28, 1)), ("7 same weekdays", (7, 7)), ("999 partitions", (999, None))],
)
def test_a_baseline_says_how_many_partitions_and_how_far_apart(given, days):
    profile = Profile(baseline=given)
    assert (profile.partitions, profile.step and profile.step.days) == days


@each_case(
    ("options", "words"),
    [
        ({"baseline": "same hours"}, "expected up to 999 'same hours', 'same weekdays' or 'partitions'"),
        ({"baseline": "0 partitions"}, "'0 partitions'"),
        ({"baseline": "28 days"}, "such as '28 same hours'"),
        ({"off_by": 0}, "expected a number above 0"),
        ({"off_by": -1.0}, "expected a number above 0"),
        ({"off_by": float("inf")}, "off_by is inf .*, expected a number above 0, and not infinity"),
        ({"off_by": float("nan")}, "off_by is nan .*, expected a number above 0"),
        (
            {"baseline": "6 same hours"},
            "'6 same hours', and with fewer than 7 partitions nothing is ever compared: expected 7 or",
        ),
        ({"measures": {}}, "`measures` is empty"),
        ({"measures": {"": "count(1)"}}, "letters, digits and '_'"),
        ({"measures": {"rows": ""}}, r"measures\['rows'\] is '' .*, expected an aggregate in SQL, such as count\(1\)"),
        ({"measures": {"rows": "  "}}, "expected an aggregate in SQL"),
        ({"measures": {"a b": "count(1)"}}, "letters, digits and '_'"),
        ({"measures": {"rows": 1}}, r"measures\['rows'\] is 1"),
    ],
)
def test_invalid_profiles_are_refused(options, words):
    with pytest.raises(InvalidDefinition, match=words):
        Profile(**options)
