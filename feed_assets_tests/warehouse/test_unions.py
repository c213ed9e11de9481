"""Unions: several topics are loaded into one table."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from feed_assets.core.errors import InvalidName, InvalidShape, KeyStrayed, LoadFailed
from feed_assets.core.sql_text import quoted
from feed_assets.core.topic_unions import TopicUnion
from feed_assets.warehouse import load_state, refused_rows, reset, union_state, union_topics
from feed_assets.warehouse import loader as loaders
from feed_assets.warehouse.engines import Connection
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.load_state import Position
from feed_assets.warehouse.statements import deleted_of
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, World
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import folded, loading_of
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.stream import ID, TEXT
from feed_assets_tests.warehouse.topic_loader import HOLDER, Loader
from feed_assets_tests.warehouse.unions import AT, Union, check_union, produce

KILLED, STATEMENTS = -9, 40


@pytest.mark.parametrize("mode", ["disjoint", "key", "newest", "history"])
@pytest.mark.parametrize("histories", seeds(2, 100))
def test_any_order_of_loads_makes_the_union_of_the_topics(loader: Loader, histories: range, mode: str):
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        union = Union(loader.place.board, "newest" if mode == "history" else mode, is_history=mode == "history")
        union.add("b")
        union.add("a")
        for number in range(3):
            if number == 1:
                union.add("0")  # A topic that is declared later.
            produce(union, chance)
            for stream in chance.sample(union.topics, chance.randint(1, len(union.topics))):
                new = union.new(union.state(loader), stream)
                union.load(loader, stream, *new[: chance.randint(1, len(new))])
                check_union(loader, union)
        for stream in union.topics:
            if union.new(union.state(loader), stream):
                union.load(loader, stream)
            assert union.new(union.state(loader), stream) == []
        check_union(loader, union)


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_two_topics_are_one_table_from_the_broker_on(broker, registry, local_board, engine, url, monkeypatch):
    """A key of both topics is a row of each. Each topic has its own positions."""
    monkeypatch.setattr(loaders, "LEASE_SECONDS", 0.0)
    with ExitStack() as stack:
        worlds = [stack.enter_context(World.of(broker, registry, local_board.url)) for _ in range(2)]
        for number, world in enumerate(worlds, 1):
            world.create(number)
            running = stack.enter_context(world.connector())
            world.produce(12, fields=MORE if number == 2 else FIELDS, partition=number - 1)
            world.send(None, 3, partition=number - 1)
            running.wait(lambda world=world, number=number: world.is_done(number), "all messages")
        loading = loading_of(worlds[0].place, url)
        stack.enter_context(closing(loading.schemas))
        union = TopicUnion({each.name: each.settings for each in worlds}, topic_in_key=True)
        assert loaders.once(loading, {"shop.both": union}) == 2

        def rows() -> list[tuple[Any, ...]]:
            with opened(engine) as connection:
                return connection.execute('SELECT _topic, id, n FROM "shop.both" ORDER BY 1, 2')

        expected = sorted(
            (world.name, row[0], row[1])
            for world, number in zip(worlds, (1, 2), strict=True)
            for row in folded(world, dict.fromkeys(range(number), 99)).values()
        )
        assert rows() == expected
        assert len(expected) == 12
        assert loaders.once(loading, {"shop.both": union}) == 0
        with opened(engine) as connection:
            places = {each.place for each in load_state.tables(connection)}
        assert places == {f"{worlds[0].name}-0", f"{worlds[1].name}-1"}
        worlds[1].send(worlds[1].value(30), 2, partition=1)
        running.wait(lambda: worlds[1].is_done(2), "one more message")
        alone = TopicUnion({worlds[1].name: worlds[1].settings}, topic_in_key=True)
        assert loaders.once(loading, {"shop.both": alone}) == 1  # The rows of a topic that is taken away stay.
        assert [row for row in rows() if row not in expected] == [(worlds[1].name, "k2", 30)]
        assert len(rows()) == 12


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_history_has_the_deletes_of_a_topic_without_values(broker, registry, local_board, engine, url, monkeypatch):
    """They wait for the columns, which another topic brings."""
    with World.of(broker, registry, local_board.url) as deletes, World.of(broker, registry, local_board.url) as values:
        loading = loading_of(deletes.place, url)
        rules = {deletes.name: deletes.settings, values.name: values.settings}
        with closing(loading.schemas):
            table = loaders.follower(None, loading, HOLDER, "both_history", TopicUnion(rules, is_history=True))
            for world, now in ((deletes, 0), (values, 10)):
                world.create()
                world.send(None if world is deletes else world.value(1), 1)
                world.run_until_done()
                table.look(now)
                table.look(now + 5)
            table.look(20)
            with opened(engine) as connection:
                rows = connection.execute('SELECT _topic, _operation, id FROM "both_history" ORDER BY _partition')
            assert rows == [(deletes.name, "delete", "k1"), (values.name, "update", "k1")]
            assert (table.loads, table.waiting, table.progress.records, table.progress.since) == (2, 0, 2, 0)


@pytest.mark.parametrize("kills", seeds(6, 200))
@pytest.mark.parametrize("mode", ["key", "newest"])
def test_a_load_of_a_union_may_be_killed_at_any_statement(loader, url, fork, local_board, kills, mode):
    loader.place = replace(loader.place, board=local_board)
    union, ends = Union(local_board, mode), set[int]()
    union.add("b")
    union.add("a")
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce(union, chance)
        for stream in union.topics:
            part = union.part(union.state(loader), stream)
            shapes = {each: union.shape(part, stream, each) for each in union.registry.known if each != stream.key_id}
            at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
            arguments = url, local_board.url, union.table, stream.signals, shapes
            ends.add(fork.run(killed_at, *arguments, at, is_after, False, "stop", part))
            check_union(loader, union)
    assert KILLED in ends <= {KILLED, 0}
    for stream in union.topics:
        union.load(loader, stream)
    check_union(loader, union)


def test_a_key_of_two_topics_stops_the_table_or_is_refused(loader):
    union = Union(loader.place.board)
    eu, us = union.add("eu"), union.add("us")
    schema = union.registry.add(ID, TEXT)
    eu.send(schema, {"id": 1, "text": "eu"}, {"id": 2, "text": "eu"}, (None, {"id": 2}))
    union.load(loader, eu)
    other = union.registry.add(ID, TEXT, {"name": "n", "type": "int", "default": 5})
    us.send(other, *({"id": number, "text": "us", "n": 1} for number in (1, 2, 3)))
    message = f"the key id 1 comes from partitions {eu.name}-0 and {us.name}-0: expected one.*declare topic_in_key"
    with pytest.raises(KeyStrayed, match=message):
        union.load(loader, us)
    loader.place = replace(loader.place, conflicts="refuse")
    union.load(loader, us)
    eu.send(schema, {"id": 4, "text": "eu"})
    union.load(loader, eu)
    rows = loader.ask(f"SELECT id, text, n, _topic FROM {quoted(union.table)} ORDER BY id")
    expected = [(1, "eu", None, eu.name), (3, "us", 1, us.name), (4, "eu", None, eu.name)]
    assert rows == expected, "a row has the default of another topic's field"
    with loader.engine.open() as connection:
        refused = refused_rows.newest(connection, union.table, 9)
    assert sorted((each.partition, each.offset) for each in refused) == [(1_000_000, 0), (1_000_000, 1)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_an_alias_renames_no_column_of_another_topic(loader):
    union = Union(loader.place.board, "key")
    eu, us = union.add("eu"), union.add("us")
    price = {"name": "price", "type": ["null", "int"], "default": None}
    eu.send(union.registry.add(ID, price), {"id": 1, "price": 1})
    union.load(loader, eu)
    us.send(union.registry.add(ID, price | {"name": "amount", "aliases": ["price"]}), {"id": 1, "amount": 2})
    union.load(loader, us)
    rows = loader.ask(f"SELECT price, amount FROM {quoted(union.table)} ORDER BY _topic")
    assert rows == [(1, None), (None, 2)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
@pytest.mark.parametrize("first", ["number", "text"])
def test_a_field_that_is_a_text_in_one_topic_is_one_in_the_table_whichever_is_loaded_first(loader, first):
    """The ids of two topics' schemas say nothing of their order."""
    union = Union(loader.place.board, "key")
    us, eu = union.add("us"), union.add("eu")
    us.send(union.registry.add(ID, {"name": "x", "type": "string"}), {"id": 1, "x": "a"})
    eu.send(union.registry.add(ID, {"name": "x", "type": "int"}), {"id": 1, "x": 5})
    for stream in (eu, us) if first == "number" else (us, eu):
        union.load(loader, stream)
    assert loader.ask(f"SELECT x FROM {quoted(union.table)} ORDER BY x") == [("5",), ("a",)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_texts_that_have_a_variant_in_a_union_stay_there(loader):
    union = Union(loader.place.board, "key")
    us, eu = union.add("us"), union.add("eu")
    loader.place = replace(loader.place, conflicts="variant")
    text = union.registry.add(ID, {"name": "x", "type": "string"})
    us.send(text, {"id": 1, "x": "a"})
    eu.send(union.registry.add(ID, {"name": "x", "type": "boolean"}), {"id": 1, "x": True})
    eu.send(union.registry.add(ID, {"name": "x", "type": "double"}), {"id": 2, "x": 0.5})
    union.load(loader, eu)
    union.load(loader, us)
    rows = loader.ask(f"SELECT x, x__double FROM {quoted(union.table)} ORDER BY _topic, id")
    assert (None, 0.5) in rows
    assert len(rows) == 3
    columns = [row[0] for row in loader.ask(f"DESCRIBE {quoted(union.table)}")]
    assert "x__text" in columns


def test_one_topic_is_made_anew_and_keeps_its_number(loader):
    union = Union(loader.place.board)
    eu, us = union.add("eu"), union.add("us")
    schema = union.registry.add(ID, TEXT)
    eu.send(schema, {"id": 1, "text": "eu"})
    us.send(schema, {"id": 5, "text": "us"}, {"id": 6, "text": "us"}, (None, {"id": 6}))
    for each in union.topics:
        each.signals[:] = [Signalled(replace(signal, topic_id="of the topic"), at) for signal, at in each.signals]
        union.load(loader, each)
    reset_by(loader, lambda connection: reset.plan_topic(connection, loader.engine, union.table, us.name))
    assert loader.ask(f"SELECT id FROM {quoted(union.table)}") == [(1,)]
    assert loader.ask(f"SELECT id FROM {deleted_of(union.table)}") == []
    ids = union_topics.ids_in(union.table, union.state(loader).topic_id)
    assert (ids[eu.name], ids[us.name]) == ("of the topic", None), "a recreated topic would be refused"
    union.topics.reverse()  # The declaration may change its order: the table's numbers stay.
    assert [len(union.new(union.state(loader), each)) for each in (us, eu)] == [1, 0]
    union.load(loader, us)
    union.topics.reverse()
    check_union(loader, union)
    reset_by(loader, lambda connection: reset.plan(connection, loader.engine, union.table, reset.STOP))
    union.topics.reverse()
    us.send(schema, {"id": 7, "text": "us"})
    union.load(loader, us)
    assert loader.ask(f"SELECT id, _partition FROM {quoted(union.table)}") == [(7, 1_000_000)]
    with loader.engine.open() as connection, pytest.raises(InvalidName, match="has no topic 'x': expected one of eu"):
        reset.plan_topic(connection, loader.engine, union.table, "x")


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_what_a_union_cannot_do_is_refused_with_what_to_do(loader):
    union = Union(loader.place.board, "newest")
    eu = union.add("eu")
    eu.send(union.registry.add(ID, AT), {"id": 1, "at": 1})
    union.load(loader, eu)
    with loader.engine.open() as connection, pytest.raises(InvalidName, match="they would not come back"):
        reset.plan_topic(connection, loader.engine, union.table, eu.name)
    for state, is_union, message in [
        (
            union.state(loader),
            False,
            "was loaded from a union of topics, and is now declared as the table of one topic",
        ),
        (load_state.TopicState(topic_id="x", positions={0: Position(1, 1)}), True, "was loaded from one topic"),
    ]:
        with pytest.raises(InvalidShape, match=message):
            union_state.check_kind(union.table, state, is_union=is_union)
    odd = replace(union.state(loader), positions={1_000_000: Position(1, 1)})
    with pytest.raises(
        LoadFailed, match="positions was altered by somebody else: found 1000000; expected partitions of"
    ):
        union_state.with_topics(union.table, odd, [eu.name])
    eu.send(union.registry.add(ID, AT, {"name": "_topic", "type": "string"}), {"id": 1, "at": 1, "_topic": "x"})
    with pytest.raises(InvalidShape, match="has a field _topic: that is a column of the union's table"):
        union.load(loader, eu)


def reset_by(loader: Loader, plan: Callable[[Connection], list[str]]) -> None:
    with loader.engine.open() as connection:
        for each in plan(connection):
            connection.execute(each)
