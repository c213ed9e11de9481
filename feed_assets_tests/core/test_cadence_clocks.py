"""Ticks of a cron at clock changes of any size: none is skipped, none is invented. The oracle checks each minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim

from feed_assets.core.cadence import tick_after, tick_upto
from feed_assets_tests.support.each_case import each_case

MINUTE = timedelta(minutes=1)
CHANGES = [
    ("Australia/Lord_Howe", "2025-04-05"),
    ("Australia/Lord_Howe", "2025-10-04"),
    ("Antarctica/Troll", "2025-10-26"),
    ("Antarctica/Troll", "2025-03-30"),
    ("Atlantic/Azores", "2025-10-26"),
    ("America/Havana", "2026-03-08"),
    ("America/St_Johns", "2010-11-07"),
    ("Asia/Pyongyang", "2015-08-14"),
    ("Asia/Pyongyang", "2018-05-04"),
    ("Europe/Berlin", "2025-10-26"),
    ("Africa/Casablanca", "2026-03-22"),
]
OF_THE_CLOCK = [
    "0 * * * *",
    "15 * * * *",
    "*/30 * * * *",
    "*/15 2 * * *",
    "*/15 1-3 * * *",
    "0 */2 * * *",
    "*/20 0 * * *",
    "*/10 23 * * *",
    "30 */6 * * *",
    "*/15 2 * * 0",
]
AT_A_TIME = ["0 0 * * *", "15 2 * * *", "0,30 2 * * *", "30 1 * * *", "0 3 * * 0"]


def shown_at(cron: str, begin: datetime, end: datetime) -> set[datetime]:
    """Return the times of a cron on a clock without changes, with two more days on both sides."""
    ticks, found = CronSim(cron, begin.replace(tzinfo=None) - timedelta(days=2)), set[datetime]()
    while (tick := next(ticks)) < end.replace(tzinfo=None) + timedelta(days=2):
        found.add(tick)
    return found


def ticks_from(cron: str, zone: str, begin: datetime, end: datetime) -> list[datetime]:
    found, at = [], begin - MINUTE
    while (at := tick_after(cron, zone, at)) and at < end:
        found.append(at)
    return found


@each_case(("zone", "day"), CHANGES)
def test_a_cron_of_each_hour_or_minute_ticks_whenever_the_clock_shows_its_time(zone, day):
    for cron in OF_THE_CLOCK:
        ticks_as_shown(zone, day, cron)


def ticks_as_shown(zone: str, day: str, cron: str) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
    end, shown = begin + timedelta(days=3), shown_at(cron, begin, begin + timedelta(days=3))
    minutes = [begin + number * MINUTE for number in range((end - begin) // MINUTE)]
    expected = [each for each in minutes if each.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) in shown]
    assert shown
    assert ticks_from(cron, zone, begin, end) == expected
    assert [tick_upto(cron, zone, tick + MINUTE / 2) for tick in expected] == expected


@each_case(("zone", "day"), CHANGES)
def test_a_cron_at_a_time_ticks_once_for_each_time_that_it_names(zone, day):
    for cron in AT_A_TIME:
        ticks_once(zone, day, cron)


def ticks_once(zone: str, day: str, cron: str) -> None:
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=2)
    end, local = begin + timedelta(days=5), ZoneInfo(zone)
    # Equal times count as the first one; a skipped time counts as the moment of the clock change.
    expected = {moment(shown, local) for shown in shown_at(cron, begin, end)}
    assert ticks_from(cron, zone, begin, end) == sorted(each for each in expected if begin <= each < end)


def moment(shown: datetime, zone: ZoneInfo) -> datetime:
    while shown.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None, fold=0) != shown:
        shown += MINUTE
    return shown.replace(tzinfo=zone).astimezone(UTC)


def test_a_repeated_half_hour_skips_no_tick():
    """Test a time after half an hour that came twice: at Lord Howe on 2025-04-06, 1:30 to 2:00."""
    before = datetime(2025, 4, 5, 14, 45, tzinfo=UTC)
    assert tick_after("*/15 2 * * *", "Australia/Lord_Howe", before) == datetime(2025, 4, 5, 15, 30, tzinfo=UTC)
