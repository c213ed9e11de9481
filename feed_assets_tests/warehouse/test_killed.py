"""A loader killed at any statement: after every restart the table matches its positions."""

from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.sql_text import quoted
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.warehouse.lives import killed_at
from feed_assets_tests.warehouse.migrations import MIGRATIONS, rows_by_id
from feed_assets_tests.warehouse.random_chunks import STATEMENTS, check_fold, produce_chunks
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import Loader

KILLED = -9


@pytest.fixture
def stream(loader: Loader, local_board) -> Stream:
    """Return a topic whose chunks other processes can read."""
    loader.place = type(loader.place)(loader.engine, local_board, loader.place.holder, 7)
    return Stream(local_board, f"clicks.{uuid4().hex[:12]}", format="both")


def life(loader: Loader, stream: Stream, url: str, fork: Forks, at: int | str, **how: bool) -> int:
    shapes = {each: stream.shape(each) for each in stream.schemas.known}
    return fork.run(killed_at, url, stream.board.url, stream.name, stream.signals, shapes, at, *how.values())


@pytest.mark.parametrize("kills", seeds(8, 200))
def test_load_of_a_topic_may_be_killed_at_any_statement(loader, stream, url, fork, kills):
    ends = set()
    for seed in kills:
        chance = Random(seed)  # noqa: S311
        produce_chunks(stream, chance)
        at, is_after = chance.randint(1, STATEMENTS), chance.random() < 0.5
        ends.add(life(loader, stream, url, fork, at, is_after=is_after))
        check_fold(loader, stream)
    assert KILLED in ends <= {KILLED, 0}
    loader.load(stream)
    check_fold(loader, stream)
    assert {number: each.next_offset for number, each in loader.known(stream).positions.items()} == stream.ends


POINTS = [
    ("ALTER", False),
    ("ALTER", True),
    ("CREATE TEMP", True),
    ("INSERT INTO feed_assets.positions", True),
    ("COMMIT", False),
    ("COMMIT", True),
]
"""Points of a kill: before a statement, or after it."""

CASES = [(name, *point) for name in MIGRATIONS for point in POINTS]
SOME = CASES[::11]
"""Each point, with another migration."""


@pytest.mark.parametrize(
    ("name", "at", "is_after"), [pytest.param(*each, marks=[] if each in SOME else pytest.mark.soak) for each in CASES]
)
def test_a_kill_in_a_migration_leaves_the_old_or_the_new_table(loader, stream, url, fork, name, at, is_after):
    old_fields, old, new_fields, new, expected = MIGRATIONS[name]
    first, second = stream.schemas.add(ID, *old_fields), stream.schemas.add(ID, *new_fields)
    stream.send(first, {"id": 1, **old})
    loader.load(stream)
    stream.send(second, {"id": 2, **new})
    stream.send(first, {"id": 3, **old}, (None, {"id": 1}))
    is_there = life(loader, stream, url, fork, at, is_after=is_after) == KILLED
    assert is_there or at == "ALTER", "a migration without one"
    if is_there:
        is_new = (at, is_after) == ("COMMIT", True)
        assert (loader.known(stream).schema_id == second) == is_new
        # The load of the new schema has the rows of the old one, too, if they fit into the changed table.
        possible = [{1: expected, 2: new}, {2: new, 3: expected}] if is_new else [{1: old}]
        assert rows_by_id(loader, stream) in possible
    loader.load(stream)
    assert rows_by_id(loader, stream) == {2: new, 3: expected}


@pytest.mark.parametrize("replays", seeds(4, 20))
def test_repeated_signals_after_newer_rows_change_nothing(loader, stream, replays):
    """Lose positions and repeat any signals: the offsets of rows tell which is newer."""
    for seed in replays:
        chance = Random(seed)  # noqa: S311
        for _ in range(3):
            produce_chunks(stream, chance)
        loader.load(stream)
        before = loader.ask(f"SELECT * FROM {quoted(stream.name)} ORDER BY id")
        loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
        at = chance.randrange(len(stream.signals) - 1)
        loader.load(stream, *stream.signals[at : chance.randint(at + 1, len(stream.signals) - 1)])
        assert loader.ask(f"SELECT * FROM {quoted(stream.name)} ORDER BY id") == before
        loader.ask(f"DELETE FROM feed_assets.positions WHERE topic = '{stream.name}'")
        loader.load(stream, *stream.signals)
        check_fold(loader, stream)


def test_rows_that_are_committed_before_their_positions_are_caught(loader, stream, url, fork):
    stream.send(stream.schemas.add(ID, TEXT), {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    stream.send(max(stream.schemas.known), (None, {"id": 2}))
    loader.load(stream, stream.signals[0])
    life(loader, stream, url, fork, "INSERT INTO feed_assets.tables", is_after=False, is_wrong=True)
    with pytest.raises(AssertionError, match="the table is not what its positions say"):
        check_fold(loader, stream)
