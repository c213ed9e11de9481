"""Incoming events: each is recorded and can be read back, or it is rejected; no other event is delayed."""

import random
import string
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.events import NO_NEW_DATA, Operation, Rejected, WriteEvent, decode, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import CONTEXT_BYTES, CONTEXT_DEPTH, NAME_BYTES, REASON_BYTES, REJECT_BYTES, SEGMENTS
from feed_assets.ledger import event_rejects, event_store, log
from feed_assets.ledger.tables import UtcDateTime, event, metadata
from feed_assets.ledger.update_durations import durations

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
ZERO = datetime(1, 1, 1, tzinfo=UTC)
"""The zero time of Go and .NET."""
BEYOND = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))


def write(marker, correlation="X", table="shop/orders", **options):
    return WriteEvent(table, marker, options.pop("event_marker", NOW), correlation, Operation.UPSERT, **options)


def record(ledger, *new, source="shop"):
    with ledger.change() as connection:
        return event_store.record(connection, source, new, NOW, refuse_out_of_order=False)


def recorded(ledger, table=None):
    """Return the recorded events, the oldest first; none of them stops a reader."""
    with ledger.read() as connection:
        return [*reversed(event_store.newest(connection, 1000, Feed.parse(table) if table else None))]


def test_event_of_the_year_1_is_recorded_and_sorts_first(ledger):
    assert record(ledger, write(ZERO, event_marker=ZERO), write(datetime(999, 1, 1, tzinfo=UTC)), write(NOW)) == ()
    found = recorded(ledger)
    assert [decode(each.marker).year for each in found] == [1, 999, 2024]
    assert [each.flag for each in found] == [None] * 3
    assert found[0].time == ZERO


@pytest.mark.parametrize("bad", [{"marker": BEYOND}, {"marker": NOW, "event_marker": BEYOND}, {"marker": 10**20}])
def test_event_with_an_unreadable_marker_is_rejected_alone(ledger, bad):
    (rejected,) = record(ledger, write(**bad), write(NOW, "Y"))
    assert "expected" in rejected.reason
    assert [each.correlation for each in recorded(ledger)] == ["Y"]
    with ledger.read() as connection:
        assert [each.reason for _, each, _ in event_rejects.rejects(connection, 10)] == [rejected.reason]


def insert(ledger, **values):
    """Insert a row as an older version of the ledger may have written it, with its change in the log."""
    row = {"source": "shop", "feed": "shop/orders", "partition": "", "marker": "20240101.000000", "correlation": "X"}
    row |= {"event_marker": "20240101.000000", "operation": "UPSERT", "context": "{}", "at": NOW, **values}
    at = Partition(Feed.parse("shop/orders"), row["partition"])
    with ledger.change() as connection:
        sequence = log.append(connection, [log.Change(at, log.EVENT, row["marker"], NOW)])
        connection.execute(sa.insert(event), {"sequence": sequence, **row})


def test_a_short_year_that_an_older_version_recorded_stops_no_reader(ledger):
    insert(ledger, marker="10101.000000", event_marker="10101.000000")
    record(ledger, write(NOW, "Y"))
    assert [each.time for each in recorded(ledger)] == [ZERO, NOW]
    assert [each.previous for each in recorded(ledger)] == [None, "10101.000000"]


_RANDOM = random.Random(1)  # noqa: S311


def noise(size):
    """Return random text that no database can compress."""
    return "".join(_RANDOM.choices(string.ascii_letters + string.digits, k=size))


def path(size, segments=SEGMENTS):
    """Return a name of so many bytes and segments."""
    each, rest = divmod(size - segments + 1, segments)
    return "/".join(noise(each + (number < rest)) for number in range(segments))


def nested(depth):
    """Return a context of so many levels."""
    value = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_the_largest_event_that_is_accepted_fits_into_every_index(ledger):
    """On PostgreSQL a row of an index has at most 2,704 bytes."""
    table, key, correlation = path(NAME_BYTES), path(NAME_BYTES), noise(NAME_BYTES)
    largest = write(NOW, correlation, table, partition_key=key, context={"of": noise(CONTEXT_BYTES - 20)})
    assert record(ledger, largest, source="s" * 200) == ()
    assert [each.correlation for each in recorded(ledger, table)] == [correlation]


def test_every_index_takes_the_longest_names(ledger):
    """Fill all text columns at once: feeds, partitions and ids, in every index."""
    texts = {"feed": NAME_BYTES, "partition": NAME_BYTES, "key": NAME_BYTES, "correlation": NAME_BYTES}
    texts |= {"input_feed": NAME_BYTES, "input_partition": NAME_BYTES, "subscriber": NAME_BYTES, "name": 2 * NAME_BYTES}
    with ledger.write() as connection:
        for table in metadata.sorted_tables:
            row = {each.name: noise(texts.get(each.name, 40)) for each in table.c if isinstance(each.type, sa.String)}
            row |= {each.name: NOW for each in table.c if isinstance(each.type, UtcDateTime)}
            row |= {each.name: 1 for each in table.c if isinstance(each.type, sa.Integer | sa.Boolean)}
            connection.execute(sa.insert(table), row)
        connection.rollback()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"correlation": noise(6000)}, "correlation_id .* has 6000 bytes: expected at most 500"),
        ({"correlation": "é" * 251}, "has 502 bytes"),
        ({"correlation": ""}, "expected a correlation_id"),
        ({"correlation": "a\0b"}, "expected a correlation_id of printable characters"),
        ({"correlation": "a\ud800b"}, "expected a correlation_id of printable characters"),
        ({"table": path(6000, 40)}, "feed .* has 6000 bytes and 40 segments: expected at most 500 and 8"),
        ({"table": path(60, 9)}, "9 segments"),
        ({"partition_key": path(501)}, "partition key .* has 501 bytes"),
        ({"partition_key": path(60, 9)}, "9 segments"),
        ({"partition_key": "a\0b"}, "cannot be a path segment"),
        ({"context": {"a": "x" * CONTEXT_BYTES}}, "the context has 65545 bytes: expected at most 65536"),
        ({"context": nested(CONTEXT_DEPTH + 1)}, "more than 50 levels deep"),
        ({"context": nested(5000)}, "more than 50 levels deep"),
        ({"context": {"a": float("nan")}}, "the context is not JSON: .* Expected JSON, without NaN"),
        ({"context": {"a": [float("inf")]}}, "the context is not JSON"),
        ({"context": {"a": "b\0"}}, "the context has a NUL character"),
        ({"context": {"\\\0": 1}}, "the context has a NUL character"),
        ({"context": {"a": "\ud800"}}, "the context is not JSON"),
        ({"context": {NO_NEW_DATA: "false"}}, "context no_new_data: found 'false', expected true or false"),
        ({"context": {NO_NEW_DATA: 1}}, "context no_new_data: found 1, expected true or false"),
        ({"context": {"update_id": 1}}, "context update_id: found 1, expected a text"),
        ({"context": {"parents": "X"}}, "context parents: found 'X', expected a list of texts"),
        ({"context": {"parents": [[1]]}}, "context parents: expected a list of texts"),
    ],
)
def test_oversized_or_malformed_event_is_rejected_alone_with_its_reason(ledger, bad, reason):
    """A source's event is rejected, and a publication by hand is refused in the same words."""
    (rejected,) = record(ledger, write(NOW, **bad), write(NOW, "Y"))
    with pytest.raises((InvalidEvent, InvalidName), match=reason), ledger.change() as connection:
        event_store.publish(connection, write(NOW, **bad), NOW)
    with ledger.read() as connection:
        ((source, kept, _),) = event_rejects.rejects(connection, 10)
    assert (source, kept) == ("shop", rejected)
    assert len(kept.raw.encode()) <= REJECT_BYTES
    assert len(kept.reason.encode()) <= REASON_BYTES
    assert [each.correlation for each in recorded(ledger)] == ["Y"]


@pytest.mark.parametrize("good", [nested(CONTEXT_DEPTH), {NO_NEW_DATA: False}, {"a": "\\u0000"}, {"a": "é\U0001f600"}])
def test_event_just_within_the_limits_is_recorded_unchanged(ledger, good):
    assert record(ledger, write(NOW, context=good)) == ()
    assert [each.context for each in recorded(ledger)] == [good]


def test_long_reject_keeps_its_beginning_length_and_digest():
    raw = noise(100_000)
    kept = Rejected(raw, "é" * 5000)
    assert kept.raw.startswith(raw[:3900])
    assert f"(100000 bytes, sha256 {sha256(raw.encode()).hexdigest()})" in kept.raw
    assert Rejected(kept.raw, kept.reason) == kept
    assert len(kept.reason.encode()) <= REASON_BYTES


def test_context_of_an_older_version_with_nan_is_read_as_json(ledger):
    insert(ledger, context='{"records": NaN, "parents": 1, "code_version": [1]}')
    (found,) = recorded(ledger)
    assert found.context["records"] == "NaN"
    with ledger.read() as connection:
        assert durations(connection, Feed.parse("shop/orders"), Feed.parse("shop/orders"), 10)[0].code_version == "[1]"


def test_newest_rejects_of_a_source_are_kept(ledger):
    many = [[Rejected(f"{hour} {number}", "bad") for number in range(4000)] for hour in range(4)]
    for hour, some in enumerate(many):
        with ledger.change() as connection:
            event_rejects.reject(connection, "shop", some, NOW + timedelta(hours=hour))
            event_rejects.reject(connection, "other", some[:1], NOW)
    with ledger.read() as connection:
        found = event_rejects.rejects(connection, 20_000)
    kept = [rejected for source, rejected, _ in found if source == "shop"]
    assert event_rejects.REJECTS_KEPT <= len(kept) <= event_rejects.REJECTS_KEPT + len(many[0])
    assert {*many[3]} <= {*kept}
    assert len(found) - len(kept) == 4


def test_all_rejects_of_one_tick_are_kept(ledger):
    """A tick has one moment, and reads a source as often as its time allows."""
    for batch in range(3):
        with ledger.change() as connection:
            event_rejects.reject(connection, "shop", [Rejected(f"{batch} {n}", "bad") for n in range(5000)], NOW)
    with ledger.read() as connection:
        assert len(event_rejects.rejects(connection, 20_000)) == 15_000


def kinds(*of):
    """Return events of a table in this order, each a whole number or an hour of a day."""
    return [write(each if isinstance(each, int) else NOW + each, f"{number}") for number, each in enumerate(of)]


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("markers", "good"),
    [((1, HOUR, 2, 3), [1, 2, 3]), ((HOUR, 1, 2 * HOUR), [HOUR, 2 * HOUR]), ((HOUR, 2**63 - 1, 2 * HOUR), None)],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_marker_of_another_kind_than_the_first_is_rejected(ledger, markers, good, at_once):
    new = kinds(*markers)
    batches = [new] if at_once else [[each] for each in new]
    rejected = [each for some in batches for each in record(ledger, *some)]
    assert [each.reason for each in rejected] == [each.reason for each in rejected if "of another kind" in each.reason]
    found = recorded(ledger)
    expected = [NOW + each if isinstance(each, timedelta) else each for each in good or (HOUR, 2 * HOUR)]
    assert [decode(each.marker) for each in found] == expected
    assert [each.previous for each in found] == [None, *(each.marker for each in found[:-1])]
    assert {each.flag for each in found} == {None}


def test_marker_kind_belongs_to_the_table_and_not_to_a_partition(ledger):
    """A slice is one condition on one column, whatever its partition."""
    record(ledger, write(1, partition_key="a"))
    (rejected,) = record(ledger, write(NOW, partition_key="b"))
    assert "marker 2024-01-01 12:00:00+00:00 is of another kind than the markers of shop/orders" in rejected.reason
    assert record(ledger, write(NOW, table="shop/prices")) == ()
    with pytest.raises(InvalidEvent, match="of another kind"), ledger.change() as connection:
        event_store.publish(connection, write(NOW, partition_key="c"), NOW)


def test_event_marker_may_be_of_another_kind_than_the_marker(ledger):
    assert record(ledger, write(1, event_marker=NOW), write(2, event_marker=7)) == ()
    assert [each.time for each in recorded(ledger)] == [NOW, NOW]


def test_old_marker_of_another_kind_is_not_the_last_marker(ledger):
    """An older version accepted it after whole numbers, which continue from their own last one."""
    insert(ledger, marker=encode(7), correlation="X")
    insert(ledger, marker="99991231.000000", correlation="Y")
    assert record(ledger, write(8)) == ()
    assert recorded(ledger)[-1].previous == encode(7)


def test_documented_statements_remove_a_poisonous_marker(ledger):
    record(ledger, write(NOW, "X"))
    insert(ledger, marker="99991231.000000", correlation="poison")
    record(ledger, write(NOW + HOUR, "Y"))
    assert recorded(ledger)[-1].flag == "out of order"
    number = str(next(each.sequence for each in recorded(ledger) if each.correlation == "poison"))
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith("    DELETE")]
    assert lines
    with ledger.write() as connection:
        for statement in ";".join(lines).replace("4711", number).split(";"):
            if statement.strip():
                connection.exec_driver_sql(statement)
    assert record(ledger, write(NOW + 2 * HOUR, "Z")) == ()
    assert recorded(ledger)[-1].flag is None
