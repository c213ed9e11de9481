"""Our own events, published to the team's sink, and read back unchanged by others."""

import json
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidDefinition, SinkUnavailable
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.sinks import FileSink, SqlSink, open_sink
from feed_assets.sources.sql import SqlEvents
from feed_assets.sources.topic_sink import TopicSink
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import START, Topics, event, read_all

TOKYO = timezone(timedelta(hours=9))


def numbered(first, last):
    return [(number, event(number, "timestamp")) for number in range(first, last + 1)]


def of(pairs):
    return [each for _, each in pairs]


ODD = [
    WriteEvent(
        "a/b/v1.0", 0, START, "c-0", Operation.DELETE, "2010-12-01/men", {"no_new_data": True, "parents": ["ä", "\n"]}
    ),
    WriteEvent("a/b/v1.0", 2**63 - 1, START.astimezone(TOKYO), "c-1", Operation.OVERWRITE),
    WriteEvent("a/c", START + timedelta(microseconds=1), START, "c-2", context={"deep": {"list": [1, None]}}),
    WriteEvent("a/c", datetime(999, 1, 1, tzinfo=UTC), 5, "c-2"),
]


@pytest.fixture(params=["sqlite", "postgresql", "local", "s3", "kafka"])
def published(request):
    """Return a sink, and the source that reads it back."""
    if request.param == "kafka":
        theirs = Topics(request.getfixturevalue("broker").servers, "integer")
        return TopicSink(theirs.clients, theirs.topic), theirs.source()
    if request.param in ("local", "s3"):
        board = request.getfixturevalue(f"{request.param}_board")
        return open_sink("blackboard:our/events", board), FileEvents(board, "our/events", "jsonl")
    url = request.getfixturevalue(f"{request.param}_url")
    return open_sink(f"{url}#our_events", Blackboard.open("memory://")), SqlEvents(url, "our_events", order_by="id")


def test_published_events_are_read_back_equal_and_in_order(published):
    sink, source = published
    events = [*ODD, *of(numbered(1, 5)), *(event(number, "integer") for number in range(5))]
    sink.publish([*enumerate(events, 1)])
    found, rejected, _ = read_all(source, limit=3)
    assert rejected == []
    assert found == events


def test_publishing_again_changes_nothing_whatever_the_batches(published):
    sink, source = published
    for first, last in [(1, 5), (1, 5), (1, 7), (3, 4), (8, 8), (1, 9), (8, 12)]:
        sink.publish(numbered(first, last))
    found, _, _ = read_all(source)
    assert once(found) == of(numbered(1, 12))
    sink.publish([])


def once(events):
    """Drop repeated events, as the ledger does. Files repeat events where a position went back, tables never do."""
    return [event for at, event in enumerate(events) if event not in events[:at]]


@pytest.mark.parametrize("others", [[(1, 5)], [(1, 3)], [(1, 9)], [(1, 3), (4, 6)], [(1, 3), (4, 6), (1, 9)]])
def test_a_batch_that_is_cut_differently_after_a_kill_is_there_once(published, others):
    sink, source = published
    for first, last in others:
        assert sink.publish(numbered(first, last)) == ()
    assert sink.publish(numbered(1, 9)) == ()
    assert read_all(source)[0] == of(numbered(1, 9))


def test_a_reader_who_goes_on_from_its_position_misses_nothing(published):
    sink, source = published
    position, found = None, []
    for first, last in [(1, 3), (2, 6), (1, 7), (7, 9)]:
        sink.publish(numbered(first, last))
        new, _, position = read_all(source, position)
        found += [each for each in new if each not in found]  # The ledger drops repeated events, too.
    assert found == of(numbered(1, 9))


def test_data_and_event_are_both_there_or_neither(url):
    engine, sink = sa.create_engine(url), SqlSink(url, "events")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE data (number integer)")
    with engine.connect() as connection, connection.begin() as failed:
        connection.exec_driver_sql("INSERT INTO data VALUES (1)")
        sink.publish_on(connection, of(numbered(1, 2)))
        failed.rollback()
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO data VALUES (2)")
        sink.publish_on(connection, of(numbered(2, 3)))
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT number FROM data").all() == [(2,)]
    engine.dispose()
    assert read_all(SqlEvents(url, "events", order_by="id"))[0] == of(numbered(2, 3))


def test_an_event_with_another_context_stays_as_it_was_first_published(url):
    sink = SqlSink(url, "events")
    sink.publish(numbered(1, 1))
    again = event(1, "timestamp")
    sink.publish([(1, WriteEvent(**{**vars(again), "context": {"records": 2}}))])
    assert read_all(SqlEvents(url, "events", order_by="id"))[0] == [again]


def test_a_schema_may_be_named_in_the_setting(postgresql_url):
    engine = sa.create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA IF NOT EXISTS ours")
        connection.exec_driver_sql("DROP TABLE IF EXISTS ours.events")
    open_sink(f"{postgresql_url}#ours.events", Blackboard.open("memory://")).publish(numbered(1, 1))
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT marker FROM ours.events").all() == [("2010-12-01T06:00:01.000001Z",)]
    engine.dispose()


def test_no_event_of_two_simultaneous_publishers_is_lost(local_board):
    meanwhile = [lambda: FileSink(local_board, "events").publish(numbered(1, 7))]
    slow = Counting.around(local_board, {"create": lambda: meanwhile and meanwhile.pop()()}).board
    FileSink(slow, "events").publish(numbered(1, 9))
    files = [file.key for file in local_board.files("events")]
    assert files == [f"events/{first:020d}.jsonl" for first in (1, 8)]
    assert read_all(FileEvents(local_board, "events", "jsonl"))[0] == of(numbered(1, 9))


def test_an_earlier_cursor_publishes_no_event_behind_the_readers(local_board):
    sink, source = FileSink(local_board, "events"), FileEvents(local_board, "events", "jsonl")
    sink.publish(numbered(1, 3))
    sink.publish(numbered(4, 6))
    _, _, position = read_all(source)
    sink.publish(numbered(2, 9))
    assert read_all(source, position)[0] == of([*numbered(2, 3), *numbered(7, 9)])


FORGED = {
    "a high number": ("99999999999999999999", '{"sequence": 99999999999999999999}\n'),
    "a high number that ends with our next one": ("00000000000000000009", '{"sequence": 8}\n'),
    "our next number and an end beyond it": ("00000000000000000004", '{"sequence": 9}\n'),
    "no JSON": ("00000000000000000004", "\x00\x01"),
    "nothing": ("00000000000000000004", ""),
    "our first line and more": ("00000000000000000004", None),
    "a name within the batch": ("00000000000000000005", '{"sequence": 9}\n'),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_file_of_somebody_else_hides_no_event_and_is_named_and_left_alone(board, forged):
    sink, (number, content) = FileSink(board, "events"), FORGED[forged]
    sink.publish(numbered(1, 3))
    if content is None:
        FileSink(board, "aside").publish(numbered(4, 4))
        content = (board.get(f"aside/{4:020d}.jsonl") + b"{}\n").decode()
    key = f"events/{number}.jsonl"
    board.put(key, content.encode())
    taken = sink.publish(numbered(4, 6))
    assert board.get(key) == content.encode()
    theirs = [*taken, *sink.strangers(6, lambda: set())]
    assert theirs == [key]
    found = read_all(FileEvents(board, "events", "jsonl"))[0]
    assert [each for each in once(found) if each in of(numbered(1, 6))] == of(numbered(1, 6))
    assert sink.publish(numbered(4, 6)) == taken
    assert sink.publish(numbered(7, 7)) == ()


def test_a_file_name_beside_a_foreign_file_sorts_after_it_and_before_the_next_number(local_board):
    sink = FileSink(local_board, "events")
    for name in ("", "_1", "_10", "_9", "z"):
        local_board.put(f"events/{1:020d}{name}.jsonl", b"mine\n")
    source = FileEvents(local_board, "events", "jsonl")
    position = read_all(source)[2]
    assert len(sink.publish(numbered(1, 2))) == 5
    sink.publish(numbered(3, 3))
    names = [file.key.removeprefix("events/").lstrip("0") for file in local_board.files("events")]
    assert names == ["1.jsonl", "1_1.jsonl", "1_10.jsonl", "1_9.jsonl", "1z.jsonl", "1z_.jsonl", "3.jsonl"]
    assert read_all(source, position)[0] == of(numbered(1, 3))


def test_a_file_between_two_numbers_of_ours_is_a_stranger_before_we_publish_them(local_board):
    """Look for strangers from our last number on: a reader of that file is past later events before it."""
    sink = FileSink(local_board, "events")
    sink.publish(numbered(1, 3))
    local_board.put(f"events/{7:020d}.jsonl", b"mine\n")
    assert sink.strangers(3, lambda: {4, 9}) == (f"events/{7:020d}.jsonl",)


def test_files_that_our_other_process_is_writing_are_no_strangers(local_board):
    sink = FileSink(local_board, "events")
    sink.publish(numbered(4, 6))
    assert sink.strangers(3, lambda: {4, 5, 6}) == ()
    assert sink.strangers(3, lambda: {5, 6}) == (f"events/{4:020d}.jsonl",)


@each_case(
    "prefix",
    ["_feed_assets", "_feed_assets/claims/a", "ads", "ads/shown", "ads/shown/v1.0", "ads/shown/v1.0/in", "../x"],
)
def test_a_prefix_where_something_else_is_kept_is_refused(prefix):
    feeds = [Feed.parse("ads/shown/v1.0"), Feed.parse("sales")]
    with pytest.raises(InvalidDefinition, match="is not a sink"):
        open_sink(f"blackboard:{prefix}", Blackboard.open("memory://"), feeds)
    for free in ("ads/events", "ads/shown/v2.0", "salesy"):
        open_sink(f"blackboard:{free}", Blackboard.open("memory://"), feeds)


def test_many_who_publish_into_a_new_table_end_with_each_event_once(url):
    sink = SqlSink(url, "events")
    sink.publish(numbered(1, 1))
    threads = [threading.Thread(target=sink.publish, args=(numbered(1, 200),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found, _, _ = read_all(SqlEvents(url, "events", order_by="id"), limit=1000)
    assert sorted(found, key=lambda each: each.marker) == of(numbered(1, 200))


def test_a_file_of_somebody_else_in_the_folder_is_passed_over(local_board):
    sink = FileSink(local_board, "events")
    sink.publish(numbered(1, 2))
    local_board.put("events/readme.txt", b"hello")
    sink.publish(numbered(1, 3))
    assert [json.loads(line)["sequence"] for line in local_board.get(f"events/{3:020d}.jsonl").splitlines()] == [3]


@each_case(
    "setting", ["", "blackboard:", "blackboard:/", "sqlite:///a.db", "#events", "mysql://me:secret@host/db#events"]
)
def test_an_invalid_sink_setting_is_refused_without_its_secrets(setting):
    with pytest.raises(InvalidDefinition, match="expected") as raised:
        open_sink(setting, Blackboard.open("memory://"))
    assert "secret" not in str(raised.value)


def test_a_sink_whose_database_refuses_is_reported(tmp_path, url):
    with pytest.raises(SinkUnavailable, match="unable to open database"):
        SqlSink(f"sqlite:///{tmp_path / 'none' / 'a.db'}", "events").publish(numbered(1, 1))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE other (number integer)")
    engine.dispose()
    with pytest.raises(SinkUnavailable, match="table_name"):
        SqlSink(url, "other").publish(numbered(1, 1))
