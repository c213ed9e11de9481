"""Markers that sort as text, the order of one table's events, correlation ids."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.errors import EventOutOfOrder, InvalidEvent
from feed_assets.core.events import (
    WriteEvent,
    check_ahead,
    check_kind,
    check_order,
    decode,
    encode,
    foreign_correlation,
    in_words,
    joined_correlation,
    parse_marker,
)
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets_tests.support.each_case import each_case

MOMENT = datetime(2024, 1, 1, 6, tzinfo=UTC)
moments = st.datetimes(timezones=st.just(UTC))
versions = st.integers(0, 10**20 - 1)
offsets = st.timedeltas(timedelta(hours=-23, minutes=-59), timedelta(hours=23, minutes=59)).map(timezone)
zones = offsets | st.sampled_from(["Europe/Dublin", "Pacific/Apia", "America/Toronto"]).map(ZoneInfo)


@given(st.one_of(st.tuples(moments, moments), st.tuples(versions, versions)))
def test_encoded_markers_sort_as_markers_do(pair):
    one, other = pair
    assert (encode(one) < encode(other)) == (one < other)
    assert decode(encode(one)) == one


@given(st.datetimes(timezones=zones) | st.datetimes(allow_imaginary=False) | st.integers(-(10**21), 10**21))
def test_encoded_markers_are_read_back_and_others_are_refused(marker):
    """Include both ends of the calendar, which a zone can leave."""
    try:
        text = encode(marker)
    except InvalidEvent:
        return
    assert decode(text) == (marker if isinstance(marker, int) else marker.astimezone(UTC))
    assert encode(decode(text)) == text


@each_case("moment", ["0001-01-01T00:00:00Z", "0999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"])
def test_years_have_four_digits(moment):
    """Accept the zero time of Go and .NET; Linux writes its year without leading zeros."""
    assert encode(parse_marker(moment))[:4] == moment[:4]
    assert in_words(encode(parse_marker(moment))) == moment


@each_case("moment", ["0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00"])
def test_a_time_outside_of_the_utc_calendar_is_refused(moment):
    with pytest.raises(InvalidEvent, match="in UTC it is before the year 1 or after 9999"):
        encode(parse_marker(moment))


@each_case(("text", "year"), [("10101.000000", 1), ("9991231.235959.000001", 999)])
def test_the_short_years_of_older_ledgers_are_read(text, year):
    assert decode(text).year == year


def test_the_marker_of_a_whole_second_is_an_update_id():
    assert encode(MOMENT) == update_id(MOMENT) == "20240101.060000"


def test_a_marker_is_the_same_in_every_zone_even_in_a_repeated_hour():
    assert encode(MOMENT.astimezone(timezone(timedelta(hours=9)))) == encode(MOMENT)
    twice = datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"))
    texts = [encode(twice), encode(twice.replace(fold=1))]
    assert texts == ["20241103.053000", "20241103.063000"]


@each_case("bad", [-1, 10**20, datetime(2024, 1, 1)])  # noqa: DTZ001
def test_invalid_markers_are_refused(bad):
    with pytest.raises(InvalidEvent, match="expected"):
        encode(bad)


@each_case(
    "text",
    [
        "",
        "1",
        "20240101.060000.1",
        "20240231.000000",
        "٣" * 20,
        "20240101.060000x123456",
        "20240101.060000.٣٣٣٣٣٣",
        "1.000000",
    ],
)
def test_invalid_encoded_markers_are_refused(text):
    with pytest.raises(InvalidEvent, match="is not a marker"):
        decode(text)


@each_case(
    ("text", "marker"),
    [
        ("42", 42),
        (" 2024-01-01T06:00:00Z ", MOMENT),
        ("2024-01-01 06:00:00", MOMENT),
        ("2024-01-01T08:00:00+02:00", MOMENT),
        ("20240101.060000", MOMENT),
        (encode(42), 42),
        (encode(MOMENT + timedelta(microseconds=1)), MOMENT + timedelta(microseconds=1)),
    ],
)
def test_markers_are_parsed_in_the_forms_that_people_write(text, marker):
    assert parse_marker(text) == marker


@each_case("text", ["yesterday", "", "1.5", "-3", "1_0"])
def test_a_typed_text_that_is_no_marker_is_refused_with_the_expected_forms(text):
    with pytest.raises(InvalidEvent, match="is not a marker: expected a whole number, or a moment"):
        parse_marker(text)


def test_markers_are_printed_in_readable_form():
    assert [in_words(each) for each in (None, encode(7), encode(MOMENT))] == [
        "the beginning",
        "7",
        "2024-01-01T06:00:00Z",
    ]


def event(marker, **options):
    return WriteEvent("shop/orders", marker, MOMENT, options.pop("correlation", "X"), **options)


def test_a_marker_must_come_after_the_last_one():
    check_order(event(8), encode(7))
    check_order(event(7), None)
    with pytest.raises(EventOutOfOrder, match="marker 7 is not after 7"):
        check_order(event(7), encode(7))
    with pytest.raises(EventOutOfOrder, match="marker 6 is not after 7"):
        check_order(event(6), encode(7))


def test_only_an_event_without_new_data_repeats_the_last_marker():
    check_order(event(7, context={"no_new_data": True}), encode(7))
    with pytest.raises(EventOutOfOrder):
        check_order(event(6, context={"no_new_data": True}), encode(7))


@each_case(("updated_at", "good"), [((8, 9), True), ((8, 10), False), ((7, 9), False), ((9, 8), False)])
def test_a_marker_covers_every_row_of_its_event_and_none_of_the_one_before(updated_at, good):
    if good:
        check_order(event(9), encode(7), updated_at)
        return
    with pytest.raises(InvalidEvent, match="updated_at are"):
        check_order(event(9), encode(7), updated_at)


def test_a_table_has_markers_of_one_kind():
    with pytest.raises(InvalidEvent, match="is of another kind than the markers of shop/orders: expected a whole"):
        check_kind(event(MOMENT), moments=False)
    with pytest.raises(InvalidEvent, match="expected a moment, like its first marker"):
        check_kind(event(7), moments=True)
    check_kind(event(7), moments=False)


@each_case("field", ["marker", "event_marker"])
def test_a_moment_far_ahead_of_now_is_refused_and_a_version_is_never_ahead(field):
    now, ahead = MOMENT, timedelta(hours=24)
    check_ahead(replace(event(1), **{field: now + ahead}), now, ahead)
    check_ahead(replace(event(1), **{field: 10**19}), now, ahead)
    for moment in (now + ahead + timedelta(microseconds=1), datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(InvalidEvent, match="is more than 1 day, 0:00:00 ahead of now, 2024-01-01 06:00 UTC"):
            check_ahead(replace(event(1), **{field: moment}), now, ahead)


def test_an_event_needs_a_correlation_id():
    with pytest.raises(InvalidEvent, match="needs a correlation_id"):
        check_order(event(1, correlation=""), None)


def test_a_foreign_update_has_the_same_id_wherever_it_is_made():
    partition = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24")
    assert foreign_correlation(partition, "20191125.060000") == "645f5421-86a6-569c-9daa-9151fa80f6ab"
    assert foreign_correlation(partition, "20191125.060000") != foreign_correlation(partition, "20191125.060001")


def test_one_correlation_id_is_passed_on_and_several_make_a_new_one_with_parents():
    assert joined_correlation(["X", "X"]) == ("X", ())
    joined, parents = joined_correlation(["Y", "X"])
    assert joined not in ("X", "Y")
    assert parents == ("X", "Y")
    assert joined_correlation(["X", "Y", "Y"]) == (joined, parents)
