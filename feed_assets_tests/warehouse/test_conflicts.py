"""Rows that a table cannot take: by the topic's choice the table stops, or they are refused and it continues."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import KeyStrayed, LoadFailed, NotMigratable
from feed_assets.warehouse import load_state
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.forked_processes import Forks, forks
from feed_assets_tests.warehouse.conflicting_chunks import (
    BAD_KEY,
    FITS,
    OTHER_TYPE,
    ConflictStream,
    check_conflicts,
    produce_conflicts,
)
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.topic_loader import Loader

KILLED, STATEMENTS = -9, 40


@pytest.fixture(scope="module")
def fork() -> Iterator[Forks]:
    with forks() as made:
        yield made


@pytest.fixture
def stream(loader: Loader) -> ConflictStream:
    return ConflictStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")


def refusing(loader: Loader) -> Loader:
    loader.place = replace(loader.place, conflicts="refuse")
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
    refusing(loader)
    for seed in histories:
        chance = Random(seed)  # noqa: S311
        stream = ConflictStream(loader.place.board, f"clicks.{uuid4().hex[:12]}")
        for _ in range(5):
            produce_conflicts(stream, chance)
            loader.load(stream)
            check_conflicts(loader, stream)


@pytest.mark.parametrize("kills", seeds(8, 200))
def test_a_load_that_refuses_rows_may_be_killed_at_any_statement(loader, url, fork, local_board, kills):
    loader.place = replace(loader.place, board=local_board, conflicts="refuse")
    stream, ends = ConflictStream(local_board, f"clicks.{uuid4().hex[:12]}"), set()
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_conflicts(stream, chance)
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        shapes = {each: stream.shape(each) for each in stream.schemas.known}
        arguments = (url, local_board.url, stream.name, stream.signals, shapes, at, is_after, False, "refuse")
        ends.add(fork.run(killed_at, *arguments))
        check_conflicts(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_conflicts(loader, stream)


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
