"""History: which partitions belong to it, their order, and how many fit into a day."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import History, Order, Spent, fitting, in_order, why_not
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = Spent(date(2026, 3, 10))


def ended(days: float) -> datetime:
    return NOW - timedelta(days=days)


@each_case(
    ("days", "end", "is_history"),
    [(7, ended(8), True), (7, ended(7), False), (7, ended(6), False), (0, ended(1), True), (7, None, False)],
)
def test_history_begins_after_its_days_and_never_includes_partitions_without_time(days, end, is_history):
    assert History(days).has(end, NOW) is is_history


@each_case(("order", "expected"), [(Order.OLDEST, [1, None, 30, 20, 10]), (Order.NEWEST, [1, None, 10, 20, 30])])
def test_new_partitions_come_before_history_which_is_ordered_by_time(order, expected):
    rules, given = History(order=order), [20, 1, 30, None, 10]
    assert sorted(given, key=lambda days: rules.place(ended(days) if days else None, NOW)) == expected


@each_case(
    ("limits", "spent", "size", "said"),
    [
        ({}, TODAY.plus(10**6, 10**12), 10**12, None),
        ({"runs": 2}, TODAY.plus(1, 10**12), 10**12, None),
        ({"runs": 2}, TODAY.plus(2, 0), 0, "2 runs a day (UTC) may be requested (FEED_ASSETS_HISTORY_RUNS_PER_DAY)"),
        ({"bytes": 100}, TODAY.plus(1, 60), 40, None),
        (
            {"bytes": 100},
            TODAY.plus(1, 60),
            41,
            "100 bytes a day (UTC) may be read (FEED_ASSETS_HISTORY_BYTES_PER_DAY)",
        ),
        ({"bytes": 100}, TODAY, 5000, None),
        ({"bytes": 100}, TODAY.plus(3, 0), 5000, None),
        ({"bytes": 100}, TODAY.plus(1, 1), 5000, "its 5,000 bytes"),
        ({"bytes": 100}, TODAY.plus(1, 5000), 0, "bytes a day"),
    ],
)
def test_a_day_is_limited_in_runs_and_bytes_but_always_fits_one_partition(limits, spent, size, said):
    found = why_not(History(**limits), spent, size)
    assert found is None if said is None else said in str(found)


def test_a_full_day_lets_nothing_overtake_until_its_limit_changes():
    rules = History(bytes=100)
    full = TODAY.plus(1, 60).filled(rules)
    assert why_not(rules, full, 1)
    assert fitting(rules, full, [1, 1]) == 0
    assert why_not(replace(rules, bytes=200), full, 1) is None
    assert fitting(replace(rules, bytes=200), full, [1, 139, 1]) == 2


@each_case(
    ("spent", "sizes", "count"),
    [
        (TODAY, [40, 60, 1], 2),
        (TODAY, [41, 60, 1], 1),
        (TODAY, [500, 1], 1),
        (TODAY.plus(1, 1), [500, 1], 0),
        (TODAY, [], 0),
    ],
)
def test_partitions_fit_in_their_order_up_to_the_first_that_does_not(spent, sizes, count):
    assert fitting(History(bytes=100, runs=1), spent, sizes) == count


def test_a_count_of_a_day_that_a_wrong_clock_has_seen_holds_nothing():
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert Spent(date(2026, 1, 2), 5).on(now) == Spent(date(2026, 1, 2), 5)
    assert Spent(date(2027, 1, 1), 5).on(now) == Spent(date(2026, 1, 1))


def test_the_budget_restarts_each_utc_day_and_a_late_clock_counts_on_the_later_day():
    spent = replace(TODAY, runs=3, bytes=7, full="limits")
    assert spent.on(NOW) == spent
    assert spent.on(NOW + timedelta(hours=12)) == Spent(date(2026, 3, 11))
    assert spent.on(NOW - timedelta(hours=13)) == spent
    assert spent.next_day == datetime(2026, 3, 11, tzinfo=UTC)


def test_outputs_come_after_their_inputs_in_any_order():
    first, last, free = (Partition(Feed.parse("t/a/v1.0"), key) for key in ("1", "2", "3"))
    places = {first: (1, 3.0), last: (0, 0.0), free: (1, 1.0)}
    assert in_order({first: [], last: [first], free: []}, places.__getitem__) == [free, first, last]
