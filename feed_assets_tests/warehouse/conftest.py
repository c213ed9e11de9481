"""A warehouse of each kind, and a topic loaded into it."""

from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from uuid import uuid4

import pytest

from feed_assets.core.feeds import Feed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import Ledger
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.target import Target, engine_of
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, target_of
from feed_assets_tests.warehouse import snowflake_standin, standin
from feed_assets_tests.warehouse.snowflake_standin import SnowflakeStandIn
from feed_assets_tests.warehouse.standin import ROLE, StandIn
from feed_assets_tests.warehouse.stream import Stream
from feed_assets_tests.warehouse.topic_loader import HOLDER, Loader


@pytest.fixture(scope="session")
def postgresql_url(postgresql) -> str:
    """Return a database that tests share: each test has its own topic."""
    return postgresql.database()


@pytest.fixture(scope="session")
def redshift_url(postgresql) -> str:
    """Return a database that stands in for Redshift."""
    url = postgresql.database().replace("postgresql+psycopg:", "redshift:")
    standin.prepare(url)
    return url


@pytest.fixture(scope="session")
def snowflake_url() -> Iterator[str]:
    """Yield a schema that stands in for Snowflake."""
    with snowflake_standin.server() as url:
        yield url


_ON_SNOWFLAKE = ("test_load",)
"""Modules whose tests run on fakesnow, too, where a load takes a second. `test_snowflake.py` has the kills."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests over all warehouses, unless the test names some, and over the chunks' `FORMATS` of the module.

    Redshift has but a stand-in, which processes of their own do not find, and its chunks are on S3: a test that hands
    on the URL, or has a blackboard of its own, is without it.
    """
    if "chunk_format" in metafunc.fixturenames and hasattr(metafunc.module, "FORMATS"):
        metafunc.parametrize("chunk_format", metafunc.module.FORMATS, indirect=True)
    told = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "url" in metafunc.fixturenames and "url" not in told:
        is_own = {"url", "local_board"} & {*signature(metafunc.function).parameters}
        is_own |= {"local_board", "world", "fork"} & {*metafunc.fixturenames}
        kinds = ["duckdb", "postgresql", *([] if is_own else ["redshift"])]
        kinds += ["snowflake"] if not is_own and metafunc.module.__name__.rpartition(".")[2] in _ON_SNOWFLAKE else []
        metafunc.parametrize("url", kinds, indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a warehouse of each kind: all must behave alike."""
    if request.param in ("postgresql", "redshift", "snowflake"):
        return request.getfixturevalue(f"{request.param}_url")
    return f"duckdb://{tmp_path / 'ware house.db'}"


def _engine_at(url: str) -> Engine:
    if url.startswith("snowflake:"):
        return SnowflakeStandIn(url)
    return StandIn(url, ROLE) if url.startswith("redshift:") else engine_of(url)


@pytest.fixture
def engine(url: str) -> Engine:
    """Return a warehouse whose lease the test holds."""
    made = _engine_at(url)
    with made.open() as connection:
        load_state.prepare(connection, made)
        connection.execute("DELETE FROM feed_assets.lease")
        load_state.take(connection, made, HOLDER, 30)
    return made


@pytest.fixture
def loader(engine: Engine, request: pytest.FixtureRequest) -> Loader:
    if isinstance(engine, StandIn):
        engine.board = request.getfixturevalue("s3_board")
        return Loader(engine, engine.board)
    return Loader(engine, Blackboard.open("memory://"))


@pytest.fixture
def chunk_format(request: pytest.FixtureRequest) -> str:
    """Return the format of chunks: `csv`, `parquet`, or `both` in turn."""
    return getattr(request, "param", "csv")


@pytest.fixture
def stream(loader: Loader, chunk_format: str) -> Iterator[Stream]:
    return Stream(loader.place.board, f"clicks.{uuid4().hex[:12]}", format=chunk_format)


@pytest.fixture
def target(url: str) -> Iterator[Target]:
    """Provide a warehouse for datasets, whose lease is free."""
    made = target_of(url)
    with opened(made.engine) as connection:
        load_state.prepare(connection, made.engine)
        connection.execute("DELETE FROM feed_assets.lease")
    yield made
    with opened(made.engine) as connection:
        connection.execute("DELETE FROM feed_assets.lease")


@pytest.fixture
def dataset(ledger: Ledger, local_board: Blackboard) -> Dataset:
    """One of its own for each test, as they share a database."""
    return Dataset(local_board, ledger, Feed.parse(f"ads/ctr_{uuid4().hex[:12]}/v1.0"))
