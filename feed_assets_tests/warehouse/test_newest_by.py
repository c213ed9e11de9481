"""Tables with `newest_by`: the greatest value of a column wins for a key, whichever partition it comes from."""

from contextlib import closing
from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import InvalidShape, NotMigratable
from feed_assets.core.sql_text import quoted
from feed_assets.warehouse import load_state, reset
from feed_assets.warehouse import loader as loaders
from feed_assets.warehouse.statements import deleted_of
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.warehouse_topics import loading_of
from feed_assets_tests.support.warehouse_topics import rows as topic_rows
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.ordered_chunks import (
    KINDS,
    OrderedStream,
    at_field,
    check_winners,
    loads_by_chance,
    produce_ordered,
)
from feed_assets_tests.warehouse.stream import ID, TEXT
from feed_assets_tests.warehouse.topic_loader import HOLDER

KILLED, STATEMENTS = -9, 40


@pytest.fixture
def stream(loader) -> OrderedStream:
    return OrderedStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")


@pytest.mark.parametrize("histories", seeds(2, 100))
def test_any_order_of_loads_makes_the_table_of_the_oracle(loader, histories):
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        kind = chance.choice([*KINDS])
        stream = OrderedStream(loader.place.board, f"clicks.{uuid4().hex[:12]}", format="both")
        for _ in range(5):
            produce_ordered(stream, chance, kind)
        loader.load(stream, stream.signals[0])
        for due in loads_by_chance(stream, chance):
            loader.load(stream, *due)
            check_winners(loader, stream)
        assert {number: each.next_offset for number, each in loader.known(stream).positions.items()} == stream.ends


def at(stream: OrderedStream, kind: str = "long", **more) -> int:
    return stream.schemas.add(ID, {**at_field(KINDS[kind][0]), **more})


def rows(loader, stream: OrderedStream) -> list:
    return loader.ask(f'SELECT id, "at", _partition, _offset FROM {quoted(stream.name)} ORDER BY id')


LIFE = [
    # Each row is a message (partition, operation, value), and the row of the table after it: None if there is none.
    ("a later partition with a greater value wins", [(0, "update", 5), (1, "update", 6)], (6, 1, 0)),
    ("and one with a smaller value does not", [(0, "update", 5), (1, "update", 4)], (5, 0, 0)),
    ("of equal values the higher partition wins", [(1, "update", 5), (0, "update", 5)], (5, 1, 0)),
    ("of equal values in a partition the later one wins", [(0, "update", 5), (0, "update", 5)], (5, 0, 1)),
    ("a later message with a smaller value does not win", [(0, "update", 5), (0, "update", 4)], (5, 0, 0)),
    ("null is the lowest", [(0, "update", -(2**62)), (1, "update", None)], (-(2**62), 0, 0)),
    ("two nulls are ordered by place", [(1, "update", None), (0, "update", None), (1, "update", None)], (None, 1, 1)),
    ("a tombstone deletes what its partition had", [(0, "update", 5), (0, None, 0)], None),
    ("no tombstone of a partition without the key deletes it", [(0, "update", 5), (1, None, 0)], (5, 0, 0)),
    ("a delete with a value deletes older rows of any partition", [(0, "update", 5), (1, "delete", 6)], None),
    ("but no newer ones", [(0, "update", 5), (1, "delete", 4)], (5, 0, 0)),
    ("a delete with the value before it deletes its own row", [(0, "update", 5), (0, "delete", 3)], None),
    ("an older row does not come back", [(0, "update", 5), (0, None, 0), (1, "update", 4)], None),
    ("a newer row does", [(0, "update", 5), (0, None, 0), (1, "update", 6)], (6, 1, 0)),
    ("a row with the value of its delete comes back", [(0, "update", 5), (0, None, 0), (0, "update", 5)], (5, 0, 2)),
    ("a tombstone has the value of its partition", [(0, "update", 5), (0, None, 0), (1, "delete", 4)], None),
    ("a lost row leaves no trace", [(1, "update", 7), (0, "update", 5), (0, None, 0)], (7, 1, 0)),
]


@pytest.mark.parametrize("is_together", [True, False])
def test_each_rule_holds_in_one_load_and_in_many(loader, stream, is_together):
    schema = at(stream)
    for number, (_, messages, _) in enumerate(LIFE):
        for partition, operation, value in messages:
            stream.send(schema, ("update", {"id": 1000 + len(stream.signals), "at": 0}), partition=partition)
            stream.send(schema, (operation, {"id": number, "at": value}), partition=partition)
            if not is_together:
                loader.load(stream)
    loader.load(stream)
    places = {(each[0], each[3]["id"]): [] for each in stream.messages}
    for partition, offset, _, value in stream.messages:
        places[partition, value["id"]].append(offset)
    expected = {
        number: (row[0], row[1], places[row[1], number][row[2]]) if row else None
        for number, (_, _, row) in enumerate(LIFE)
    }
    there = {key: (*row,) for key, *row in rows(loader, stream) if key < 1000}
    assert {LIFE[number][0]: there.get(number) for number in expected} == {
        LIFE[number][0]: row for number, row in expected.items()
    }


def test_loads_without_positions_change_nothing_and_old_deletes_are_forgotten(loader, stream):
    schema = at(stream)
    stream.send(schema, {"id": 1, "at": 5}, ("delete", {"id": 1, "at": 3}), {"id": 2, "at": 5}, {"id": 2, "at": 1})
    stream.send(schema, {"id": 1, "at": 4}, {"id": 2, "at": 4}, {"id": 3, "at": 4}, (None, {"id": 3}), partition=1)
    loader.load(stream)
    before, deleted = rows(loader, stream), f"SELECT id, _newest_by, _partition, _offset FROM {deleted_of(stream.name)}"
    assert before == [(2, 5, 0, 2)]
    assert sorted(loader.ask(deleted)) == [(1, 5, 0, 1), (3, 4, 1, 3)]
    for signals in (stream.signals, stream.signals[:1], stream.signals[1:]):
        loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
        loader.load(stream, *signals)
        assert (rows(loader, stream), sorted(loader.ask(deleted))) == (before, [(1, 5, 0, 1), (3, 4, 1, 3)])
    loader.place = replace(loader.place, deleted_days=0)
    stream.send(schema, {"id": 4, "at": None})
    loader.load(stream)
    assert loader.ask(deleted) == []


def test_the_column_gets_wider_and_a_new_name_in_both_tables(loader, stream):
    first = stream.schemas.add(ID, at_field("int"))
    stream.send(first, {"id": 1, "at": 5}, (None, {"id": 1}), {"id": 2, "at": 5})
    loader.load(stream)
    wide = stream.schemas.add(ID, {**at_field("long"), "name": "changed", "aliases": ["at"]}, TEXT)
    stream.send(wide, {"id": 2, "changed": 2**40, "text": "a"}, {"id": 1, "changed": 4, "text": "a"}, partition=1)
    stream.send(first, {"id": 2, "at": 9}, (None, {"id": 3}), partition=2)
    loader.load(stream)
    stream.newest_by = "changed"  # The declaration may follow the new name, and may keep the old one.
    stream.send(wide, ("delete", {"id": 2, "changed": 2**41, "text": "a"}), partition=1)
    stream.send(first, {"id": 2, "at": 10}, {"id": 4, "at": 1}, partition=2)
    loader.load(stream)
    assert loader.known(stream).shape.newest_by == "changed"
    assert loader.ask(f"SELECT id, changed FROM {quoted(stream.name)}") == [(4, 1)]
    deleted = loader.ask(f"SELECT id, _newest_by FROM {deleted_of(stream.name)} ORDER BY id")
    assert deleted == [(1, 5), (2, 2**41), (3, None)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_schema_that_cannot_order_the_rows_is_refused_with_what_to_do(loader, stream):
    for lacking, message in [
        (TEXT, "the schema has no field at, which newest_by declares: it has id, text. Declare a field that all"),
        ({"name": "at", "type": "double"}, "newest_by is the field at, which is double: expected one of bigint, date"),
        ({"name": "at", "type": "string"}, "newest_by is the field at, which is text: expected one of bigint, date"),
    ]:
        other = OrderedStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")
        other.send(other.schemas.add(ID, lacking), {"id": 1, "at": 1.5 if lacking["type"] == "double" else "x"})
        with pytest.raises(InvalidShape, match=message):
            loader.load(other)
    fits, row = at(stream), {"id": 2, "at": 2}
    stream.send(fits, {"id": 1, "at": 1}, row)
    loader.load(stream)
    unfit = {
        "there is no field at, by which newest_by orders the rows": (stream.schemas.add(ID, TEXT), {"text": "x"}),
        "at, which would become text: expected one of bigint": (
            stream.schemas.add(ID, at_field("string")),
            {"at": "x"},
        ),
        "at was bigint and is boolean": (stream.schemas.add(ID, at_field("boolean")), {"at": True}),
    }
    for message, (schema, value) in unfit.items():
        sent = stream.send(schema, {"id": 1, **value}, ("delete", {"id": 2, **value}))
        for conflicts in ("stop", "variant"):
            loader.place = replace(loader.place, conflicts=conflicts)
            if conflicts == "stop":
                with pytest.raises(NotMigratable, match=message):
                    loader.load(stream, sent)
            else:
                loader.load(stream, sent)
        assert rows(loader, stream) == [(1, 1, 0, 0)]
        reason = f"SELECT reason FROM feed_assets.refused WHERE topic_offset = {sent.signal.first_offset}"
        assert message in loader.ask(f"{reason} AND topic = '{stream.name}'")[0][0]
        stream.send(fits, {**row, "at": 2 + len(stream.signals)})
        loader.load(stream)
        assert len(rows(loader, stream)) == 2
    number = {"name": "n", "type": ["null", "long"], "default": None}
    stream.send(stream.schemas.add(ID, at_field("long"), number), {"id": 5, "at": 5, "n": 1}, partition=1)
    other_type = stream.schemas.add(ID, at_field("long"), {"name": "n", "type": "boolean"})
    stream.send(other_type, ("delete", {"id": 5, "at": 6, "n": True}), {"id": 6, "at": 6, "n": True}, partition=2)
    loader.place = replace(loader.place, conflicts="refuse")
    loader.load(stream)  # The row is refused, and the delete keeps its value.
    assert len(rows(loader, stream)) == 2
    narrow = stream.schemas.add(ID, at_field("int"), TEXT)
    stream.send(narrow, {"id": 3, "at": 1, "text": "x"})
    loader.load(stream)
    assert len(rows(loader, stream)) == 3


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_another_declaration_for_a_table_with_rows_names_the_command_that_makes_it_anew(loader, stream):
    stream.newest_by = ""
    schema = stream.schemas.add(ID, at_field("long"), {**at_field("long"), "name": "sent"})
    loader.place = replace(loader.place, conflicts="refuse")
    for was, now, message in [
        ("", "at", "are ordered by offset, without newest_by, and the topic now declares newest_by='at'"),
        ("at", "", "are ordered by at, and the topic now declares no newest_by"),
        ("at", "sent", "are ordered by at, and the topic now declares newest_by='sent'"),
        ("at", "unknown", "are ordered by at, and the topic now declares newest_by='unknown'"),
    ]:
        stream.newest_by = was
        stream.send(schema, {"id": 1, "at": 1, "sent": 1})
        loader.load(stream)
        stream.newest_by = now
        stream.send(schema, {"id": 1, "at": 1, "sent": 1})
        with pytest.raises(InvalidShape, match=rf"{message}.*reset WAREHOUSE {stream.name} --apply"):
            loader.load(stream)
        with loader.engine.open() as connection:
            reset.apply(connection, loader.engine, HOLDER, 30, reset.plan(connection, loader.engine, stream.name, None))
            load_state.take(connection, loader.engine, HOLDER, 30)
        stream.newest_by = was
        loader.load(stream)
        if not was:  # The next case begins with a table that is ordered.
            with loader.engine.open() as connection:
                for each in reset.plan(connection, loader.engine, stream.name, None):
                    connection.execute(each)


def test_values_that_break_the_copy_are_refused_and_the_rest_is_ordered(loader, stream):
    schema, text_key = at(stream), stream.schemas.add({"name": "id", "type": "string"}, name="Key")
    stream.send(schema, {"id": 1, "at": 5})
    loader.load(stream)
    loader.place = replace(loader.place, conflicts="refuse")
    number, stream.key_id = stream.key_id, text_key
    stream.send(schema, (None, {"id": "x1"}), partition=1)
    stream.key_id = number
    stream.send(schema, {"id": 1, "at": 6}, {"id": 2, "at": 6}, partition=1)
    stream.send(schema, {"id": 2, "at": 7})
    loader.load(stream)
    assert rows(loader, stream) == [(1, 6, 1, 1), (2, 7, 0, 1)]
    place = f"SELECT topic_partition, topic_offset FROM feed_assets.refused WHERE topic = '{stream.name}'"
    assert loader.ask(place) == [(1, 0)]


def test_a_tombstone_has_neither_the_default_nor_the_value_of_another_partition(loader, stream):
    schema = at(stream, type="long", default=9)
    stream.send(schema, {"id": 1, "at": 5})
    loader.load(stream)
    stream.send(schema, (None, {"id": 2}), (None, {"id": 1}), partition=1)
    loader.load(stream)
    assert rows(loader, stream) == [(1, 5, 0, 0)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_topic_gets_more_partitions_and_its_table_continues(broker, registry, local_board, engine, url, monkeypatch):
    monkeypatch.setattr(loaders, "LEASE_SECONDS", 0.0)
    with World.of(broker, registry, local_board.url) as world:
        world.change(newest_by="n")
        world.create()
        loading = loading_of(world.place, url)
        with closing(loading.schemas), world.connector() as running:
            world.produce(5)
            running.wait(world.is_done, "the only partition")
            loaders.once(loading, {world.name: world.settings})
            world.grow(3)
            world.produce(5, partition=2)
            world.send(world.value(0), 0, partition=1)
            world.send(world.value(102), 4, partition=1, op="delete")  # The key of 102 is that of 4.
            world.send(None, 3, partition=1)
            running.wait(lambda: world.is_done(3), "the other partitions")
            loaders.once(loading, {world.name: world.settings})
            assert {key: row[1:2] + row[3:] for key, row in topic_rows(loading.engine, world.name).items()} == {
                "k0": (7, 2, 2), "k1": (8, 2, 3), "k2": (9, 2, 4), "k3": (3, 0, 3), "k5": (5, 2, 0), "k6": (6, 2, 1),
            }  # fmt: skip
            world.change(newest_by="m")
            world.produce()
            running.wait(lambda: world.is_done(3), "one more message")
            with pytest.raises(InvalidShape, match="declares newest_by='m': expected the same"):
                loaders.once(loading, {world.name: world.settings})


@pytest.mark.parametrize("kills", seeds(6, 200))
def test_a_load_by_newest_may_be_killed_at_any_statement(loader, url, fork, local_board, kills):
    loader.place = replace(loader.place, board=local_board)
    stream, ends = OrderedStream(local_board, f"clicks.{uuid4().hex[:12]}", format="both"), set()
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_ordered(stream, chance, "timestamp")
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        ends.add(fork.run(killed_at, url, local_board.url, stream.name, stream.signals, shapes, at, is_after))
        check_winners(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_winners(loader, stream)
