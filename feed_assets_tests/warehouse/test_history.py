"""History tables: each message is a row, once, and a view has the versions of each key."""

from contextlib import closing
from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import InvalidShape, LoadFailed, NotMigratable
from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import TopicHistory, history_of
from feed_assets.warehouse import load_state, reset
from feed_assets.warehouse import loader as loaders
from feed_assets.warehouse.message_history import view_of
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.kafka_topics import MORE, POISON, World
from feed_assets_tests.support.warehouse_topics import check, loading_of
from feed_assets_tests.warehouse.histories import HistoryStream, check_history, history, versions
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.ordered_chunks import KINDS, at_field, loads_by_chance, produce_ordered
from feed_assets_tests.warehouse.stream import ID, TEXT
from feed_assets_tests.warehouse.topic_loader import HOLDER

KILLED, STATEMENTS = -9, 30


def stream_on(board) -> HistoryStream:
    return HistoryStream(board, f"clicks.{uuid4().hex[:12]}_history", format="both")


@pytest.fixture
def stream(loader) -> HistoryStream:
    return stream_on(loader.place.board)


def forget_positions(loader, stream: HistoryStream) -> None:
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")


@pytest.mark.parametrize("newest_by", ["", "at"])
@pytest.mark.parametrize("histories", seeds(2, 100))
def test_any_order_of_loads_makes_the_history_and_the_versions_of_the_oracle(loader, histories, newest_by):
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        kind = chance.choice([*KINDS])
        stream = stream_on(loader.place.board)
        stream.newest_by = newest_by
        for _ in range(5):
            produce_ordered(stream, chance, kind)
        loader.load(stream, stream.signals[0])
        for due in loads_by_chance(stream, chance):
            loader.load(stream, *due)
            check_history(loader, stream)
        assert {number: each.next_offset for number, each in loader.known(stream).positions.items()} == stream.ends


@pytest.mark.parametrize("kills", seeds(6, 200))
def test_a_load_into_a_history_may_be_killed_at_any_statement(loader, url, fork, local_board, kills):
    loader.place = replace(loader.place, board=local_board)
    stream, ends = stream_on(local_board), set()
    stream.newest_by = "at"
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_ordered(stream, chance, "timestamp")
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        ends.add(fork.run(killed_at, url, local_board.url, stream.name, stream.signals, shapes, at, is_after))
        check_history(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_history(loader, stream)


def test_no_message_is_a_row_twice_without_positions_and_with_chunks_that_overlap(loader, stream):
    schema, rows = stream.schemas.add(ID, TEXT), [{"id": number, "text": "é"} for number in range(4)]
    stream.send(schema, *rows[:2])
    stream.send(schema, rows[2], (None, rows[0]))
    stream.send(schema, {"id": 9, "text": None}, partition=1)
    messages, stream.ends[0] = [*stream.messages], 1
    cut_again = stream.send(schema, *rows[1:3], (None, rows[0]))  # The offsets 1 to 3 in another chunk.
    stream.messages = messages
    loader.load(stream, stream.signals[0])
    loader.load(stream)
    check_history(loader, stream)
    assert len(history(loader, stream)) == 5
    for signals in (stream.signals, [cut_again], stream.signals[1:2]):
        forget_positions(loader, stream)
        loader.load(stream, *signals)
        assert len(history(loader, stream)) == 5
    stream.send(schema, ("create", rows[0]))
    loader.load(stream, *stream.signals)
    check_history(loader, stream)
    assert versions(loader, stream) == [
        (0, 0, 0, "update", 0, 3, False),
        (0, 0, 4, "create", 4, None, True),
        (1, 0, 1, "update", 1, None, True),
        (2, 0, 2, "update", 2, None, True),
        (9, 1, 0, "update", 0, None, True),
    ]


FIRST = [ID, {"name": "n", "type": "int", "default": 1}, TEXT, {"name": "gone", "type": "string"}]
SECOND = [
    ID,
    {"name": "m", "type": "long", "aliases": ["n"], "default": 2},
    {"name": "new", "type": "int", "default": 5},
    {**TEXT, "doc": "it's a text"},
]
THIRD = [ID, {"name": "m", "type": "long"}, {"name": "gone", "type": "string", "default": "-"}]


def test_schemas_change_and_each_row_keeps_the_values_of_its_message(loader, stream):
    """A column whose field is gone stays, and no row gets a default: no message had it."""
    first, second = stream.schemas.add(*FIRST), stream.schemas.add(*SECOND)
    row = {"id": 1, "n": 1, "text": "a", "gone": "x"}
    stream.send(first, row, ("delete", {**row, "id": 2}), (None, {"id": 3}))
    loader.load(stream)
    stream.send(second, {"id": 1, "m": 2**40, "new": 7, "text": None}, (None, {"id": 1}))
    stream.send(first, {**row, "n": 3}, partition=1)
    stream.send(second, (None, {"id": 4}), partition=1)
    loader.load(stream)
    stream.send(stream.schemas.add(*THIRD), {"id": 5, "m": 5, "gone": "y"})
    loader.load(stream)
    assert history(loader, stream) == [
        (0, 0, "update", {"id": 1, "m": 1, "text": "a", "gone": "x"}),
        (0, 1, "delete", {"id": 2, "m": 1, "text": "a", "gone": "x"}),
        (0, 2, "delete", {"id": 3}),
        (0, 3, "update", {"id": 1, "m": 2**40, "new": 7}),
        (0, 4, "delete", {"id": 1}),
        (0, 5, "update", {"id": 5, "m": 5, "gone": "y"}),
        (1, 0, "update", {"id": 1, "m": 3, "text": "a", "gone": "x"}),
        (1, 1, "delete", {"id": 4}),
    ]
    values = f"SELECT id, m, new, text, gone, valid_from, valid_to FROM {quoted(view_of(stream.name))} ORDER BY 1, 6, 2"
    assert loader.ask(values) == [
        (1, 1, None, "a", "x", 0, 3),
        (1, 3, None, "a", "x", 0, None),
        (1, 2**40, 7, None, None, 3, 4),
        (5, 5, None, None, "y", 5, None),
    ]


@pytest.mark.parametrize(
    ("at", "is_after"),
    [("DROP VIEW", True), ("ALTER", True), ("CREATE VIEW", False), ("CREATE VIEW", True), ("COMMIT", False)],
)
def test_a_kill_between_the_view_and_the_columns_leaves_both_as_they_were(loader, url, fork, local_board, at, is_after):
    loader.place = replace(loader.place, board=local_board)
    stream = stream_on(local_board)
    first, second = stream.schemas.add(*FIRST), stream.schemas.add(*SECOND)
    stream.send(first, {"id": 1, "n": 1, "text": "a", "gone": "x"})
    loader.load(stream)
    before = versions(loader, stream)
    stream.send(second, {"id": 1, "m": 2**40, "new": 7, "text": None})
    shapes = {each: stream.shape(each) for each in stream.schemas.known}
    killed = fork.run(killed_at, url, local_board.url, stream.name, stream.signals, shapes, at, is_after)
    assert (killed, versions(loader, stream)) == (KILLED, before)
    loader.load(stream)
    assert [each[4:] for each in versions(loader, stream)] == [(0, 1, False), (1, None, True)]


def test_rows_that_do_not_fit_are_refused_and_of_their_deletes_the_key_stays(loader, stream):
    fits = stream.schemas.add(ID, {"name": "n", "type": "long"})
    other_type = stream.schemas.add(ID, {"name": "n", "type": "boolean"})
    stream.send(fits, {"id": 1, "n": 1})
    loader.load(stream)
    stream.send(other_type, {"id": 2, "n": True}, ("delete", {"id": 1, "n": True}))
    with pytest.raises(NotMigratable, match="n was bigint and is boolean"):
        loader.load(stream)
    loader.place = replace(loader.place, conflicts="refuse")
    loader.load(stream)
    forget_positions(loader, stream)
    loader.load(stream, *stream.signals)
    assert history(loader, stream) == [(0, 0, "update", {"id": 1, "n": 1}), (0, 2, "delete", {"id": 1})]
    place = f"SELECT topic_partition, topic_offset FROM feed_assets.refused WHERE topic = '{stream.name}'"
    assert loader.ask(place) == [(0, 1)]
    loader.place = replace(loader.place, conflicts="variant")
    stream.send(other_type, {"id": 2, "n": True}, partition=1)
    loader.load(stream)
    assert history(loader, stream)[-1] == (1, 0, "update", {"id": 2, "n__boolean": True})
    text_key, number = stream.schemas.add({"name": "id", "type": "string"}, name="Key"), stream.key_id
    stream.key_id = text_key
    stream.send(fits, (None, {"id": "x1"}))
    stream.key_id = number
    stream.send(fits, {"id": 3, "n": 3})
    loader.load(stream)
    assert history(loader, stream)[2:3] == [(0, 4, "update", {"id": 3, "n": 3})]
    assert sorted(loader.ask(place)) == [(0, 1), (0, 3)]


def test_another_newest_by_changes_the_view_and_no_row(loader, stream):
    first = stream.schemas.add(ID, at_field("long"))
    stream.send(first, {"id": 1, "at": 5}, {"id": 1, "at": 4})
    loader.load(stream)
    assert [each[4:] for each in versions(loader, stream)] == [(0, 1, False), (1, None, True)]
    stream.newest_by = "at"
    stream.send(first, {"id": 2, "at": None})
    loader.load(stream)
    check_history(loader, stream)
    without_value = (None, None, True)
    assert [each[4:] for each in versions(loader, stream)] == [(5, None, True), (4, 5, False), without_value]
    renamed = stream.schemas.add(ID, {**at_field("long"), "name": "changed", "aliases": ["at"]})
    stream.send(renamed, {"id": 1, "changed": 6}, partition=1)
    stream.send(stream.schemas.add(ID), {"id": 1}, partition=1)  # Without the field the value is null.
    loader.load(stream)
    expected = [(5, 6, False), (4, 5, False), (6, None, True), (None, 4, False), without_value]
    assert [each[4:] for each in versions(loader, stream)] == expected
    for lacking, message in ((TEXT, "by other, which is no column"), ({"name": "other", "type": "string"}, "is text")):
        stream.newest_by = "other"
        sent = stream.send(stream.schemas.add(ID, lacking), {"id": 1, lacking["name"]: "x"})
        with pytest.raises(NotMigratable, match=message):
            loader.load(stream, sent)
    stream.newest_by = ""
    loader.load(stream)
    offsets = {(offset, valid_from) for _, _, offset, _, valid_from, _, _ in versions(loader, stream)}
    assert offsets == {(each, each) for each in range(5)}


def test_a_field_of_the_view_is_refused_and_a_reset_makes_table_and_view_anew(loader, stream):
    stream.send(stream.schemas.add(ID, {"name": "Valid_To", "type": "long"}), {"id": 1, "Valid_To": 1})
    with pytest.raises(InvalidShape, match="a field Valid_To: that is a column of the versions"):
        loader.load(stream)
    stream = stream_on(loader.place.board)
    stream.send(stream.schemas.add(ID), {"id": 1}, {"id": 1})
    loader.ask(f"CREATE VIEW {quoted(view_of(stream.name))} AS SELECT 1 AS one")
    with pytest.raises(LoadFailed, match="already exists"):
        loader.load(stream)
    loader.ask(f"DROP VIEW {quoted(view_of(stream.name))}")
    for begin, count in ((None, 2), (1, 2), (reset.STOP, 1)):
        loader.load(stream)
        with loader.engine.open() as connection:
            reset.apply(
                connection, loader.engine, HOLDER, 30, reset.plan(connection, loader.engine, stream.name, begin)
            )
            load_state.take(connection, loader.engine, HOLDER, 30)
        if begin == reset.STOP:
            stream.send(max(stream.schemas.known), {"id": 2})
        loader.load(stream)
        assert len(history(loader, stream)) == count


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_name_that_is_too_long_for_the_view_is_refused(loader):
    stream = HistoryStream(loader.place.board, f"{'c' * 55}_history")
    stream.send(stream.schemas.add(ID), {"id": 1})
    with pytest.raises(InvalidShape, match="c_versions is not a name in PostgreSQL: expected at most 63 bytes"):
        loader.load(stream)


def test_a_topic_has_its_latest_rows_and_its_history_from_the_broker_on(
    broker, registry, local_board, engine, url, monkeypatch
):
    """The first messages are deletes: the history waits for the columns, and has them, too."""
    monkeypatch.setattr(loaders, "LEASE_SECONDS", 0.0)
    with World.of(broker, registry, local_board.url) as world:
        world.create()
        table = history_of(world.name)
        sources = {world.name: world.settings, table: TopicHistory(world.name, world.settings)}
        loading = loading_of(world.place, url)
        with closing(loading.schemas), world.connector() as running:
            world.send(None, 3)
            running.wait(world.is_done, "a tombstone")
            assert loaders.once(loading, sources) == 1
            world.produce(12)
            world.send(POISON)
            world.send(None, 3)
            world.produce(5, fields=MORE)
            world.send(world.value(4), 4, op="delete")
            running.wait(world.is_done, "all messages")
            loaders.once(loading, sources)
            check(world, engine)
            rows = f"SELECT _offset, _operation, id, n FROM {quoted(table)} ORDER BY _offset"
            with loading.engine.open() as connection:
                found = connection.execute(rows.replace(quoted(table), loading.engine.table(table)))
                columns = f"SELECT id, n FROM {loading.engine.table(view_of(table))} WHERE is_current ORDER BY id"
                current = connection.execute(columns)
                latest = connection.execute(f"SELECT id, n FROM {loading.engine.table(world.name)} ORDER BY id")
            assert current == latest
            deleted = (0, "delete", "k3", None)
            assert found[0] == deleted
            assert [each[:2] for each in found] == [
                (0, "delete"), *((1 + n, "update") for n in range(12)), (14, "delete"),
                *((15 + n, "update") for n in range(5)), (20, "delete"),
            ]  # fmt: skip
            assert loaders.once(loading, sources) == 0
