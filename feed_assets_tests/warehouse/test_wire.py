"""A server that breaks off at any statement of a load, and lost answers: the table is correct."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from uuid import uuid4

import pytest

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.warehouse import load as loads
from feed_assets.warehouse import load_state
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.fault_seeds import assert_caught, seeds
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.lives import committed
from feed_assets_tests.warehouse.random_chunks import STATEMENTS, check_fold, produce_chunks
from feed_assets_tests.warehouse.stream import ID, TEXT, Stream
from feed_assets_tests.warehouse.topic_loader import HOLDER, Loader
from feed_assets_tests.warehouse.volume import SCHEMA, SHAPE, differences, expected, signalled
from feed_assets_tests.warehouse.wire import FAULTS, Server, Wire, breakable, wire

RESETS, ENDS = FAULTS[:4], FAULTS[4:]
"""Faults that break one connection, with milliseconds; and faults that break all, until the server has recovered."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with breakable() as made:
        yield made


@pytest.fixture
def line(server: Server) -> Iterator[Wire]:
    with wire(server) as made:
        yield made


class World:
    """A topic, a loader behind a breaking wire, and direct access to the table."""

    def __init__(self, server: Server, line: Wire, board) -> None:
        self.line, self.server = line, server
        self.loader = Loader(engine_of(line.url), board)
        self.direct = Loader(engine_of(server.url), board)
        self.begin()

    def begin(self) -> None:
        """Start another topic."""
        self.line.plan("")
        self.stream = Stream(self.direct.place.board, f"clicks.{uuid4().hex[:12]}")

    def lease(self) -> None:
        with opened(self.direct.engine) as connection:
            load_state.prepare(connection, self.direct.engine)
            load_state.take(connection, self.direct.engine, HOLDER, 0)

    def load(self) -> bool:
        """Load once; return False if an expected fault stopped it. Check that the table matches its positions."""
        try:
            self.loader.load(self.stream)
            is_done = True
        except WarehouseUnavailable:
            is_done = False
        self.server.start()
        wait_until(self.server.is_quiet, "the server to be done with it")
        check_fold(self.direct, self.stream)
        return is_done

    def finish(self) -> None:
        """Load the rest without faults."""
        self.line.plan("")
        assert self.load()
        nexts = {number: each.next_offset for number, each in self.direct.known(self.stream).positions.items()}
        assert nexts == self.stream.ends


@pytest.fixture
def world(server: Server, line: Wire, local_board) -> World:
    made = World(server, line, local_board)
    made.lease()
    return made


def broken(world: World, seed: int, faults=RESETS) -> bool:
    """Produce, load, and break off somewhere; return True if the load succeeded anyway."""
    chance = Random(seed)  # noqa: S311
    produce_chunks(world.stream, chance)
    world.line.plan(chance.choice(faults), chance.randint(1, STATEMENTS))
    return world.load()


@pytest.mark.parametrize("breaks", seeds(40, 1000))
def test_a_connection_that_breaks_at_any_statement(world, breaks):
    done: list[bool] = []
    for seed in breaks:
        done.append(broken(world, seed))
        if seed % 50 == 49:
            world.finish()
            world.begin()
    assert len(world.line.hits) > len(breaks) / 2
    assert not all(done)
    world.finish()


@pytest.mark.parametrize("breaks", seeds(4, 100))
def test_a_server_that_ends_at_any_statement(world, breaks):
    done = [broken(world, seed, ENDS) for seed in breaks]
    assert not all(done)
    world.finish()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("text", [b"BEGIN", b"COPY", b"INSERT INTO feed_assets.positions", b"COMMIT"])
def test_each_fault_at_each_kind_of_statement(world, fault, text):
    for seed in range(2):
        produce_chunks(world.stream, Random(seed))  # noqa: S311
        world.loader.load(world.stream)
    produce_chunks(world.stream, Random(7))  # noqa: S311
    before = world.direct.known(world.stream).positions
    world.line.plan(fault, text=text)
    assert not world.load()
    assert world.line.hits == [fault]
    is_there = world.direct.known(world.stream).positions != before
    assert is_there == (text == b"COMMIT" and fault in ("unanswered", "unheard"))
    world.finish()


@pytest.mark.parametrize(
    ("breaks", "files", "rows"), [(4, 5, 1_000), pytest.param(100, 10, 10_000, marks=pytest.mark.soak)]
)
def test_large_loads_that_break(world, local_board, breaks, files, rows):
    """Load up to a hundred thousand rows at once; the keys of the last tenth exist already."""
    for seed in range(breaks):
        chance, keys = Random(seed), files * rows * 9 // 10  # noqa: S311
        name = f"many.{uuid4().hex[:12]}"
        left = signalled(local_board, name, files, rows, keys)
        for fault, count in [("", 1), (chance.choice(RESETS), chance.randint(1, files)), ("", files)]:
            world.line.plan(fault, chance.randint(1, STATEMENTS) if fault else 0)
            loaded = large(world, name, left[:count], keys)
            left = [each for each in left if each.signal.next_offset > loaded]
        assert left == []
    assert world.line.hits


def large(world: World, name: str, signals: Sequence[Signalled], keys: int) -> int:
    """Load these chunks, possibly interrupted; check the table, and return the offset up to which it is loaded."""
    engine = world.direct.engine
    with opened(engine) as connection:
        known = load_state.read(connection, name)
    with suppress(WarehouseUnavailable):
        if signals:
            loads.load(world.loader.place, name, known, [LoadGroup(SCHEMA, tuple(signals))], lambda _: SHAPE)
    wait_until(world.server.is_quiet, "the server to be done with it")
    with opened(engine) as connection:
        total = load_state.read(connection, name).positions[0].next_offset
    assert differences(engine, name, total, keys) == expected(total, keys)
    return total


def test_positions_in_a_transaction_of_their_own_are_caught(world, monkeypatch):
    monkeypatch.setattr(loads._Rows, "merge", committed(loads._Rows.merge))

    def case(seed: int) -> None:
        """Start with an existing table, so that only rows can be left of a load."""
        world.begin()
        schema = world.stream.schemas.add(ID, TEXT)
        for text in ("a", "b"):
            world.stream.send(schema, {"id": 1, "text": text}, (None, {"id": 2}))
            world.load()
            world.line.plan("unsent", Random(seed).randint(1, STATEMENTS))  # noqa: S311

    assert_caught(case, "the table is not what its positions say")
