"""A window is complete exactly at its ratio, computed in integers: floats are wrong at the edge."""

import pytest

from feed_assets.core.completeness import Completeness, WindowState, as_fraction, combined, judge, why
from feed_assets.core.errors import InvalidDefinition
from feed_assets_tests.support.each_case import each_case

OPEN, COMPLETE, ISSUE = WindowState.OPEN, WindowState.COMPLETE, WindowState.COMPLETE_WITH_ISSUE
RATIO = as_fraction("99.995%")


def edge(expected):
    """Return the least complete number of records: `ingested * 100000 >= expected * 99995`."""
    return -(-expected * 99_995 // 100_000)


@each_case("expected", [0, 1, 19_999, 20_000, 20_001, 10**6, 2**53 + 1])
@each_case("off", [-1, 0, 1, None])
def test_the_edge_of_the_threshold(expected, off):
    ingested = expected if off is None else edge(expected) + off
    if ingested < 0:
        return
    state = judge(ingested, {"kafka": expected}, (), RATIO)
    reached = ingested * 100_000 >= expected * 99_995
    assert state is (OPEN if not reached else ISSUE if ingested > expected else COMPLETE)


def test_floats_would_be_wrong_at_the_edge():
    """Show that a float accepts one record too few at 10**17 records."""
    expected = 10**17
    ingested = edge(expected) - 1
    assert judge(ingested, {"kafka": expected}, (), RATIO) is OPEN
    assert ingested / expected >= 0.99995


@each_case("ingested", [0, 1, 10**6])
def test_an_absent_source_is_unknown(ingested):
    assert judge(ingested, {}, (), RATIO) is OPEN
    assert judge(ingested, {"kafka": ingested}, ("kafka", "adserver"), RATIO) is OPEN


def test_zero_of_zero_records_are_complete_if_the_source_reports_zero():
    assert judge(0, {"kafka": 0}, (), RATIO) is COMPLETE
    assert judge(1, {"kafka": 0}, (), RATIO) is ISSUE


def test_every_tier_has_to_agree():
    assert judge(100, {"kafka": 100, "adserver": 101}, (), RATIO) is OPEN
    assert judge(101, {"kafka": 100, "adserver": 101}, (), RATIO) is COMPLETE
    assert judge(100, {"kafka": 100, "other": 500}, ("kafka",), RATIO) is COMPLETE


def test_more_records_than_ingested_are_an_issue():
    assert judge(1001, {"kafka": 1000}, (), RATIO) is ISSUE


@each_case(
    ("states", "expected", "state"),
    [
        ({COMPLETE: 6}, 6, COMPLETE),
        ({COMPLETE: 5}, 6, OPEN),
        ({COMPLETE: 5, ISSUE: 1}, 6, ISSUE),
        ({COMPLETE: 5, WindowState.INVALID: 1}, 6, OPEN),
        ({COMPLETE: 5, WindowState.BACKFILLED: 1}, 6, COMPLETE),
        ({COMPLETE: 5, WindowState.BACKFILLING: 1}, 6, OPEN),
    ],
)
def test_a_larger_window_is_complete_when_its_children_are(states, expected, state):
    assert combined(states, expected) is state


def test_counts_in_words_are_cut_off_and_not_rounded():
    assert why(1203, {"kafka": 1234}, ()) == "1,203 of 1,234 records at kafka (97.4878 %)"
    assert why(19_998, {"kafka": 20_000}, ()).endswith("(99.9900 %)")
    assert why(5, {}, ("kafka",)) == "5 records, and no count of kafka yet"
    assert why(0, {"kafka": 0}, ()) == "0 of 0 records at kafka"


@each_case("ratio", ["0", "101%", "-1%", "x", "", "nan", "1/0"])
def test_an_invalid_completeness_ratio_is_refused(ratio):
    with pytest.raises(InvalidDefinition, match="expected a share above 0"):
        Completeness(ratio=ratio)


def test_grains_are_kept_in_order():
    assert Completeness(grains=("day", "hour")).grains == ("hour", "day")
