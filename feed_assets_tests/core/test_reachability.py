"""Tables that a pipeline seems to write no longer."""

from datetime import timedelta

from feed_assets.core.reachability import Unreachable, unreachable
from feed_assets_tests.core.arrivals import START, arrived, consumer, due_of, feed
from feed_assets_tests.support.each_case import each_case

PIPELINES = {"p": ["a", "b", "c"]}
WHO = consumer("a", "b", pipelines=PIPELINES)
B = feed("b")


def at(minute):
    return START + timedelta(minutes=minute)


@each_case(
    ("reported", "last", "expected"),
    [
        ("", {}, []),
        ("aX aY", {}, []),
        ("aX aY aZ", {}, [None]),
        ("aX aX aX", {}, []),
        ("aX aY aZ", {B: at(0)}, [at(0)]),
        ("aX aY aZ", {B: at(1)}, []),
        ("aW aX aY aZ", {B: at(1)}, [at(1)]),
        ("aX aY aZ", {B: at(9)}, []),
        ("aX bX aY aZ", {B: at(2)}, []),
    ],
)
def test_a_table_skipped_by_three_updates_in_a_row_is_unreachable(reported, last, expected):
    """Each event is a table and a correlation id, one minute apart; the first comes at minute 1."""
    found = unreachable(due_of(WHO, arrived(*reported.split())).incomplete, last)
    assert [(each.pipeline, each.table, each.last) for each in found] == [("p", B, when) for when in expected]


def test_an_unreachable_table_is_named_with_its_last_write():
    assert "pipeline p has skipped b 3 times or more, its last event was on 2024-01-01 00:00 UTC" in str(
        Unreachable("p", B, START)
    )
    assert "skipped b 3 times or more, it never had an event: its consumers" in str(Unreachable("p", B, None))


def test_tables_are_judged_each_for_itself_and_sorted():
    who = consumer("a", "b", "c", pipelines=PIPELINES)
    incomplete = due_of(who, arrived("aX", "aY", "aZ")).incomplete
    assert [str(each.table) for each in unreachable(incomplete, {})] == ["b", "c"]
    assert [str(each.table) for each in unreachable(incomplete, {B: at(3)})] == ["c"]
