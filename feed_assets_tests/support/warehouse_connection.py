"""Connections of tests to a warehouse. They find tables by their names alone, as a reader does."""

from collections.abc import Generator
from contextlib import contextmanager

from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.postgresql import PostgreSQL


@contextmanager
def opened(engine: Engine) -> Generator[Connection]:
    """Yield a connection whose `search_path` is the user's own. A loader's connection has only pg_catalog there."""
    with engine.open() as connection:
        if isinstance(engine, PostgreSQL):
            connection.execute("RESET search_path")
        yield connection
