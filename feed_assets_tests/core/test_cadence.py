"""Lateness of events: literal times at each edge, days on which clocks change, and the rule by brute force."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.cadence import Cadence, missing
from feed_assets.core.errors import InvalidDefinition
from feed_assets_tests.support.each_case import each_case

HOUR, TINY = timedelta(hours=1), timedelta(microseconds=1)
DAILY = Cadence("0 6 * * *", HOUR)
LONG_AGO = datetime(2019, 1, 1, tzinfo=UTC)


def at(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2019, month, day, hour, minute, tzinfo=UTC)


@each_case(
    ("last", "now", "expected"),
    [
        pytest.param(at(24, 6), at(25, 7) - TINY, None, id="the tolerance is not over"),
        pytest.param(at(24, 6), at(25, 7), at(25, 6), id="the tolerance is over"),
        pytest.param(at(25, 5) - TINY, at(25, 7), at(25, 6), id="it came too early, and was yesterday's"),
        pytest.param(at(25, 5), at(25, 7), None, id="it came as early as it may"),
        pytest.param(at(25, 6), at(25, 7), None, id="it came at its tick"),
        pytest.param(at(25, 7), at(25, 7), None, id="it came when it was about to be late"),
        pytest.param(at(25, 17), at(25, 18), None, id="it came very late: no longer missing"),
        pytest.param(at(25, 17), at(26, 7), at(26, 6), id="what came very late does not count for the next day"),
        pytest.param(at(26, 5) - TINY, at(26, 7), at(26, 6), id="nor did it if it came later still"),
        pytest.param(at(25, 6), at(26, 5, 30), None, id="tomorrow's is not due yet"),
        pytest.param(at(26, 5), at(26, 5, 30), None, id="tomorrow's is there already"),
        pytest.param(at(22, 6), at(25, 9), at(23, 6), id="three are missing: the first of them is named"),
        pytest.param(at(30, 0), at(25, 7), None, id="its time is ahead of the clock"),
    ],
)
def test_a_daily_event_with_an_hours_tolerance(last, now, expected):
    assert missing(DAILY, last, LONG_AGO, now) == expected


@each_case(
    ("since", "now", "expected"),
    [
        pytest.param(
            at(25, 6) + TINY, at(26, 7) - TINY, None, id="declared just after a tick: that one is not expected"
        ),
        pytest.param(at(25, 6) + TINY, at(26, 7), at(26, 6), id="the next one is"),
        pytest.param(at(25, 6), at(25, 7), at(25, 6), id="declared at a tick: that one is expected"),
        pytest.param(at(25, 6), at(25, 7) - TINY, None, id="within the tolerance"),
        pytest.param(at(28, 0), at(25, 7), None, id="declared ahead of the clock"),
    ],
)
def test_a_table_that_never_had_an_event_is_late_from_its_first_tick_on(since, now, expected):
    assert missing(DAILY, None, since, now) == expected


def test_an_event_from_before_the_table_was_declared_makes_nothing_late():
    assert missing(DAILY, at(1, 6), at(25, 6) + TINY, at(26, 7) - TINY) is None


def test_without_tolerance_an_event_is_late_at_once_and_none_may_be_early():
    strict = Cadence("0 6 * * *", timedelta())
    assert missing(strict, at(25, 6) - TINY, LONG_AGO, at(25, 6)) == at(25, 6)
    assert missing(strict, at(25, 6) - TINY, LONG_AGO, at(25, 6) - TINY) is None
    assert missing(strict, at(25, 6), LONG_AGO, at(25, 6)) is None


def test_a_tolerance_may_be_longer_than_the_interval():
    lenient = Cadence("0 * * * *", 2 * HOUR)
    assert missing(lenient, at(25, 6), LONG_AGO, at(25, 11) - TINY) is None
    assert missing(lenient, at(25, 6), LONG_AGO, at(25, 11)) == at(25, 9)


def in_berlin(cron: str, tolerance: timedelta = timedelta()) -> Cadence:
    return Cadence(cron, tolerance, "Europe/Berlin")


@each_case(
    ("cron", "last", "expected"),
    [
        pytest.param("0 6 * * *", at(29, 5, month=3), at(30, 5, month=3), id="winter: 6:00 is 5:00 UTC"),
        pytest.param("0 6 * * *", at(30, 5, month=3), at(31, 4, month=3), id="summer has begun: 23 hours later"),
        pytest.param("0 6 * * *", at(26, 4, month=10), at(27, 5, month=10), id="summer has ended: 25 hours later"),
        pytest.param("30 2 * * *", at(30, 1, 30, month=3), at(31, 1, month=3), id="2:30 is left out: at 3:00 instead"),
        pytest.param("30 2 * * *", at(31, 1, month=3), at(1, 0, 30, month=4), id="it is so once"),
        pytest.param("30 2 * * *", at(26, 0, 30, month=10), at(27, 0, 30, month=10), id="2:30 comes twice: the first"),
        pytest.param("30 2 * * *", at(27, 0, 30, month=10), at(28, 1, 30, month=10), id="the second is no tick"),
        pytest.param("30 2 * * *", at(27, 1, 10, month=10), at(28, 1, 30, month=10), id="asked for between the two"),
        pytest.param("30 * * * *", at(31, 0, 30, month=3), at(31, 1, 30, month=3), id="hourly: none is left out"),
        pytest.param("30 * * * *", at(27, 0, 30, month=10), at(27, 1, 30, month=10), id="hourly: both are ticks"),
    ],
)
def test_ticks_of_a_zone_whose_clocks_change(cron, last, expected):
    assert missing(in_berlin(cron), last, LONG_AGO, expected - TINY) is None
    assert missing(in_berlin(cron), last, LONG_AGO, expected) == expected


@each_case("zone", ["+08:00", "UTC+8", "Etc/GMT-8"])
def test_a_zone_may_be_whole_hours(zone):
    last = at(24, 22)
    assert missing(Cadence("0 6 * * *", HOUR, zone), last, LONG_AGO, at(25, 23)) == at(25, 22)


def test_times_of_any_zone_are_the_same_moments_and_the_answer_is_in_utc():
    tokyo = ZoneInfo("Asia/Tokyo")
    found = missing(DAILY, at(24, 6).astimezone(tokyo), LONG_AGO.astimezone(tokyo), at(25, 7).astimezone(tokyo))
    assert found == at(25, 6)
    assert found.tzinfo is UTC


HOURS = [LONG_AGO + number * HOUR for number in range(-4, 200)]
MOMENTS = st.integers(0, 100 * 3600 * 10**6).map(lambda tiny: LONG_AGO + tiny * TINY) | st.sampled_from(HOURS[:100])


def by_the_rule(last, tolerance, since, now):
    """Return the first tick that is overdue, and to which neither the last event nor an earlier one belongs."""
    known = [tick for tick in HOURS if tick >= since and tick + tolerance <= now]
    return next((tick for tick in known if last is None or last < tick - tolerance), None)


@given(st.none() | MOMENTS, st.integers(0, 12).map(lambda quarters: quarters * HOUR / 4), MOMENTS, MOMENTS)
def test_the_rule_holds_at_every_moment(last, tolerance, since, now):
    found = missing(Cadence("0 * * * *", tolerance), last, since, now)
    assert found == by_the_rule(last, tolerance, since, now)


@each_case("cron", ["", "* * * *", "0 0 6 * * *", "61 * * * *", "0 6 * * MOO", "@daily", "0 6 30 2 *"])
def test_an_invalid_cron_of_a_cadence_is_refused(cron):
    with pytest.raises(InvalidDefinition, match=r"xpected .*'0 6 \* \* \*'"):
        Cadence(cron)


def test_a_cron_without_any_tick_is_refused():
    with pytest.raises(InvalidDefinition, match="no tick in fifty years"):
        Cadence("* * */20 * 1L")


def test_a_negative_tolerance_is_refused():
    with pytest.raises(InvalidDefinition, match=r"tolerance is .* expected a time of 0 or more"):
        Cadence("0 6 * * *", -TINY)


@each_case("zone", ["Mars/Olympus", "", "../UTC", "Europe", "/etc/localtime"])
def test_an_invalid_time_zone_of_a_cadence_is_refused(zone):
    with pytest.raises(InvalidDefinition, match="'Europe/Berlin'"):
        Cadence("0 6 * * *", HOUR, zone)
