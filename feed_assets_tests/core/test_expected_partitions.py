"""Expected partitions and the start of the expectation: literal times at each edge, other zones, various crons."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from feed_assets.core.cadence import Cadence, is_finer
from feed_assets.core.expected_partitions import (
    Expected,
    begin,
    due_upto,
    expected_since,
    has_come,
    late_of,
    looked,
    not_there,
)
from feed_assets_tests.support.each_case import each_case

HOUR, DAY, TINY = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
SIX, NO_HOLES = Cadence("0 6 * * *", HOUR), Cadence(tolerance=HOUR)


def at(day: int, hour: int = 0, minute: int = 0, month: int = 11) -> datetime:
    return datetime(2019, month, day, hour, minute, tzinfo=UTC)


def day(number: int) -> tuple[datetime, datetime]:
    return at(number), at(number + 1)


@each_case(
    ("now", "upto"),
    [
        pytest.param(at(25, 7) - TINY, at(24, 6), id="the tolerance is not over: the 24th is not late yet"),
        pytest.param(at(25, 7), at(25, 6), id="it is over: what ended by six is late"),
        pytest.param(at(26, 7) - TINY, at(25, 6), id="the next day's is not"),
        pytest.param(at(30, 12), at(30, 6), id="after a pause all that ended until the last tick"),
    ],
)
def test_partitions_that_ended_by_the_last_tick_are_late_after_the_tolerance(now, upto):
    assert due_upto(SIX, begin(SIX, at(24, 12), 0), now) == upto


@each_case(
    ("declared", "first"),
    [
        pytest.param(at(25, 6) + TINY, at(25, 6), id="just after a tick: what that one expected is not waited for"),
        pytest.param(at(25, 6), at(24, 6), id="at a tick: that one is waited for"),
        pytest.param(at(25, 5), at(24, 6), id="before a tick: yesterday is waited for"),
    ],
)
def test_partitions_before_the_declaration_are_not_expected(declared, first):
    found = begin(SIX, declared, 7)
    assert (found.since, found.upto, found.position, found.missing) == (first, first, 7, {})


@each_case(
    ("cron", "zone", "end", "since"),
    [
        pytest.param("0 6 * * *", "UTC", at(25), at(25, 6), id="the first tick after its end"),
        pytest.param("0 0 * * *", "UTC", at(25), at(25), id="a tick at its end is its own"),
        pytest.param(
            "59 23 * * *", "UTC", at(25), at(25, 23, 59), id="a tick just before its end is that of the day before"
        ),
        pytest.param(
            "0 6 * * 1-5", "UTC", at(23), at(25, 6), id="no tick at the weekend: Friday is expected on Monday"
        ),
        pytest.param("0 6 * * 1-5", "UTC", at(25), at(25, 6), id="and Sunday, too"),
        pytest.param("0 6 * * *", "UTC", at(24, 13), at(25, 6), id="hours, a tick a day: each by the tick after it"),
        pytest.param(
            "0 6 * * *", "Europe/Berlin", at(30, 23, month=3), at(31, 4, month=3), id="summer begins: a day of 23 h"
        ),
        pytest.param("0 6 * * *", "Europe/Berlin", at(31, 22, month=3), at(1, 4, month=4), id="the day after"),
        pytest.param(
            "0 6 * * *", "Europe/Berlin", at(26, 22, month=10), at(27, 5, month=10), id="summer ends: a day of 25 h"
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", at(30, 23, month=3), at(31, 1, month=3), id="2:30 is left out: at three"
        ),
        pytest.param(
            "30 2 * * *", "Europe/Berlin", at(27, 0, 45, month=10), at(28, 1, 30, month=10), id="2:30 twice: no second"
        ),
        pytest.param("0 6 * * *", "+08:00", at(24, 16), at(24, 22), id="whole hours"),
    ],
)
def test_a_partition_is_expected_at_the_first_tick_at_or_after_its_end(cron, zone, end, since):
    cadence = Cadence(cron, HOUR, zone)
    known = Expected(at(1, month=1), at(1, month=1), 0)
    assert expected_since(cadence, known, end) == since
    assert due_upto(cadence, known, since + HOUR - TINY) < end
    assert due_upto(cadence, known, since + HOUR) >= end


def test_a_tolerance_may_be_longer_than_the_interval_and_may_be_nothing():
    known = Expected(at(1), at(1), 0)
    assert due_upto(Cadence("0 * * * *", 30 * HOUR), known, at(25, 12)) == at(24, 6)
    assert due_upto(Cadence("0 * * * *", timedelta()), known, at(25, 12)) == at(25, 12)


def test_a_clock_set_back_expects_no_partition_twice():
    known = Expected(at(20), at(25), 0)
    assert due_upto(SIX, known, at(22)) == at(25)


BERLIN = ZoneInfo("Europe/Berlin")
DAYS_OF_BERLIN = [datetime(2019, 1, 1, tzinfo=BERLIN) + number * DAY for number in range(401)]
DAYS = [at(1, month=1) + number * DAY for number in range(401)]
HOURS = [at(1, month=1) + number * HOUR for number in range(401)]


@each_case(
    ("cron", "ends", "is_about_events"),
    [
        ("0 6 * * *", DAYS, False),
        ("0 0 * * *", DAYS, False),
        ("0 6 * * 1-5", DAYS, False),
        ("0 6 1 * *", DAYS, False),
        ("0 * * * *", DAYS, True),
        ("0 6,18 * * *", DAYS, True),
        ("0 6,18 * * 1-5", DAYS, True),
        ("0 * * * *", HOURS, False),
        ("5 * * * *", HOURS, False),
        ("*/30 * * * *", HOURS, True),
        ("0 6 * * *", HOURS, False),
        ("0 6 * * *", [each.astimezone(UTC) for each in DAYS_OF_BERLIN], False),
        ("30 22 * * *", [each.astimezone(UTC) for each in DAYS_OF_BERLIN], False),
        ("0 22,23 * * *", [each.astimezone(UTC) for each in DAYS_OF_BERLIN], True),
        (None, HOURS, False),
    ],
)
def test_a_cron_finer_than_the_partitions_expects_events(cron, ends, is_about_events):
    assert is_finer(Cadence(cron), ends) is is_about_events


def heard(*days: tuple[int, datetime]) -> Expected:
    found = begin(NO_HOLES, at(10), 0)
    for number, when in days:
        found = has_come(found, *day(number), when)
    return found


@each_case(
    ("came", "now", "upto"),
    [
        pytest.param([], at(25), at(10), id="nothing has come: nothing is expected"),
        pytest.param([(12, at(13))], at(25), at(12), id="the first one: a history begins where it likes"),
        pytest.param([(9, at(13))], at(25), at(10), id="one that ended before the declaration is no beginning"),
        pytest.param([(12, at(13)), (15, at(16))], at(16, 1) - TINY, at(12), id="a later one, within the tolerance"),
        pytest.param([(12, at(13)), (15, at(16))], at(16, 1), at(15), id="its tolerance is over"),
        pytest.param([(12, at(13)), (15, at(16)), (13, at(17))], at(18), at(15), id="what comes late expects no more"),
        pytest.param([(12, at(13)), (14, at(16)), (15, at(16, 2))], at(16, 2), at(14), id="each by its own tolerance"),
    ],
)
def test_without_a_cron_partitions_before_an_arrived_one_are_expected(came, now, upto):
    assert due_upto(NO_HOLES, heard(*came), now) == upto


def test_without_a_cron_a_partition_is_expected_since_the_first_later_one_came():
    known = heard((12, at(13)), (14, at(16)), (15, at(16, 2)))
    assert [expected_since(NO_HOLES, known, day(number)[1]) for number in (13, 14)] == [at(16), at(16, 2)]


def test_without_its_cron_a_partition_is_expected_since_its_end():
    assert expected_since(NO_HOLES, begin(SIX, at(10), 0), at(5)) == at(5)


def test_checked_arrivals_are_forgotten_except_the_last():
    known = heard((12, at(13)), (14, at(16)), (15, at(16, 2)))
    assert looked(known, at(12), 9, {}).came == ((at(14), at(16)), (at(15), at(16, 2)))
    assert looked(known, at(15), 9, {}).came == ((at(15), at(16, 2)),)


def test_of_too_many_arrivals_the_last_one_is_kept():
    known = heard(*((number, at(13) + number * TINY) for number in range(11, 30)))
    known = replace(known, came=tuple((at(1) + number * TINY, at(1)) for number in range(64)))
    found = has_come(known, at(29), at(30), at(30))
    assert (len(found.came), found.came[-1]) == (64, (at(29), at(30)))


def missing(*days: int) -> Expected:
    return Expected(at(1), at(30), 0, {f"2019-11-{number:02}": at(number + 1, 6) for number in days})


def test_the_alert_names_the_first_partitions_says_how_many_more_are_missing_and_reports_have_its_words():
    assert not_there("web/raw/v1.0", missing(2), is_all=True) == (
        "1 partition of web/raw/v1.0 is not there: 2019-11-02 (expected since 2019-11-03 06:00 UTC). Ask its owner. If "
        "one will never come, say so: `feed-assets state close web/raw/v1.0 2019-11-02 --why …`."
    )
    spaced = replace(missing(2), missing={"2 Nov": at(3, 6)})
    assert "state close web/raw/v1.0 '2 Nov' --why" in not_there("web/raw/v1.0", spaced, is_all=True)
    many = not_there("web/raw/v1.0", missing(*range(9, 0, -1)), is_all=True)
    assert many.startswith(
        "9 partitions of web/raw/v1.0 are not there: 2019-11-01 (expected since 2019-11-02 06:00 UTC), "
    )
    assert "2019-11-05 (expected since 2019-11-06 06:00 UTC) and 4 more. Ask its owner." in many
    assert "2019-11-06" not in many.replace("2019-11-06 06:00", "")
    assert not_there("web/raw/v1.0", missing(*range(1, 29)), is_all=False).startswith("28 or more partitions of ")
    assert late_of(missing(2, 3), ["2019-11-03", "2019-11-04"]) == {
        "2019-11-03": "expected since 2019-11-04 06:00 UTC, and late"
    }
