"""What a process of tests does once, and would else do for each of its tests."""

import gc

import sqlalchemy as sa
from dagster._core.storage.event_log import in_memory as events
from dagster._core.storage.runs import in_memory as runs
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache = LRUCache(3000)


def prepare() -> None:
    """Have this process compile a statement once, migrate nothing in memory, and look for garbage less often."""
    _compile_once()
    for module in (events, runs):
        module.stamp_alembic_rev = _no_stamp
    gc.set_threshold(5_000, 10, 10)  # By the usual 700 it was a twelfth of the time of what runs Dagster.


def _compile_once() -> None:
    """All engines of SQLite share their compiled statements: each test has a ledger and an instance of its own."""
    SQLiteDialect_pysqlite.__hash__ = lambda _: hash(SQLiteDialect_pysqlite)
    SQLiteDialect_pysqlite.__eq__ = lambda self, other: type(self) is type(other)
    sa.Engine._compiled_cache = property(lambda _: _COMPILED, lambda _, __: None)


def _no_stamp(*_: object) -> None:
    """Nobody asks an instance in memory for its revision, for which Dagster loads a hundred migrations."""
