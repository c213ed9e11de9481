"""The loader over a real broker: from the state tables on, through new schemas, failures and other loaders."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from time import time

import pytest

from feed_assets.core.errors import (
    ChunkBroken,
    LogTrimmed,
    NotMigratable,
    OffsetsMissing,
    WarehouseTaken,
    WarehouseUnavailable,
)
from feed_assets.core.topics import signals_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import load_state, loader, refused_rows
from feed_assets.warehouse.table import Loading, TopicTable
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.kafka_topics import MORE, World
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import check, loading_of, nexts, rows
from feed_assets_tests.warehouse.loader_thread import loading_in_thread, value_of_other_type


@pytest.fixture
def world(broker, registry, local_board: Blackboard) -> Iterator[World]:
    with World.of(broker, registry, local_board.url) as made:
        made.create()
        yield made


@pytest.fixture
def loading(world: World, url: str) -> Iterator[Loading]:
    engine = engine_of(url)
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        connection.execute("DELETE FROM feed_assets.lease")
    made = loading_of(world.place, url)
    with closing(made.schemas):
        yield made


def load(loading: Loading, *worlds: World) -> int:
    return loader.once(loading, {each.name: each.settings for each in worlds})


def test_a_table_follows_its_topic(world, loading):
    assert load(loading, world) == 0
    world.produce(15)
    world.run_until_done()
    assert load(loading, world) == 1
    check(world, loading.engine)
    world.produce(5, fields=MORE)
    world.produce(5)
    world.send(None, 3)
    world.send(world.value(4), 4, op="delete")
    world.run_until_done()
    assert load(loading, world) == 1  # The older schema's rows fit into the table that the newer one has changed.
    check(world, loading.engine)
    assert (len(rows(loading.engine, world.name)), load(loading, world)) == (5, 0)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_load_takes_the_configured_number_of_chunks(world, loading):
    few = replace(loading, warehouse=loading.warehouse.model_copy(update={"chunks": 2}))
    world.produce(45)
    world.run_until_done()
    assert load(few, world) == 3
    check(world, loading.engine)


def test_a_service_loads_what_comes_and_leaves_its_lease(world, loading, monkeypatch, capsys):
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(loader, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(loader, "SAY_SECONDS", 0.1)
    began, figures = time(), dict[str, float]()
    with world.connector() as connector, loading_in_thread(loading, world, figures=figures) as ended:
        for _ in range(2):
            world.produce(12)
            end = world.end()
            wait_until(
                lambda end=end: bool(ended) or nexts(loading.engine, world.name) == {0: end},
                "all to be loaded",
                60,
                0.1,
            )
        monkeypatch.setattr(loader, "LEASE_SECONDS", 30)
        with pytest.raises(WarehouseTaken, match="loads this warehouse, and was last seen at"):
            load(loading, world)
        wait_until(lambda: (figures["chunks_waiting"], connector.figures["messages_behind"]) == (0, 0), "both", 60)
    check(world, loading.engine)
    assert ended == []
    assert (figures["tables"], figures["tables_stopped"], connector.figures["partitions"]) == (1, 0, 1)
    assert min(figures["last_load_timestamp_seconds"], connector.figures["last_signal_timestamp_seconds"]) >= began
    assert (figures["records_total"], connector.figures["messages_total"]) == (24, 24)
    assert connector.figures["chunks_total"] >= figures["loads_total"] >= 2
    waited = figures["unloaded_since_timestamp_seconds"], connector.figures["unsignalled_since_timestamp_seconds"]
    assert waited == (0, 0), "all is signalled and loaded"
    assert 0 < max(figures["load_latency_seconds"], connector.figures["signal_latency_seconds"]) < time() - began
    assert re.search(r"warehouse main: 1 table, in \d+ s [12] loads?; \d chunks wait", capsys.readouterr().err)
    assert load(loading, world) == 0


def test_a_loader_that_has_nothing_to_load_renews_its_lease(world, loading, monkeypatch):
    def seen():
        with opened(loading.engine) as connection:
            return next(iter(connection.execute("SELECT holder, seen_at FROM feed_assets.lease")), ("", None))

    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(loader, "RENEW_SECONDS", 0.05)
    with loading_in_thread(loading, world) as ended:
        wait_until(lambda: bool(seen()[0]), "the loader to begin")
        holder, at = seen()
        wait_until(lambda: bool(ended) or seen()[1] > at, "a sign of life")
        assert (seen()[0], ended) == (holder, [])


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_limits_of_the_settings_are_those_of_a_table(world, loading):
    """Test `seconds` with an injected clock, and `deleted_days` by the remembered keys."""
    told = loading.warehouse.model_copy(update={"seconds": 1000, "deleted_days": 2})
    with opened(loading.engine) as connection:
        load_state.take(connection, loading.engine, "the test", 30)
        table = TopicTable(
            replace(loading, warehouse=told), "the test", world.name, world.settings, load_state.TopicState()
        )
    world.produce(1)
    deleted, remembered = f'feed_assets_deleted."{world.name}"', []
    for number, hours in ((1, 47), (2, 2), (3, 0)):
        world.send(None, number)
        world.run_until_done()
        for seconds, count in ((0, number - 1), (999, number - 1), (1001, number)):
            table.look(10_000.0 * number + seconds)
            assert table.loads == count
        with opened(loading.engine) as connection:
            remembered += connection.execute(f"SELECT count(*) FROM {deleted}")
            connection.execute(f"UPDATE {deleted} SET _deleted_at = _deleted_at - INTERVAL '{hours} hours'")
    assert remembered == [(1,), (2,), (2,)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_a_topic_that_was_made_anew_is_not_loaded_into_the_table_of_the_old_one(world, loading):
    world.produce(25)
    world.run_until_done()
    load(loading, world)
    for name in (world.name, signals_of(world.name)):
        world.delete(name)
    world.create()
    world.produce(12)
    world.board.delete(world.files())
    world.run_until_done()
    with pytest.raises(LogTrimmed, match="deleted and recreated: expected the topic from which its table was loaded"):
        load(loading, world)
    assert nexts(loading.engine, world.name) == {0: 25}


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_an_invalid_signal_is_skipped_with_a_message(world, loading, capsys):
    world.produce(25)
    world.run_until_done()
    forged = replace(world.signals()[-1], partition=1, path=None, records=0).encoded(1)
    for stray in (b"stray", forged):
        world.producer.produce(signals_of(world.name), stray, partition=0)
    world.producer.flush(30)
    load(loading, world)
    check(world, loading.engine)
    said = capsys.readouterr().err
    assert "is skipped, because it is not a signal: b'stray'" in said
    assert f"is skipped, because it is not a signal: it is about {world.name}/1: expected {world.name}/0" in said


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_table_that_cannot_go_on_stops_alone(world, broker, registry, loading, monkeypatch, capsys):
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.05)
    world.produce(5)
    world.run_until_done()
    with World.of(broker, registry, world.board.url) as other:
        other.create()
        other.produce(5)
        other.run_until_done()
        path = (other.signals()[0].path or "").removeprefix(f"{other.board.url}/")
        content = other.board.get(path)
        other.board.delete([path])
        with pytest.raises(ChunkBroken, match="is missing"):
            load(loading, other, world)
        check(world, loading.engine)
        assert rows(loading.engine, other.name) == {}
        with opened(loading.engine) as connection:
            problems = {each.topic: each.problem for each in load_state.tables(connection)}
        assert problems[world.name] is None
        assert "is missing: expected" in problems[other.name]
        with loading_in_thread(loading, other) as ended:
            wait_until(lambda: bool(ended), "the loader to end")
        assert isinstance(ended[0], ChunkBroken)
        assert f"does not load {other.name} any more" in capsys.readouterr().err
        other.board.put(path, content)
        load(loading, other)
        check(other, loading.engine)
        with opened(loading.engine) as connection:
            problems = {each.topic: each.problem for each in load_state.tables(connection)}
        assert [problems[each.name] for each in (world, other)] == [None, None]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_schema_that_cannot_be_followed_is_refused_with_both(world, loading):
    world.produce(1)
    world.run_until_done()
    load(loading, world)
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    world.producer.flush(30)
    world.run_until_done()
    with pytest.raises(
        NotMigratable, match=r"n was bigint and is boolean.* The table is \(id text not null, n bigint"
    ) as refused:
        load(loading, world)
    assert str(refused.value).startswith(f"{world.name}: ")
    assert f"`feed-assets warehouse load {loading.name} {world.name} --once --refuse` continues" in str(refused.value)
    world.produce(1)
    world.run_until_done()
    world.settings = world.settings.model_copy(update={"conflicts": "refuse"})
    assert load(loading, world) == 1
    with opened(loading.engine) as connection:
        [row] = refused_rows.newest(connection, world.name, 10)
    assert "n was bigint and is boolean" in row.reason
    assert json.loads(row.row) == {"id": "k1", "n": "true"}
    assert nexts(loading.engine, world.name) == {0: world.end()}


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_service_waits_for_an_unavailable_server(world, loading, monkeypatch, capsys):
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.05)
    world.produce(5)
    world.run_until_done()
    failures = iter([True, True, False, True])
    look = TopicTable.look

    def looked(self, now):
        if next(failures, False):
            raise WarehouseUnavailable("it is away")
        return look(self, now)

    monkeypatch.setattr(TopicTable, "look", looked)
    with loading_in_thread(loading, world) as ended:
        wait_until(lambda: bool(ended) or nexts(loading.engine, world.name) == {0: 5}, "all to be loaded", 60, 0.1)
    assert ended == []
    assert "warehouse main: waits 0.05 s, then tries again: it is away" in capsys.readouterr().err
    check(world, loading.engine)


def test_a_commit_whose_answer_was_lost_is_found_in_the_state_tables(world, loading, monkeypatch):
    monkeypatch.setattr(loader, "LOOK_SECONDS", 0.05)
    world.produce(5)
    world.run_until_done()
    with opened(loading.engine) as connection:
        kind = type(connection)
    execute, lost = kind.execute, []

    def executed(self, statement):
        found = execute(self, statement)
        if statement == "COMMIT" and not lost:
            lost.append(nexts(loading.engine, world.name) if loading.engine.has_keys else "done")
            raise WarehouseUnavailable("the connection was reset")
        return found

    monkeypatch.setattr(kind, "execute", executed)
    counted = []
    monkeypatch.setattr(loader.load_state, "note", lambda *_: counted.append(1))
    with loading_in_thread(loading, world) as ended:
        wait_until(lambda: bool(lost), "the answer to be lost")
        world.produce(5)
        world.run_until_done()
        wait_until(lambda: bool(ended) or nexts(loading.engine, world.name) == {0: 10}, "all to be loaded", 60, 0.1)
    assert (ended, counted) == ([], [])
    check(world, loading.engine)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("signal_offset", [1, 1000])
def test_signals_whose_places_are_wrong_are_read_again_from_the_beginning(world, loading, signal_offset, capsys):
    world.produce(25)
    world.run_until_done()
    load(loading, world)
    world.produce(20)
    world.run_until_done()
    with opened(loading.engine) as connection:
        moved = len(world.messages(signals_of(world.name))) * 2 if signal_offset == 1 else signal_offset
        connection.execute(f"UPDATE feed_assets.positions SET signal_offset = {moved - 2} WHERE topic = '{world.name}'")
    load(loading, world)
    check(world, loading.engine)
    assert nexts(loading.engine, world.name) == {0: world.end()}
    assert f"reads the signals of {world.name} from their beginning" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_missing_signals_stop_the_table(world, loading):
    world.produce(5)
    world.run_until_done()
    load(loading, world)
    world.produce(25)
    world.run_until_done()
    with opened(loading.engine) as connection:
        connection.execute(f"UPDATE feed_assets.positions SET next_offset = 3 WHERE topic = '{world.name}'")
    remove_signals(world, 4)
    with pytest.raises(OffsetsMissing, match=f"{world.name}/0 continues at offset"):
        load(loading, world)


def remove_signals(world: World, before: int) -> None:
    from confluent_kafka import TopicPartition

    place = TopicPartition(signals_of(world.name), 0, before)
    world.admin.delete_records([place])[place].result(120)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_the_plan_shows_the_changes_of_a_table(world, loading):
    world.produce(3)
    world.produce(3, fields=MORE)
    world.produce(3)
    world.run_until_done()
    with opened(loading.engine) as connection:
        table = TopicTable(loading, "nobody", world.name, world.settings, load_state.read(connection, world.name))
    created, altered = table.plan()
    name = f'"public"."{world.name}"'
    assert created.statements[0].startswith(f'CREATE TABLE {name} ("id" text NOT NULL, "n" bigint NOT NULL')
    assert altered.statements == (f'ALTER TABLE {name} ADD COLUMN "note" text',)
    load(loading, world)
    assert [*TopicTable(loading, "nobody", world.name, world.settings, known(loading, world)).plan()] == []


def known(loading: Loading, world: World) -> load_state.TopicState:
    with opened(loading.engine) as connection:
        return load_state.read(connection, world.name)
