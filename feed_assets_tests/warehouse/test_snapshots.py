"""Marked snapshots remove the rows of their partition that they did not name, and end their versions in histories."""

from contextlib import closing
from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import LoadFailed
from feed_assets.core.sql_text import quoted
from feed_assets.kafka.dead_letters import settle
from feed_assets.warehouse import loader as loaders
from feed_assets.warehouse import reset, snapshots
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.snapshots import Snapshot, SnapshotProgress, progress
from feed_assets.warehouse.statements import deleted_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.kafka_topics import POISON, World
from feed_assets_tests.support.warehouse_topics import loading_of
from feed_assets_tests.support.warehouse_topics import rows as topic_rows
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.snapshot_chunks import (
    STATEMENTS,
    Sent,
    SnapshotStream,
    check_snapshots,
    ended_before,
    produce_snapshots,
)
from feed_assets_tests.warehouse.stream import ID, TEXT

KILLED = -9
BEGIN, END = Sent(None, None, "begin"), Sent(None, None, "end")


def stream_on(board, *, is_history: bool = False) -> SnapshotStream:
    stream = SnapshotStream(board, f"clicks.{uuid4().hex[:12]}{'_history' if is_history else ''}", format="both")
    stream.is_history = is_history
    return stream


@pytest.fixture(autouse=True)
def _marked(loader):
    loader.place = replace(loader.place, has_snapshots=True)
    with loader.engine.open() as connection:
        snapshots.prepare(connection, loader.engine)


@pytest.fixture
def stream(loader) -> SnapshotStream:
    return stream_on(loader.place.board)


def rows(loader, stream) -> list:
    return loader.ask(f"SELECT id, _partition, _offset FROM {quoted(stream.name)} ORDER BY id")


@pytest.mark.parametrize("is_history", [False, True])
@pytest.mark.parametrize("lives", seeds(3, 100))
def test_any_groups_of_loads_make_the_table_of_the_oracle(loader, lives, is_history):
    ended = 0
    for seed in lives:
        chance = Random(seed)  # noqa: S311
        stream = stream_on(loader.place.board, is_history=is_history)
        stream.produce(stream.schemas.add(ID, TEXT), Sent(0), Sent(2), Sent(4))  # It makes the table.
        for _ in range(4):
            produce_snapshots(stream, chance)
        due = [*stream.signals]
        while due:
            count = chance.randint(1, 4)
            loader.load(stream, *due[:count])
            check_snapshots(loader, stream)
            due = due[count:]
        loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
        loader.load(stream, *stream.signals)
        check_snapshots(loader, stream)
        ended += len(ended_before(stream, stream.ends))
    assert ended > 2


@pytest.mark.parametrize("is_history", [False, True])
@pytest.mark.parametrize("kills", seeds(6, 200))
def test_a_load_with_snapshots_may_be_killed_at_any_statement(loader, url, fork, local_board, kills, is_history):
    loader.place = replace(loader.place, board=local_board)
    stream, ends = stream_on(local_board, is_history=is_history), set()
    stream.produce(stream.schemas.add(ID, TEXT), Sent(0), Sent(2), Sent(4))
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_snapshots(stream, chance)
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        place = (url, local_board.url, stream.name, stream.signals, shapes, at, is_after)
        ends.add(fork.run(killed_at, *place, False, "stop", None, True))
        check_snapshots(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_snapshots(loader, stream)


def test_a_removed_row_does_not_come_back_and_refused_rows_or_resets_stop_removals(loader, stream):
    schema, refused = stream.schemas.add(ID, TEXT), f"feed_assets.refused WHERE topic = '{stream.name}'"
    stream.produce(schema, Sent(1), Sent(2), Sent(3))
    stream.produce(schema, Sent(2, "refresh", "begin"), Sent(4), Sent(3, None), END)
    loader.load(stream)
    assert rows(loader, stream) == [(2, 0, 3), (4, 0, 4)]
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    loader.load(stream, stream.signals[0])
    assert rows(loader, stream) == [(2, 0, 3), (4, 0, 4)]
    assert loader.ask(f"SELECT id, _offset FROM {deleted_of(stream.name)} ORDER BY id") == [(1, 2), (3, 5)]
    loader.load(stream)
    place = f"'{stream.name}', 0, 4, 'too long', {loader.engine.now}"
    loader.ask(
        f"INSERT INTO feed_assets.refused (topic, topic_partition, topic_offset, reason, refused_at) VALUES ({place})"
    )
    stream.produce(schema, BEGIN, Sent(5))
    loader.load(stream)
    loader.ask(f"DELETE FROM {refused}")  # Somebody drops the refused rows before the end is loaded.
    stream.produce(schema, END)
    loader.load(stream)
    assert rows(loader, stream) == [(2, 0, 3), (4, 0, 4), (5, 0, 8)]
    stream.produce(schema, BEGIN, Sent(6))
    loader.load(stream)
    stream.produce(schema, END)
    loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
    loader.load(stream, stream.signals[-1])  # Nobody knows what is between the begin and the first position.
    assert rows(loader, stream) == [(2, 0, 3), (4, 0, 4), (5, 0, 8), (6, 0, 11)]
    stream.produce(schema, BEGIN)
    loader.load(stream)
    with loader.engine.open() as connection:
        for each in reset.plan(connection, loader.engine, stream.name, reset.STOP):
            connection.execute(each)
    stream.produce(schema, Sent(7), END, Sent(8))
    loader.load(stream)
    assert rows(loader, stream) == [(7, 0, 14), (8, 0, 16)]
    assert loader.ask(f"SELECT * FROM feed_assets.snapshots WHERE topic = '{stream.name}'") == []


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_snapshots_that_somebody_else_has_altered_stop_the_table(loader, stream):
    schema = stream.schemas.add(ID, TEXT)
    stream.produce(schema, Sent(1))
    loader.load(stream)
    loader.ask(f"INSERT INTO feed_assets.snapshots VALUES ('{stream.name}', 0, -5, NULL)")
    stream.produce(schema, END)
    with pytest.raises(LoadFailed, match=r"feed_assets\.snapshots was altered by somebody else"):
        loader.load(stream)
    assert rows(loader, stream) == [(1, 0, 0)]


@pytest.mark.parametrize("url", ["duckdb"], indirect=True)
def test_connector_loader_and_replays_follow_markers(broker, registry, local_board, engine, url, monkeypatch):
    monkeypatch.setattr(loaders, "LEASE_SECONDS", 0.0)
    with World.of(broker, registry, local_board.url) as world:
        world.change(snapshot_markers="header:mark")
        world.create()
        loading = loading_of(world.place, url)

        def mark(word: str, value: bytes | None = None) -> None:
            key = world.key(1) if value else None
            world.producer.produce(world.name, value, key, 0, headers=[("op", b"update"), ("mark", word.encode())])
            assert world.producer.flush(30) == 0

        def keys_then(*partitions: int) -> set:
            running.wait(lambda: world.is_done(*partitions), "the chunks")
            loaders.once(loading, {world.name: world.settings})
            return {*topic_rows(loading.engine, world.name)}

        with closing(loading.schemas), world.connector() as running:
            world.produce(3)
            mark("begin")
            world.send(world.value(1), 1)
            assert keys_then() == {"k0", "k1", "k2"}
            mark("end")
            assert keys_then() == {"k1"}
            mark("begin")
            assert keys_then() == {"k1"}
            world.change(snapshot_markers=None)
            world.send(POISON, 2)  # It may be the row of k1.
            assert keys_then() == {"k1"}
            world.change(snapshot_markers="header:mark")
            mark("end")
            assert keys_then() == {"k1"}
            mark("begin", POISON)
            running.wait(world.is_done, "the dead letter")
            assert settle(world.place.chunking().clients, world.name, produces=True, has_markers=True) == 2
            assert world.messages()[-1].headers()[-2:] == [("mark", b"begin"), ("feed_assets.replayed", b"1")]
            world.change(snapshot_markers="debezium")
            assert keys_then() == {"k1"}
            world.grow(2)
            world.produce(1)  # The second partition has no signal yet.
            with pytest.raises(LoadFailed, match=f"{world.name} has 2 partitions, and snapshot_markers is 'debezium'"):
                keys_then()


def chunks(marks: str) -> list[Signalled]:
    """Return signals of chunks of ten messages: b begins, e ends, w is whole, x has a dead letter, . is plain."""
    board = SnapshotStream(None, "clicks")  # type: ignore[arg-type]
    for each in marks:
        signalled = board.quiet(10)
        begins, ends, dead = each in "bw", each in "ew", int(each == "x")
        fields = {**vars(signalled.signal), "snapshot_begins": begins, "snapshot_ends": ends, "dead_letters": dead}
        board.signals[-1] = signalled._replace(signal=type(signalled.signal)(**fields))
    return board.signals


@each_case(
    "opened, marks, expected",
    [
        ({}, "..", SnapshotProgress({}, [], [])),
        ({}, ".b.e", SnapshotProgress({}, [Snapshot(0, 10, 40)], [])),
        ({}, ".w.", SnapshotProgress({}, [Snapshot(0, 10, 20)], [])),
        ({}, "b.b.e", SnapshotProgress({}, [Snapshot(0, 20, 50)], [])),
        ({}, "beb", SnapshotProgress({0: 20}, [Snapshot(0, 0, 20)], [])),
        ({}, ".e", SnapshotProgress({}, [], [])),
        ({}, "bee", SnapshotProgress({}, [Snapshot(0, 0, 20)], [])),
        ({}, "bx.e", SnapshotProgress({}, [], [(0, 0)])),
        ({}, "xbe", SnapshotProgress({}, [Snapshot(0, 10, 30)], [])),
        ({}, "bxbe", SnapshotProgress({}, [Snapshot(0, 20, 40)], [(0, 0)])),
        ({0: 0}, ".e", SnapshotProgress({}, [Snapshot(0, 0, 20)], [])),
        ({0: 100}, "xe", SnapshotProgress({0: 100}, [], [])),
    ],
)
def test_begins_ends_and_dead_letters_of_chunks(opened, marks, expected):
    assert progress(opened, chunks(marks)) == expected
