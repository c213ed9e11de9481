"""Every instant lies in exactly one window of each grain, for any clock changes of the zone."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from feed_assets.core.completeness import GRAINS
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.windows import check_grains, children, minutes_of, parents, tiles, window_at, window_of, zone_of
from feed_assets_tests.support.each_case import each_case

MICROSECOND, HOUR = timedelta(microseconds=1), timedelta(hours=1)
REGIONS = ("Asia/Singapore", "Asia/Kolkata", "UTC", "America/Los_Angeles", "Europe/Berlin")
ODD = ("Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo", "America/Havana", "Africa/Casablanca")
YEAR = [date(2026, 1, 1) + timedelta(days=each) for each in range(400)]


@each_case("zone", REGIONS)
def test_each_instant_is_in_one_window(zone):
    """Test 576,000 windows: 400 days of five regions, each at its first and last microsecond."""
    at = window_at("day", YEAR[0].isoformat(), zone).start
    for day in YEAR:
        whole = window_at("day", day.isoformat(), zone)
        assert whole.start == at
        for window in tiles(whole.start, whole.end, ("5min",), zone):
            assert window.start == at
            at = window.end
            assert window_of("5min", window.start, zone) == window_of("5min", at - MICROSECOND, zone) == window
        assert whole.end == at


def test_the_control_with_days_of_24_hours_is_caught():
    """Days of 24 hours differ from local days after the first clock change."""
    for zone in ("America/Los_Angeles", "Europe/Berlin"):
        first = window_at("day", YEAR[0].isoformat(), zone).start
        wrong = [day for at, day in enumerate(YEAR) if window_at("day", f"{day}", zone).start != first + at * 24 * HOUR]
        assert wrong[0].month == 3


@each_case("zone", [*REGIONS, *ODD])
def test_day_windows_follow_the_local_clock(zone):
    """Walk in steps of 15 minutes, on whose grid all these clocks change."""
    at = datetime(2017, 12, 30, tzinfo=UTC)  # Sao Paulo still left out its midnights.
    days: dict[str, list[datetime]] = {}
    for step in range(4 * 24 * 430):
        moment = at + timedelta(minutes=15 * step)
        days.setdefault(window_of("day", moment, zone).key, []).append(moment)
    for key, moments in [*days.items()][1:-1]:
        window = window_at("day", key, zone)
        assert (moments[0], moments[-1] + timedelta(minutes=15)) == (window.start, window.end)
        local = {moment.astimezone(ZoneInfo(zone)).date().isoformat() for moment in moments}
        assert local == {key}


def test_hours_of_a_day_with_a_clock_change():
    lengths = {
        key: len(children(window_at("day", key, "Europe/Berlin"), GRAINS))
        for key in ("2026-03-28", "2026-03-29", "2026-10-25")
    }
    assert lengths == {"2026-03-28": 24, "2026-03-29": 23, "2026-10-25": 25}


@each_case(
    ("zone", "grain", "count"),
    [
        ("Asia/Singapore", "hour", 24),
        ("Asia/Kolkata", "10min", 144),
        ("Asia/Kathmandu", "5min", 288),
        ("Australia/Lord_Howe", "hour", 24),
    ],
)
def test_children_are_of_the_largest_grain_that_tiles(zone, grain, count):
    found = children(window_at("day", "2026-01-15", zone), GRAINS)
    assert ({each.grain for each in found}, len(found)) == ({grain}, count)


def test_a_day_on_which_clocks_change_by_half_an_hour_is_made_of_smaller_ones():
    found = children(window_at("day", "2026-04-05", "Australia/Lord_Howe"), GRAINS)
    assert ({each.grain for each in found}, len(found)) == ({"10min"}, 147)


@each_case("zone", [*REGIONS, *ODD])
def test_parents_and_children_agree(zone):
    for day in (date(2026, 3, 29), date(2026, 7, 1), date(2026, 10, 25)):
        whole = window_at("day", day.isoformat(), zone)
        below = [whole]
        while below:
            for window in below:
                assert all(window in parents(each, GRAINS, zone) for each in children(window, GRAINS))
            below = [each for window in below for each in children(window, GRAINS)]


def test_a_day_that_a_zone_skipped_is_refused():
    with pytest.raises(InvalidName, match="2011-12-30"):
        window_at("day", "2011-12-30", "Pacific/Apia")
    before, after = (window_at("day", key, "Pacific/Apia") for key in ("2011-12-29", "2011-12-31"))
    assert before.end == after.start


def test_a_leap_second_is_in_the_minute_before():
    """Use no leap seconds, as Python's clocks have none: midnight follows the last microsecond."""
    last = datetime(2016, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert window_of("5min", last).key == "2016-12-31-23:55"
    assert window_of("5min", last + MICROSECOND).key == "2017-01-01-00:00"


@each_case(
    ("text", "zone"),
    [
        ("+08:00", "Etc/GMT-8"),
        ("UTC+8", "Etc/GMT-8"),
        ("-8", "Etc/GMT+8"),
        ("UTC-08:00", "Etc/GMT+8"),
        ("+00:00", "UTC"),
        ("Asia/Kolkata", "Asia/Kolkata"),
    ],
)
def test_zone_names_and_offsets_are_normalized_to_iana_names(text, zone):
    assert zone_of(text) == zone
    ZoneInfo(zone)


@each_case("text", ["+05:30", "+15", "-13", "Mars/Base", "", "../etc/passwd", "8"])
def test_invalid_zones_are_refused(text):
    with pytest.raises(InvalidDefinition, match="expected an IANA name"):
        zone_of(text)


@each_case("grain", ["7min", "60min", "0min", "05min", "90min", "hours", "1h", ""])
def test_invalid_grains_are_refused(grain):
    with pytest.raises(InvalidDefinition, match="minutes that divide an hour"):
        minutes_of(grain)


def test_grains_have_to_fit_in_each_other():
    assert check_grains(["day", "5min", "hour", "5min"], ["UTC"]) == ("5min", "hour", "day")
    with pytest.raises(InvalidDefinition, match="'15min' is not made of '10min'"):
        check_grains(["10min", "15min"], ["UTC"])
    with pytest.raises(InvalidDefinition, match="Asia/Kathmandu begin at 18:15 UTC"):
        check_grains(["10min", "day"], ["Asia/Kathmandu"])


@each_case("key", ["2026-01-01-15:03", "2026-01-01", "2026-1-1-15:00", "2026-01-01-24:00", "x", ""])
def test_invalid_window_keys_are_refused(key):
    with pytest.raises(InvalidName, match="is not a window of the grain 5min"):
        window_at("5min", key)


def test_a_span_is_tiled_by_the_largest_grain_that_fits():
    start = datetime(2026, 1, 1, 15, tzinfo=UTC)
    assert [each.key for each in tiles(start, start + timedelta(hours=2), GRAINS)] == [
        "2026-01-01-15:00",
        "2026-01-01-16:00",
    ]
    assert [each.grain for each in tiles(start, start + timedelta(minutes=10), GRAINS)] == ["10min"]
    assert tiles(start, start + timedelta(minutes=7), GRAINS) == ()
