"""Late data under each policy: every byte is consumed, waits until a time, or is skipped."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.facts import Built, Facts
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.late_policy import Late, Periods, last_check, next_look
from feed_assets.core.pins import Pin
from feed_assets.core.readiness import State, decide
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.each_case import each_case

DAY, HOUR, SECOND = timedelta(days=1), timedelta(hours=1), timedelta(seconds=1)
END = datetime(2024, 2, 28, tzinfo=UTC)
"""End of the weighed partition: 2024-02-27."""
RAW = Partition(Feed.parse("ias/raw/v1.0"), "2024-02-27")
OTHER = Partition(Feed.parse("ias/other/v1.0"), "2024-02-27")
MADE = Partition(Feed.parse("ias/made/v1.0"), "2024-02-27")
READ, FIRST = update_id(END + HOUR), END - 0.95 * DAY
PERIODS = Periods(tuple(END + DAY * number for number in range(30)))


def pin(at: Partition, came: datetime, size: int, files: int = 10, version: str | None = None) -> Pin:
    return Pin(at, update_id(came), version or f"{size} {files}", size, files)


def weighed(
    late, now, *arrived, inputs=(RAW,), late_of=None, costs=None, periods=PERIODS, since=None, read=END - 0.95 * DAY
):
    """Return the verdict on a day built from 1,000 bytes of each input at `read`, after more data arrived."""
    first = {at: pin(at, read, 1000) for at in inputs}
    newest = first | {each.partition: each for each in sorted(arrived)}
    need = replace(need_of(MADE, inputs, late=late), late_of=late_of or {}, periods=PERIODS)
    came = {each.partition: since for each in arrived} if since else {}
    counted = {
        (each.partition, upto): each
        for each in sorted(arrived)
        if (upto := need.counts_upto(each.partition.feed, now)) and each.update_id <= upto
    }
    built = Built(READ, tuple(sorted(first.values())), came)
    (found,) = decide([need], Facts(now, {MADE: built}, newest, counted=counted, costs=costs or {}))
    return found


def at(days: float = 0, size: int = 1000, files: int = 10, of: Partition = RAW) -> Pin:
    """Return an update that arrived `days` days after the partition's end."""
    return pin(of, END + days * DAY, size, files)


REBUILD, WAITS, SKIPS = State.REBUILD, State.WAITS_FOR_LATE_DATA, State.SKIPS_LATE_DATA


@each_case(
    ("late", "arrived", "state"),
    [
        pytest.param(Late(), at(1, 1001), REBUILD, id="without a threshold every change is enough"),
        pytest.param(Late(files=3), at(1, 5000, 12), SKIPS, id="two files more, whatever their size"),
        pytest.param(Late(files=3), at(1, 1001, 13), REBUILD, id="three files more, however small"),
        pytest.param(Late(files=3), at(1, 1001, 10), SKIPS, id="as many files"),
        pytest.param(Late(files=3), at(1, 1001, 9), SKIPS, id="fewer files, and more bytes"),
        pytest.param(Late("5%", files=3), at(1, 1010, 13), REBUILD, id="any: enough files"),
        pytest.param(Late("5%", files=3), at(1, 1050, 10), REBUILD, id="any: enough growth"),
        pytest.param(Late("5%", files=3), at(1, 1049, 12), SKIPS, id="any: neither"),
        pytest.param(Late("5%", files=3, combine="all"), at(1, 1050, 12), SKIPS, id="all: growth alone"),
        pytest.param(Late("5%", files=3, combine="all"), at(1, 1049, 13), SKIPS, id="all: files alone"),
        pytest.param(Late("5%", files=3, combine="all"), at(1, 1050, 13), REBUILD, id="all: both"),
        pytest.param(Late("5%", max_age=DAY, combine="all"), at(1, 1049), SKIPS, id="all: no age is enough"),
        pytest.param(Late("5%", max_age=DAY, combine="all"), at(1, 1050), WAITS, id="all: too young"),
        pytest.param(Late(max_age=DAY), at(1, 9000), WAITS, id="an age alone: much that is young"),
        pytest.param(Late("5%", files=3, combine="all"), at(1, 1000, 11), REBUILD, id="an overwrite passes them all"),
        pytest.param(Late("5%", max_age=DAY, combine="all"), at(1, 900), REBUILD, id="so does less than there was"),
    ],
)
def test_thresholds_are_of_growth_files_and_age_any_or_all_of_them(late, arrived, state):
    assert weighed(late, END + 1.5 * DAY, arrived).state is state


@each_case("combine", ["any", "all"])
def test_late_data_are_read_exactly_at_their_maximum_age(combine):
    late = Late("5%", max_age=2 * DAY, combine=combine)
    arrived = at(1, 1010 if combine == "any" else 1060)
    before = weighed(late, END + 3 * DAY - SECOND, arrived)
    assert (before.state, before.look_again) == (WAITS, END + 3 * DAY)
    assert weighed(late, END + 3 * DAY, arrived).state is REBUILD


def test_an_input_is_weighed_by_its_own_policy_in_place_of_the_datasets():
    both = {"inputs": (RAW, OTHER), "late_of": {OTHER.feed: Late("50%")}}
    now = END + 2 * DAY
    assert weighed(Late("5%"), now, at(1, 1060), **both).state is REBUILD
    assert weighed(Late("5%"), now, at(1, 1060, of=OTHER), **both).state is SKIPS
    assert weighed(Late("5%"), now, at(1, 1500, of=OTHER), **both).state is REBUILD
    assert weighed(Late("5%"), now, at(1, 1040), at(1, 1400, of=OTHER), **both).state is SKIPS


def test_the_sizes_are_those_of_the_input_that_decides():
    both = {"inputs": (RAW, OTHER), "late_of": {OTHER.feed: Late("50%")}}
    enough = weighed(Late("5%"), END + 2 * DAY, at(1, 1060), at(1, 1400, of=OTHER), **both)
    assert (enough.weighed.before, enough.weighed.after) == (1000, 1060)
    little = weighed(Late("5%"), END + 2 * DAY, at(1, 1040), at(1, 1400, of=OTHER), **both)
    assert (little.weighed.before, little.weighed.after) == (1000, 1400)
    assert "late data of ias/other/v1.0 (+40.0%) are below the threshold of 50.0%" in little.reason


def test_with_several_late_inputs_the_earliest_limit_ends_the_wait():
    late_of = {RAW.feed: Late("5%", max_age=3 * DAY), OTHER.feed: Late("5%", max_age=2 * DAY)}
    found = weighed(Late(), END + 1.5 * DAY, at(1, 1010), at(1, 1020, of=OTHER), inputs=(RAW, OTHER), late_of=late_of)
    assert (found.state, found.look_again) == (WAITS, END + 3 * DAY)
    assert "+1.0%" in found.reason
    assert "+2.0%" in found.reason


@each_case(
    ("came", "state"),
    [(7 - 1 / 86400, REBUILD), (7, REBUILD), (7 + 1 / 86400, SKIPS), (20, SKIPS)],
)
def test_data_after_the_cut_off_are_only_counted(came, state):
    found = weighed(Late("5%", cut_off=7 * DAY), END + 21 * DAY, at(came, 2000))
    assert found.state is state
    assert ("after the cut-off of 2024-03-06 00:00 UTC: they cause no re-run" in found.reason) is (state is SKIPS)


def test_an_overwrite_after_the_cut_off_is_only_counted_and_a_withdrawal_is_not_late():
    late = Late("5%", cut_off=7 * DAY)
    assert weighed(late, END + 21 * DAY, at(20, 1000, 9)).state is SKIPS
    older = pin(RAW, END - DAY, 1010)
    assert weighed(late, END + 21 * DAY, older).state is REBUILD
    assert weighed(Late("5%", check="daily", lookback=1), END + 21.5 * DAY, older).state is REBUILD


def test_data_before_the_cut_off_are_weighed_without_later_data():
    late = Late("5%", cut_off=7 * DAY)
    assert weighed(late, END + 9 * DAY, at(6, 1040), at(8, 5000)).state is SKIPS
    assert weighed(late, END + 9 * DAY, at(6, 1060), at(8, 1070)).state is REBUILD


@each_case(
    ("now", "state", "look_again"),
    [
        (1.5, WAITS, 2),
        (2 - 1 / 86400, WAITS, 2),
        (2, REBUILD, None),
        (2.9, REBUILD, None),
    ],
)
def test_data_between_two_checks_are_weighed_at_the_next_one(now, state, look_again):
    found = weighed(Late("5%", check="daily"), END + now * DAY, at(1.4, 1100))
    assert (found.state, found.look_again) == (state, look_again and END + look_again * DAY)


def test_a_check_weighs_what_had_come_by_then_however_much_follows():
    late = Late("5%", check="daily")
    enough = weighed(late, END + 2.2 * DAY, at(1.5, 1060), at(2.1, 1061))
    assert enough.state is REBUILD
    little = weighed(late, END + 2.2 * DAY, at(1.5, 1010), at(2.1, 2000))
    assert (little.state, little.look_again) == (WAITS, END + 3 * DAY)
    assert little.reason.endswith("; data that arrived after the check are weighed at 2024-03-02 00:00 UTC")
    assert weighed(late, END + 3 * DAY, at(1.5, 1010), at(2.1, 2000)).state is REBUILD


@each_case(
    ("check", "after"),
    [
        pytest.param(datetime(2024, 3, 10, 5, tzinfo=UTC), datetime(2024, 3, 11, 4, tzinfo=UTC), id="23 hours"),
        pytest.param(datetime(2024, 11, 3, 4, tzinfo=UTC), datetime(2024, 11, 4, 5, tzinfo=UTC), id="25 hours"),
    ],
)
def test_a_daily_check_is_at_local_midnight_across_clock_changes(check, after):
    policy, new_york = Late("5%", check="daily"), Periods(zone="America/New_York")
    assert [last_check(policy, new_york, now) for now in (check, after - SECOND, after)] == [check, check, after]
    assert next_look(policy, new_york, check + SECOND) == after


@each_case("late", [Late(value_per_gb=1e-9), Late("50%", files=9, combine="all", value_per_gb=1e-9)])
def test_a_restatement_and_what_was_not_there_are_not_weighed_whatever_they_are_worth(late):
    assert weighed(late, END + 2 * DAY, at(1, 1001, of=OTHER), inputs=(RAW, OTHER), costs=COST).state is SKIPS
    assert weighed(late, END + 2 * DAY, at(1, 999), costs=COST).state is REBUILD
    assert weighed(late, END + 2 * DAY, at(1, 1000, 11), costs=COST).state is REBUILD


def test_data_read_after_a_check_do_not_cause_a_rerun():
    found = weighed(Late("5%", check="daily"), END + 2.5 * DAY, at(1.5, 900), at(2.4, 1100), read=END + 2.2 * DAY)
    assert (found.state, found.look_again) == (WAITS, END + 3 * DAY)


def test_the_maximum_age_is_judged_at_checks():
    late = Late("5%", max_age=timedelta(hours=30), check="daily")
    found = weighed(late, END + 2.2 * DAY, at(1.5, 1010))
    assert (found.state, found.look_again) == (WAITS, END + 3 * DAY)
    assert weighed(late, END + 3 * DAY, at(1.5, 1010)).state is REBUILD


@each_case(
    ("lookback", "now", "state", "look_again"),
    [
        (7, -0.5, WAITS, 0),
        (7, 0, REBUILD, None),
        (7, 6.99, REBUILD, None),
        (7, 7, SKIPS, None),
        ([0, 1, 7], 1.5, REBUILD, None),
        ([0, 1, 7], 2, WAITS, 7),
        ([0, 1, 7], 6.99, WAITS, 7),
        ([0, 1, 7], 7, REBUILD, None),
        ([0, 1, 7], 8, SKIPS, None),
        (1, 0.5, REBUILD, None),
        (1, 1, SKIPS, None),
        (None, 25, REBUILD, None),
    ],
)
def test_periods_are_looked_at_from_the_one_that_ended_last(lookback, now, state, look_again):
    found = weighed(Late("5%", lookback=lookback), END + now * DAY, at(-0.9, 1100), since=END - 0.9 * DAY)
    assert (found.state, found.look_again) == (state, look_again if look_again is None else END + look_again * DAY)


def test_the_last_seven_periods_are_the_seven_days_of_the_article():
    """Look back as the article's `for days_ago in range(1, 8)` on 2024-03-01: the day itself still runs."""
    now, policy = datetime(2024, 3, 1, 6, tzinfo=UTC), Late("5%", check="0 6 * * *")
    looked = []
    for days_ago in range(10):
        ends = now.replace(hour=0) - days_ago * DAY + DAY
        periods = Periods(tuple(ends + DAY * number for number in range(9)))
        if next_look(policy, periods, last_check(policy, periods, now)) == now:
            looked.append(days_ago)
    assert looked == [*range(1, 8)]


def test_late_data_that_reach_their_age_after_the_lookback_are_skipped_at_once():
    late = Late("5%", max_age=10 * DAY, lookback=7)
    found = weighed(late, END + 2 * DAY, at(1, 1010))
    assert found.state is SKIPS
    assert "only the last 7 periods are checked" in found.reason


@each_case("late", [Late(), Late("5%", max_age=HOUR), Late(check="daily", lookback=20), Late(files=1)])
def test_a_fallback_before_pruned_updates_waits_for_a_person_under_any_policy(late):
    read, left = pin(RAW, END + HOUR, 1000), pin(RAW, END - HOUR, 2000, 20)
    need = replace(need_of(MADE, (RAW,), late=late), periods=PERIODS)
    known = {"outputs": {MADE: Built(READ, (read,))}, "newest": {RAW: left}, "pruned": {RAW: update_id(END)}}
    (found,) = decide([need], Facts(END + 3 * DAY, **known))
    assert found.state is State.WAITS_FOR_A_PERSON
    assert "before them was pruned" in found.reason


COST = {MADE.feed: 2e-3}
"""Cost of each byte: 2.2 for the 1,100 bytes of the whole partition."""


@each_case(
    ("late", "costs", "state", "said"),
    [
        pytest.param(
            Late("5%", value_per_gb=2.3e7), COST, REBUILD, "(worth 2.3, and a re-run costs 2.2)", id="worth more"
        ),
        pytest.param(Late("5%", value_per_gb=2.2e7), COST, REBUILD, "(worth 2.2, and a re-run", id="worth as much"),
        pytest.param(Late("5%", value_per_gb=2.1e7), COST, SKIPS, "(worth 2.1, and a re-run costs 2.2)", id="less"),
        pytest.param(Late(value_per_gb=2.1e7), COST, SKIPS, "until more data arrive", id="less, without a threshold"),
        pytest.param(Late(value_per_gb=1), {}, REBUILD, "no published run is known yet", id="without history"),
        pytest.param(
            Late("5%", 2 * DAY, value_per_gb=1), COST, WAITS, "cause a re-run at 2024-03-02", id="old one day"
        ),
        pytest.param(Late("5%", HOUR, value_per_gb=1), COST, REBUILD, "have waited", id="old enough whatever they are"),
        pytest.param(Late("5%", HOUR, combine="all", value_per_gb=1), COST, SKIPS, "until", id="all: not worth it"),
    ],
)
def test_late_bytes_must_be_worth_the_cost_of_the_run(late, costs, state, said):
    found = weighed(late, END + 1.5 * DAY, at(1, 1100), costs=costs)
    assert found.state is state
    assert said in found.reason


def test_each_arrived_byte_is_consumed_or_waits_until_a_time_or_is_knowingly_skipped():
    """Any waiting late data have a time of their next decision, which is not postponed forever."""
    choices = {
        "growth": (None, "5%"),
        "max_age": (None, DAY, 9 * DAY),
        "files": (None, 2),
        "cut_off": (None, 3 * DAY),
        "combine": ("any", "all"),
        "check": (None, "daily", "hourly"),
        "lookback": (None, 2, (0, 1, 7)),
        "value_per_gb": (None, 1e7),
    }
    for values in product(*choices.values()):
        late = Late(**dict(zip(choices, values, strict=True)))
        for came, size in ((0.5, 1010), (0.5, 1100), (2.5, 1010), (4.2, 1100), (6.7, 999)):
            assert _settles(late, at(came, size)), (late, came, size)


def _settles(late: Late, arrived: Pin) -> bool:
    """Return True if checks at each announced time end in a re-run or a skip, each time later than the one before."""
    now = END + 6.75 * DAY
    for _ in range(40):
        found = weighed(late, now, arrived, costs=COST)
        if found.state in (REBUILD, SKIPS):
            return found.look_again is None
        if found.state is not WAITS or found.look_again is None or found.look_again <= now:
            return False
        now = found.look_again
    return False


@each_case(
    ("values", "expected"),
    [
        ({"files": 0}, "files is 0 .*expected 1 or more"),
        ({"cut_off": -DAY}, "expected a time of 0 or more"),
        ({"combine": "both"}, "expected"),
        ({"check": "weekly"}, "the cron is 'weekly', expected a cron of five fields"),
        ({"lookback": 0}, "expected 1 or more"),
        ({"lookback": [-1]}, "expected 0 or more"),
        ({"lookback": []}, "`lookback` is empty, expected periods"),
        ({"value_per_gb": -1.0}, "expected a number of 0 or more"),
        ({"value_per_gb": float("inf")}, "expected a number of 0 or more"),
    ],
)
def test_a_contradictory_late_policy_is_refused(values, expected):
    with pytest.raises(InvalidDefinition, match=expected):
        Late(**values)
