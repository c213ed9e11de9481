"""Work that a process of tests does once instead of once per test."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from dagster._core.storage.event_log import in_memory as events
from dagster._core.storage.runs import in_memory as runs
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache = LRUCache(3000)


def prepare() -> None:
    """Make this process compile a statement and load Dagster's migrations once, and collect garbage less often.

    An instance in memory is not migrated at all, and keeps its connections.
    """
    _compile_once()
    _load_dagsters_migrations_once()
    for module in (events, runs):
        module.stamp_alembic_rev = _no_stamp
        module.create_engine = _with_kept_connections
    events.InMemoryEventLogStorage._connect = _event_log
    runs.InMemoryRunStorage.connect = lambda self: self._engine.begin()
    gc.set_threshold(5_000, 10, 10)  # With the usual 700 it took a twelfth of the time of Dagster's runs.


def _compile_once() -> None:
    """Share compiled statements among all SQLite engines: each test has its own ledger and Dagster instance."""
    SQLiteDialect_pysqlite.__hash__ = lambda _: hash(SQLiteDialect_pysqlite)
    SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(self) is type(other)
    sa.Engine._compiled_cache = property(lambda _: _COMPILED, lambda _, __: None)


def _load_dagsters_migrations_once() -> None:
    """Share the scripts of Dagster's storages among all instances: each new home would load 90 of them six times."""
    load, loaded = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def loaded_once(config: Config) -> ScriptDirectory:
        if not str(config.get_main_option("script_location")).startswith("dagster:"):
            return load(config)
        if config.config_file_name not in loaded:
            loaded[config.config_file_name] = load(config)
        return loaded[config.config_file_name]

    ScriptDirectory.from_config = loaded_once


def _no_stamp(*_: object) -> None:
    """Do nothing: the revision of an instance in memory is not needed, and Dagster would load a hundred migrations."""


def _with_kept_connections(url: str, **_: object) -> sa.Engine:
    """Return an engine in memory. Dagster opens a connection for each statement: a tenth of the time of its runs."""
    engine = sa.create_engine(url, poolclass=sa.QueuePool, connect_args={"check_same_thread": False})
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys=ON"))
    return engine


@contextmanager
def _event_log(self: events.InMemoryEventLogStorage) -> Iterator[sa.Connection]:
    """Open a transaction in the event log. Only one thread at a time may enter, as in Dagster."""
    with self._db_lock, self._engine.begin() as connection:
        yield connection
