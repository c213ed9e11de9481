"""Nested sub-partitions, each with its own midnight; joining or leaving does not change the past."""

from datetime import UTC, date, datetime

import pytest

from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.sub_partitions import Life, Member, Regions, SubPartitions, Tracked, dated, mapping_of, text_of
from feed_assets.core.windows import window_at

DAY = "2026-01-01"
COUNTRIES = SubPartitions("country", {"in": None, "np": "Asia/Kathmandu"})
NESTED = Regions({"apac": Member("Asia/Kolkata", below=COUNTRIES), "emea": "UTC"})


def tracked(regions=None):
    return Tracked.of(Completeness(), regions or Regions())


def on(new, known, today):
    """Return a declaration with the dates that it gets on a day."""
    return dated(new, known, (), lambda _path, _life: today)


def test_the_regions_of_the_article_are_the_default():
    zones = {path: life.zone for path, life in tracked().members.items()}
    assert zones == {
        "region=utc+8": "Etc/GMT-8",
        "region=utc+5": "Etc/GMT-5",
        "region=utc": "UTC",
        "region=utc-8": "Etc/GMT+8",
    }


def test_a_batch_date_goes_from_the_first_midnight_to_the_last():
    whole = tracked().window("", "day", DAY)
    assert (whole.start, whole.end) == (datetime(2025, 12, 31, 16, tzinfo=UTC), datetime(2026, 1, 2, 8, tzinfo=UTC))


def test_a_zone_is_that_of_the_level_above():
    known = tracked(NESTED)
    assert known.zone_of("region=apac/country=in") == "Asia/Kolkata"
    assert known.zone_of("region=apac/country=np") == "Asia/Kathmandu"
    assert known.children("", window_at("day", DAY)) == ("region=apac", "region=emea")
    assert known.children("region=apac", window_at("day", DAY)) == ("region=apac/country=in", "region=apac/country=np")


def test_counts_are_reported_for_leaves():
    known = tracked(NESTED)
    window = window_at("day", DAY)
    known.check("region=apac/country=in", window)
    for wrong in ("", "region=apac", "region=latam"):
        with pytest.raises(InvalidName, match="expected one of region=apac/country=in"):
            known.check(wrong, window)


def test_a_new_region_is_expected_from_its_first_day():
    before = tracked(Regions({"emea": "UTC"}))
    after = on(tracked(Regions({"emea": "UTC", "latam": "UTC"})), before, date(2026, 3, 1))
    assert after.members == {"region=emea": Life("UTC"), "region=latam": Life("UTC", date(2026, 3, 1))}
    assert after.children("", window_at("day", "2026-02-28")) == ("region=emea",)
    assert after.children("", window_at("day", "2026-03-01")) == ("region=emea", "region=latam")
    assert on(tracked(Regions({"emea": "UTC", "latam": "UTC"})), after, date(2026, 4, 1)) == after


def test_a_removed_region_stays_in_the_past():
    before = tracked(Regions({"emea": "UTC", "latam": "UTC"}))
    after = on(tracked(Regions({"emea": "UTC"})), before, date(2026, 3, 1))
    assert after.members["region=latam"] == Life("UTC", None, date(2026, 3, 1))
    assert on(tracked(Regions({"emea": "UTC"})), after, date(2026, 5, 1)) == after


def test_a_returning_region_is_expected_from_that_day():
    retired = tracked(Regions({"emea": "UTC", "latam": Member("UTC", until=date(2026, 3, 1))}))
    again = on(tracked(Regions({"emea": "UTC", "latam": "UTC"})), retired, date(2026, 5, 1))
    assert again.members["region=latam"] == Life("UTC", date(2026, 5, 1), None, ((None, date(2026, 3, 1)),))
    days = {day: again.children("", window_at("day", day)) for day in ("2026-02-28", "2026-03-01", "2026-05-01")}
    assert [len(each) for each in days.values()] == [2, 1, 2]


def test_a_region_removed_and_added_on_one_day_was_never_away():
    """Test two versions of a project that run side by side for a while."""
    both, one, day = Regions({"emea": "UTC", "latam": "UTC"}), Regions({"emea": "UTC"}), date(2026, 3, 1)
    known = tracked(both)
    for _ in range(3):
        known = on(tracked(one), known, day)
        known = on(tracked(both), known, day)
    assert known == tracked(both)


def test_a_region_that_gets_countries_keeps_its_earlier_counts():
    """Give countries to a region that had none: they are expected from now on, and its past is judged as before."""
    before, nested = (
        tracked(Regions({"apac": "UTC"})),
        Regions({"apac": Member("UTC", below=SubPartitions("c", {"sg": None}))}),
    )
    known = on(tracked(nested), before, date(2026, 3, 1))
    assert known.is_leaf("region=apac", window_at("day", "2026-02-28"))
    assert known.children("region=apac", window_at("day", "2026-03-01")) == ("region=apac/c=sg",)
    known.check("region=apac", window_at("day", "2026-02-28"))


def test_a_region_is_not_expected_on_a_date_that_its_zone_skipped():
    known = tracked(Regions({"apia": "Pacific/Apia", "utc": "UTC"}))
    assert known.children("", window_at("day", "2011-12-30")) == ("region=utc",)
    assert known.window("", "day", "2011-12-30") == window_at("day", "2011-12-30")


def test_dates_that_are_declared_are_kept():
    declared = Regions({"emea": "UTC", "latam": Member("UTC", since=date(2026, 2, 1))})
    found = on(tracked(declared), tracked(Regions({"emea": "UTC"})), date(2026, 3, 1))
    assert found.members["region=latam"] == Life("UTC", date(2026, 2, 1))


def test_an_hour_belongs_to_the_batch_date_of_its_region():
    known = tracked(Regions({"apac": Member("Asia/Singapore", since=date(2026, 1, 2)), "emea": "UTC"}))
    assert known.children("", window_at("hour", "2026-01-01-15:00")) == ("region=emea",)
    assert known.children("", window_at("hour", "2026-01-01-16:00")) == ("region=apac", "region=emea")


def test_a_region_whose_days_begin_between_two_windows_is_refused():
    with pytest.raises(InvalidDefinition, match="Asia/Kathmandu"):
        Tracked.of(Completeness(grains=("10min", "day")), Regions({"np": "Asia/Kathmandu"}))


def test_sub_partitions_are_written_and_parsed_as_paths():
    assert text_of({"country": "sg", "region": "apac"}, ("region", "country")) == "region=apac/country=sg"
    assert mapping_of("region=apac/country=sg") == {"region": "apac", "country": "sg"}
    assert mapping_of("") == {}
    for wrong in ({"a/b": "c"}, {"a": "b/c"}, {"a=b": "c"}, {"": "c"}):
        with pytest.raises(InvalidName):
            text_of(wrong)


def test_invalid_levels_of_sub_partitions_are_refused():
    with pytest.raises(InvalidDefinition, match="at least one"):
        SubPartitions("country", {})
    with pytest.raises(InvalidName):
        SubPartitions("country", {"a/b": None})
    deep = SubPartitions("a", {"x": None})
    for name in "bcdefgh":
        deep = SubPartitions(name, {"x": None}, below=deep)
    with pytest.raises(InvalidDefinition, match="levels"):
        Tracked.of(Completeness(), deep)
