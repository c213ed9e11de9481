"""Rows that a table cannot take: by the topic's choice the table stops, or they are refused and it continues."""

from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import KeyStrayed, LoadFailed, NotMigratable
from feed_assets.core.topics import Conflicts
from feed_assets.warehouse import load_state
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.warehouse.conflicting_chunks import (
    BAD_KEY,
    FITS,
    LATER,
    OTHER_TYPE,
    ConflictStream,
    check_conflicts,
    produce_conflicts,
)
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.stream import ID
from feed_assets_tests.warehouse.topic_loader import Loader

KILLED, STATEMENTS = -9, 40


@pytest.fixture
def stream(loader: Loader) -> ConflictStream:
    return ConflictStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")


def refusing(loader: Loader, conflicts: Conflicts = "refuse") -> Loader:
    loader.place = replace(loader.place, conflicts=conflicts)
    return loader


@pytest.mark.parametrize(
    ("rows", "name", "error"),
    [
        ([("update", {"id": 1, "n": 2})], FITS, KeyStrayed),
        ([("update", {"id": 2, "n": True})], OTHER_TYPE, NotMigratable),
        ([(BAD_KEY, {"id": 2})], FITS, LoadFailed),
    ],
)
def test_a_conflict_stops_the_table_or_its_row_is_refused(loader, stream, rows, name, error):
    stream.produce(FITS, ("update", {"id": 1, "n": 1}))
    loader.load(stream)
    before = loader.known(stream)
    stream.produce(FITS, ("update", {"id": 3, "n": 3}), partition=1)
    stream.produce(name, *rows, partition=1)
    stream.produce(FITS, ("update", {"id": 4, "n": 4}), partition=1)
    for _ in range(2):
        with pytest.raises(error):
            loader.load(stream, *stream.signals[1:])
    assert loader.known(stream).shape == before.shape
    refusing(loader).load(stream)
    check_conflicts(loader, stream)
    assert loader.ask(f'SELECT id FROM "{stream.name}" ORDER BY id') == [(1,), (3,), (4,)]


@pytest.mark.parametrize("histories", seeds(2, 60))
def test_refused_rows_are_those_of_an_oracle(loader, histories):
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        refusing(loader, chance.choice(["refuse", "variant"]))
        stream = ConflictStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")
        for _ in range(5):
            produce_conflicts(stream, chance)
            loader.load(stream)
            check_conflicts(loader, stream)


@pytest.mark.parametrize("conflicts", ["refuse", "variant"])
@pytest.mark.parametrize("kills", seeds(8, 200))
def test_a_load_that_refuses_rows_may_be_killed_at_any_statement(loader, url, fork, local_board, kills, conflicts):
    loader.place = replace(loader.place, board=local_board, conflicts=conflicts)
    stream, ends = ConflictStream(local_board, f"clicks.{uuid4().hex[:12]}"), set()
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_conflicts(stream, chance)
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        arguments = (url, local_board.url, stream.name, stream.signals, shapes, at, is_after, False, conflicts)
        ends.add(fork.run(killed_at, *arguments))
        check_conflicts(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_conflicts(loader, stream)


def test_refused_rows_that_are_committed_before_their_positions_are_caught(loader, url, fork, local_board):
    loader.place = replace(loader.place, board=local_board, conflicts="refuse")
    stream = ConflictStream(local_board, f"clicks.{uuid4().hex[:12]}")
    stream.produce(FITS, ("update", {"id": 1, "n": 1}))
    loader.load(stream)
    stream.produce(OTHER_TYPE, ("update", {"id": 2, "n": True}))
    shapes = {each: stream.shape(each) for each in stream.schemas.known}
    at = "INSERT INTO feed_assets.tables"
    arguments = (url, local_board.url, stream.name, stream.signals, shapes, at, False, True, "refuse")
    assert fork.run(killed_at, *arguments) == KILLED
    with pytest.raises(AssertionError, match="other rows are refused"):
        check_conflicts(loader, stream)


def test_a_field_of_another_type_gets_a_column_of_its_own_which_stays(loader, stream):
    refusing(loader, "variant")
    stream.produce(FITS, ("update", {"id": 1, "n": 1}))
    stream.produce(OTHER_TYPE, ("update", {"id": 2, "n": True}), ("update", {"id": 3, "n": False}))
    stream.produce(FITS, ("update", {"id": 3, "n": 3}))
    stream.produce(LATER, ("update", {"id": 4, "n": 4, "m": "x"}))
    stream.produce(OTHER_TYPE, ("update", {"id": 5, "n": True}))
    dropped = stream.schemas.add(ID)
    loader.load(stream)
    check_conflicts(loader, stream)
    stream.send(dropped, ("update", {"id": 6}))
    loader.load(stream)
    rows = loader.ask(f'SELECT id, n, n__boolean FROM "{stream.name}" ORDER BY id')
    assert rows == [(1, 1, None), (2, None, True), (3, 3, None), (4, 4, None), (5, None, True), (6, None, None)]
    stream.send(stream.schemas.add(ID, {"name": "n", "type": "double"}), ("update", {"id": 7, "n": 0.5}))
    with pytest.raises(NotMigratable):
        refusing(loader, "stop").load(stream)
    refusing(loader, "variant").load(stream)
    found = loader.ask(f'SELECT n, n__boolean, n__double FROM "{stream.name}" WHERE id = 7')
    assert found == [(None, None, 0.5)]


def test_state_tables_of_an_earlier_version_are_read_and_get_their_column(loader, stream):
    loader.ask("ALTER TABLE feed_assets.refused DROP COLUMN row_json")
    with loader.engine.open() as connection:
        assert load_state.exists(connection, loader.engine)
        assert load_state.tables(connection) is not None
        load_state.prepare(connection, loader.engine)
    stream.produce(FITS, ("update", {"id": 1, "n": 1}))
    stream.produce(OTHER_TYPE, ("update", {"id": 2, "n": True}))
    refusing(loader).load(stream)
    check_conflicts(loader, stream)
