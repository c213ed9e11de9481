"""A warehouse of each kind, and a topic that is loaded into it."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse import state
from feed_assets.warehouse.engines import Engine, engine_of
from feed_assets.warehouse.load import Place, load
from feed_assets.warehouse.runs import runs
from feed_assets.warehouse.state import Known
from feed_assets_tests.warehouse.stream import Stream

HOLDER = "the test"


@pytest.fixture(scope="session")
def postgresql_url(postgresql) -> str:
    """A database that tests share: each has a topic of its own."""
    return postgresql.database()


@pytest.fixture(params=["duckdb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a warehouse of each kind: the same behaviour is expected of both."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql_url")
    return f"duckdb://{tmp_path / 'ware house.db'}"


@pytest.fixture
def engine(url: str) -> Engine:
    """A warehouse whose lease the test has."""
    made = engine_of(url)
    with made.open() as connection:
        state.prepare(connection)
        connection.execute("DELETE FROM feed_assets.lease")
        state.take(connection, made, HOLDER, 30)
    return made


class Loader:
    """Loads a topic into a warehouse, from what that knows on."""

    def __init__(self, engine: Engine, board: Blackboard) -> None:
        self.engine, self.place = engine, Place(engine, board, HOLDER, 7)

    def known(self, stream: Stream) -> Known:
        with self.engine.open() as connection:
            return state.read(connection, stream.name)

    def load(self, stream: Stream, *signals) -> Known:
        """Load these signals, or all of the topic that are new; the table is then what the model says."""
        known = self.known(stream)
        nexts = {number: each.next_offset for number, each in known.positions.items()}
        new = [each for each in stream.signals if each.signal.next_offset > nexts.get(each.signal.partition, 0)]
        for run in runs(signals or new):
            known = load(self.place, stream.name, known, run, stream.shape(run.schema_id))
        return known

    def ask(self, question: str) -> list:
        with self.engine.open() as connection:
            return connection.execute(question)


@pytest.fixture
def loader(engine: Engine) -> Loader:
    return Loader(engine, Blackboard.open("memory://"))


@pytest.fixture
def stream(loader: Loader) -> Iterator[Stream]:
    return Stream(loader.place.board, f"clicks.{uuid4().hex[:12]}")
