"""Durations of updates, by version of the code."""

import pytest

from feed_assets.core.durations import Duration, Trend, compared, trend
from feed_assets_tests.support.each_case import each_case


def took(*seconds, code="1"):
    return [Duration(f"X{at}", "", each, code) for at, each in enumerate(seconds)]


@each_case(
    ("durations", "expected"),
    [
        ([], []),
        (took(7), [Trend("1", 1, 7, 7, None)]),
        (took(1, 2, 9), [Trend("1", 3, 2, 8.3, None)]),
        (took(1, 3), [Trend("1", 2, 2, 2.9, None)]),
        (took(2) + took(3, code="2"), [Trend("1", 1, 2, 2, None), Trend("2", 1, 3, 3, 0.5)]),
        (took(4) + took(1, code="2"), [Trend("1", 1, 4, 4, None), Trend("2", 1, 1, 1, -0.75)]),
        (took(0) + took(5, code="2"), [Trend("1", 1, 0, 0, None), Trend("2", 1, 5, 5, None)]),
        (took(2) + took(4, code=None), [Trend("1", 1, 2, 2, None), Trend(None, 1, 4, 4, 1.0)]),
        (took(2) + took(9, code="2") + took(3), [Trend("2", 1, 9, 9, None), Trend("1", 2, 2.5, 2.95, -13 / 18)]),
    ],
)
def test_the_trend_of_durations_by_code_version(durations, expected):
    found = trend(durations)
    assert [(each.code_version, each.count) for each in found] == [(each.code_version, each.count) for each in expected]
    assert [each.median for each in found] == [each.median for each in expected]
    assert [each.p95 for each in found] == pytest.approx([each.p95 for each in expected])
    assert [each.change for each in found] == [each.change for each in expected]


@each_case(
    ("durations", "said"),
    [
        (took(2, 2, 2) + took(5, 5, 5, code="2"), "code 2 (median 5.000 s of 3) takes 2.50 times as long as code 1"),
        (took(2, 2, 2) + took(5, 5, code="2"), None),
        (took(2, 2, 2) + took(9, code="2") + took(5, 5, 5, code="3"), "2.50 times as long as code 1 (median 2.000 s"),
        (took(2, 2, 2) + took(5, 5, 5, code=None), None),
        (took(0, 0, 0) + took(5, 5, 5, code="2"), None),
    ],
    ids=["slower", "too few", "one with too few between them", "no code", "no time at all"],
)
def test_versions_with_enough_updates_are_compared(durations, said):
    found = compared(trend(durations), 3)
    assert (said in str(found)) if said else found is None


def test_one_slow_update_of_twenty_is_not_in_the_median():
    (found,) = trend(took(*[1] * 19, 100))
    assert found.median == 1
    assert 1 < found.p95 < 100
