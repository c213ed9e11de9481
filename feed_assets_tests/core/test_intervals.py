"""The algebra of half-open intervals, as tables."""

from feed_assets.core.intervals import Interval, start_of
from feed_assets_tests.support.each_case import each_case


def interval(text):
    start, end = text.split("..")
    return Interval(start or None, end)


@each_case(
    ("one", "other", "union"),
    [
        ("..3", "3..5", "..5"),
        ("3..5", "..3", "..5"),
        ("1..3", "2..5", "1..5"),
        ("1..5", "2..3", "1..5"),
        ("..3", "4..5", None),
        ("1..2", "..1", "..2"),
        ("..3", "3..3", "..3"),
        ("..3", "4..4", None),
        ("4..4", "4..6", "4..6"),
        ("..5", "..3", "..5"),
    ],
)
def test_two_intervals_are_one_unless_there_is_a_hole(one, other, union):
    expected = interval(union) if union else None
    assert interval(one).union(interval(other)) == expected
    assert interval(other).union(interval(one)) == expected


@each_case(
    ("one", "other", "is_within"),
    [
        ("1..3", "1..3", True),
        ("1..3", "..3", True),
        ("..3", "1..3", False),
        ("1..3", "1..2", False),
        ("2..3", "1..5", True),
        ("3..3", "1..3", True),
        ("1..1", "1..3", True),
        ("4..4", "1..3", False),
        ("4..4", "..4", True),
    ],
)
def test_an_interval_lies_within_another_one(one, other, is_within):
    assert interval(one).within(interval(other)) is is_within


@each_case(
    ("slice_", "empty", "previous", "grown"),
    [
        ("..5", "7..7", "5", "..7"),
        ("..5", "7..7", "6", None),
        ("..7", "7..7", "5", "..7"),
        ("7..9", "7..7", "5", "7..9"),
        ("8..9", "7..7", "5", None),
        ("3..5", "7..7", None, "3..7"),
    ],
)
def test_an_event_without_new_data_adds_no_interval(slice_, empty, previous, grown):
    assert interval(slice_).grown(interval(empty), previous) == (interval(grown) if grown else None)


@each_case(
    ("replaces_all", "is_empty", "start"),
    [(False, False, "5"), (True, False, None), (False, True, "7"), (True, True, "7")],
)
def test_data_of_an_event_begin_at_the_previous_marker_unless_it_replaces_all(replaces_all, is_empty, start):
    assert start_of("5", "7", replaces_all=replaces_all, is_empty=is_empty) == start
    assert Interval(start, "7").is_empty is is_empty
