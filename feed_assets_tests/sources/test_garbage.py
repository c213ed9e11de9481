"""Garbage in each field of each kind of event: it is a reject with its reason, and later events are read."""

import json
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from feed_assets.core.chunks import key_of
from feed_assets.core.errors import InvalidEvent, InvalidNotification
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.core.s3_events import parse_objects, partition_of
from feed_assets.kafka import avro, dialect, signal_message
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.messages import Message
from feed_assets.kafka.signal_message import Signal
from feed_assets.kafka.topic_reader import Placed
from feed_assets.ledger import event_store
from feed_assets.ledger.event_rejects import reject
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.signal_events import TopicSignals
from feed_assets.sources.text_rows import json_object
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2026, 2, 1, tzinfo=UTC)
PATH = f"s3://lake/chunks/{key_of('t', 0, 5, '.csv.gz')}"
GOOD = Signal("t", 0, 5, 14, 9, 1, dialect.NAME, PATH, 100, "a" * 64, 7, {"2026-01-31T15:59Z": 10}, "id")
SCHEMA = avro.parsed(json.dumps(signal_message.SCHEMA), {})


def read(*values):
    """Return the rows and the reports of the messages of a topic's signals."""
    source = TopicSignals(Clients({}), "signals of t", "t", ("ads/shown/v1.0", timedelta(hours=1)))
    placed = [Placed(0, Message(number, None, value)) for number, value in enumerate(values)]
    return [source._row(each) for each in placed], [*source._reports(placed)]


SIGNALS = {
    "minutes of words": ({"minutes": {"soon": 1}}, "minutes: found 'soon', expected a minute in UTC"),
    "minutes without a zone": ({"minutes": {"2026-01-31T15:59": 1}}, "minutes: found '2026-01-31T15:59'"),
    "minutes of another zone": ({"minutes": {"2026-01-31T15:59+01:00": 1}}, "minutes: found"),
    "minutes of no day": ({"minutes": {"2026-02-31T15:59Z": 1}}, "minutes: found '2026-02-31T15:59Z'"),
    "minutes of year 0": ({"minutes": {"0000-01-01T00:00Z": 1}}, "minutes: found"),
    "no minute": ({"minutes": {"": 1}}, "minutes: found ''"),
    "minutes below 0": ({"minutes": {"2026-01-31T15:59Z": -1}}, "below 0 in records, dead_letters or minutes"),
    "more minutes than offsets": ({"minutes": {"2026-01-31T15:59Z": 2**63 - 1}}, "expected at most one each"),
    "another topic": ({"topic": "u", "path": None, "records": 0}, "it is about u/0: expected t/0"),
    "another partition": ({"partition": 1, "path": None, "records": 0}, "it is about t/1: expected t/0"),
    "a partition below 0": ({"partition": -1, "path": None, "records": 0}, "it is about t/-1"),
    "offsets below 0": ({"first_offset": -1}, "its offsets are -1 to 14"),
    "offsets backwards": ({"last_offset": 4}, "its offsets are 5 to 4"),
    "the last offset of all": ({"last_offset": 2**63 - 1}, "its offsets are 5 to 9223372036854775807"),
    "records below 0": ({"records": -1}, "below 0"),
    "more records than offsets": ({"records": 10}, "records and dead_letters sum up to 11 messages at 10 offsets"),
    "dead letters below 0": ({"dead_letters": -1}, "below 0"),
    "a path elsewhere": (
        {"path": "file:///etc/passwd"},
        "path: found 'file:///etc/passwd', expected",
    ),
    "a path of a folder that ends alike": ({"path": PATH.replace("/chunks/", "/other-chunks/")}, "path: found"),
    "a path above": ({"path": PATH.replace("://", "://../")}, "path: found"),
    "a path of two lines": ({"path": PATH.replace("://", "://a\n")}, "path: found"),
    "a path of another topic": ({"path": PATH.replace("/t/", "/u/")}, "path: found"),
    "a path of another chunk": ({"path": PATH.replace("5.csv", "6.csv")}, "path: found"),
    "an empty path": ({"path": ""}, "path: found ''"),
    "no path": ({"path": None}, "path: found none, expected the path of a file with 9 records"),
    "a size below 0": ({"size": -1}, "size: found -1"),
    "no digest": ({"sha256": None}, "sha256: found None"),
    "a digest of words": ({"sha256": "x\0" * 32}, "sha256: found"),
    "a topic id that nobody can write": ({"topic_id": "a\nb"}, "printable characters"),
    "a long topic id": ({"topic_id": "x" * 10_000}, "correlation_id .* has"),
    "a dialect with NUL": ({"dialect": "a\0b"}, "NUL"),
}


def test_signals_of_a_topic_whose_name_is_no_table_are_rejects_and_report_nothing():
    path = f"s3://lake/chunks/{key_of('_x', 0, 5, '.csv.gz')}"
    source = TopicSignals(Clients({}), "signals of _x", "_x", ("ads/shown/v1.0", timedelta(hours=1)))
    placed = [Placed(0, Message(0, None, replace(GOOD, topic="_x", path=path).encoded(1)))]
    assert isinstance(source._row(placed[0]), Rejected)
    assert [*source._reports(placed)] == []


@each_case("name", SIGNALS)
def test_a_malformed_signal_is_a_reject_with_its_reason_and_the_source_goes_on(name):
    fields, reason = SIGNALS[name]
    bad = avro.encoded({**asdict(GOOD), **fields}, SCHEMA, 1)
    (rejected, event), reports = read(bad, GOOD.encoded(1))
    assert isinstance(rejected, Rejected)
    with pytest.raises(ValueError, match=f"^signals of t/0 offset 0: .*{reason}"):
        raise ValueError(rejected.reason)
    assert isinstance(event, WriteEvent)
    assert len(reports) == 1


@each_case("value", [None, b"", b"\0" * 5, b"\xff" * 100, GOOD.encoded(1)[:-1], GOOD.encoded(1) + b"x", b"{}"])
def test_bytes_that_are_no_signal_are_a_reject(value):
    (rejected, event), reports = read(value, GOOD.encoded(1))
    assert isinstance(rejected, Rejected)
    assert isinstance(event, WriteEvent)
    assert len(reports) == 1


def test_a_signal_is_read_as_it_was_written():
    quiet = Signal("t", 0, 15, 15, 0, 1, dialect.NAME, None, 0, None, None, {"1970-01-01T00:00Z": 1})
    for signal in (GOOD, quiet):
        assert Signal.of(signal.encoded(1)) == signal
    with pytest.raises(InvalidEvent):
        Signal.of(b"")


COLUMNS = ("table_name", "marker", "event_marker", "correlation_id", "write_operation", "partition_key", "context")
VALUES = [
    None, "", "\0", "\ud800", "a\nb", "x" * 100_000, "../..", "//", "/a", "a/..", "null", "{}{}", "[" * 100_000,
    '{"a":' * 5_000, '{"a":NaN}', '{"a":"\\u0000"}', '{"no_new_data":5}', "2026-13-45", "0000-00-00", "9" * 30,
    "2026-01-01T00:00:00+99:99", 0, -1, True, 1.5, float("nan"), float("inf"), 2**63, 10**5000, Decimal("NaN"),
    Decimal("sNaN"), Decimal("Infinity"), Decimal("1E+100000"), b"\xff", bytearray(b"x"), memoryview(b"x"), UUID(int=1),
    timedelta(1), time(1), date.min, date.max, datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), [], [1], {"a": {1, 2}}, {1: 2}, {"a": float("nan")},
    {"a": "\ud800"}, object(),
]  # fmt: skip


def row(number, **more):
    good = {"table_name": "t", "marker": number, "event_marker": number, "correlation_id": f"c{number}"}
    return {**good, "write_operation": "INSERT", "partition_key": "", "context": "{}", **more}


def test_garbage_in_a_column_of_a_database_or_a_file_is_an_event_or_a_reject(ledger):
    columns = Columns(others_in_context=True)
    garbage = [row(1, **{name: value}) for name in (*COLUMNS, "another") for value in VALUES]
    found = [columns.read(each) for each in garbage]
    with ledger.change() as connection:
        sound = [each for each in found if isinstance(each, WriteEvent)]
        reject(connection, "theirs", [each for each in found if isinstance(each, Rejected)], NOW)
        event_store.record(connection, "theirs", sound, NOW, refuse_out_of_order=True)
        last = columns.read(row(2**40))
        assert isinstance(last, WriteEvent)
        assert not event_store.record(connection, "theirs", [last], NOW, refuse_out_of_order=True)
    assert len(found) > len(sound) > len(COLUMNS)


@each_case(
    "text", ["", "\0", "\ud800", "[" * 100_000, '{"a":' * 5_000, "5", "null", '{"a":1e999999}', "9" * 5_000, "{}{}"]
)
def test_a_line_that_is_no_object_has_a_reason(text):
    assert isinstance(json_object(text), str) or isinstance(Columns().read(json_object(text)), Rejected)


NOTIFICATION = {"Records": [{"s3": {"bucket": {"name": "lake"}, "object": {"key": "ads/20260101.000000/x"}}}]}
BODIES = [
    *(each for each in VALUES if isinstance(each, str)),
    json.dumps([NOTIFICATION]),
    json.dumps({"Message": "[" * 10_000}),
]


@each_case("body", BODIES)
def test_a_message_that_is_no_notification_is_refused_by_name(body):
    with pytest.raises(InvalidNotification):
        parse_objects(body)


@each_case(
    "key",
    [
        "ads/../20260101.000000/x",
        "ads//20260101.000000/x",
        "ads/%2e%2e/20260101.000000/x",
        "ads/..",
        "/ads/20260101.000000/x",
        "ads/a%00b/20260101.000000/x",
        "ads/a\\b/20260101.000000/x",
        "",
        "/",
        "..",
    ],
)
def test_a_notification_of_a_key_that_is_no_partitions_is_of_none(key):
    (found,) = parse_objects(json.dumps(NOTIFICATION).replace("ads/20260101.000000/x", json.dumps(key)[1:-1]))
    assert partition_of(found.key, {"ads": Feed.parse("ads")}) is None
