"""Checks of pushed events: a partner learns at once of all that a run would reject."""

from datetime import datetime

import pytest

from feed_assets.core.errors import InvalidEvent
from feed_assets.intake.pushed import seconds_of
from feed_assets_tests.intake.event_types import LATEST, TYPES
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.receivers import NOW, pushed

FEED = pushed(schema=TYPES)
AT = {"at": "2026-01-02T11:29:59.999999Z"}


def window(event: object, feed=FEED) -> int:
    return feed.window(event, LATEST)


@each_case(
    "fields",
    [
        {"id": ""},
        {"id": None, "n": None},
        {"n": 2**31 - 1, "b": -128, "big": -(2**63)},
        {"n": 7.0},
        {"x": 1, "d": 1},
        {"x": 1e300, "d": 1.5, "f": -3.4e38},
        {"x": 10**300, "f": 1},
        {"d": "1.50"},
        {"ok": True},
        {"day": "2024-02-29"},
        {"l": "2026-01-02 11:00:00"},
    ],
)
def test_events_that_match_the_schema_are_accepted(fields):
    assert window({**AT, **fields}) == 1767352500


@each_case(
    ("fields", "said"),
    [
        ({"id": 1}, "id: not a string"),
        ({"n": 2**31}, "n: not an int"),
        ({"n": 7.5}, "n: not an int"),
        ({"n": True}, "n: not an int"),
        ({"n": "7"}, "n: not an int"),
        ({"b": 128}, "b: not a tinyint"),
        ({"x": "1"}, "x: not a double"),
        ({"x": 10**400}, "x: not a double"),
        ({"f": 3.5e38}, "f: not a float"),
        ({"f": "1"}, "f: not a float"),
        ({"d": "1e3"}, "d: not a decimal"),
        ({"ok": 1}, "ok: not a boolean"),
        ({"day": "2023-02-29"}, "day: not a date"),
        ({"day": "2023-2-9"}, "day: not a date"),
        ({"l": "2026-01-02T11:00:00Z"}, "l: not a timestamp_ntz"),
        ({"other": 1, "id": 2}, "unknown fields: other; id: not a string"),
        ({"ID": "1"}, "unknown fields: ID"),
        ({"at": None}, "at: missing"),
        ({"at": "2026-01-02"}, "at: not a timestamp"),
        ({"at": 1767352500}, "at: not a timestamp"),
    ],
)
def test_events_that_violate_the_schema_are_rejected_with_the_reason(fields, said):
    with pytest.raises(InvalidEvent, match=said):
        window({**AT, **fields})


@each_case("value", [None, 1, "x", [], True])
def test_an_event_is_an_object(value):
    with pytest.raises(InvalidEvent, match="malformed: expected one JSON object"):
        window(value)


@each_case(
    ("text", "expected"),
    [
        ("2026-01-02T11:00:00Z", "2026-01-02T11:00:00+00:00"),
        ("2026-01-02 11:00:00", "2026-01-02T11:00:00+00:00"),
        ("2026-01-02T11:00:00.5+05:30", "2026-01-02T05:30:00+00:00"),
        ("2026-01-02T11:00:00-0800", "2026-01-02T19:00:00+00:00"),
        ("2026-01-02T11:00:00+01", "2026-01-02T10:00:00+00:00"),
        ("2026-01-02T11:00:00+18:00", "2026-01-01T17:00:00+00:00"),
        ("2026-01-02T11:00:00+18:01", None),
        ("2026-01-02T11:00:00+19", None),
        ("2026-01-02T11:00:00.1234567Z", None),
        ("2026-01-02T24:00:00Z", None),
        ("2026-02-30T11:00:00Z", None),
        ("2026-01-02T11:00Z", None),
        ("2026-01-02T11:00:00 UTC", None),
        ("2026-01-02T11:00:00Z\n", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("٢٠٢٦-01-02T11:00:00Z", None),
    ],
)
def test_timestamps_are_read_as_a_run_reads_them(text, expected):
    assert seconds_of(text) == (expected and datetime.fromisoformat(expected).timestamp())


def test_an_event_is_counted_by_quarters_of_hours_or_by_the_feed_s_own_windows():
    event = {"at": "2026-01-02T11:29:59Z"}
    assert window(event) % 900 == 0
    assert window(event, pushed(grain="5min")) - window(event) == 600


@each_case(
    ("at", "said"),
    [
        ("2025-12-31T23:59:59Z", "before the feed's first partition, 2026-01-01T00:00Z"),
        ("1970-01-01T00:00:00Z", "before the feed's first partition"),
        ("2026-01-03T12:30:01Z", r"ahead of 2026-01-03T12:30:00Z.*FEED_ASSETS_EVENT_HOURS_AHEAD"),
        ("9999-12-31T23:59:59Z", "is ahead of 2026-01-03"),
    ],
)
def test_ancient_and_future_events_are_rejected(at, said):
    with pytest.raises(InvalidEvent, match=said):
        window({"at": at})


def test_any_event_with_a_partition_is_accepted_however_late():
    assert FEED.key(int(NOW.timestamp())) == "2026-01-02-12:00"
    assert window({"at": "2026-01-01T00:00:00Z"}) == 1767225600
    assert window({"at": "2026-01-03T12:30:00Z"}) > 0
