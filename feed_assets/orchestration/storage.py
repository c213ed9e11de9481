"""Dagster's SQLite storage with connections that stay open.

Dagster itself opens and closes a file every few statements. The files are Dagster's own, in their usual places, so a
home folder may switch between both storages at any time. `synchronous` stays FULL, because reports that the ledger
counts as stored must survive a power failure.
"""

import os
import shutil
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, ClassVar

import dagster as dg
import sqlalchemy as sa
from dagster._core.storage.base_storage import DagsterStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite import create_db_conn_string
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from sqlalchemy.exc import OperationalError

MOST_FILES = 16
"""Greatest number of files that a storage keeps open in a process. Each run has its own file."""

BUSY_SECONDS = 30
"""Seconds that a statement waits for another writing process."""

_inherited: list[object] = []
"""Connections that this fork inherited from its parent process, kept here so that Python never closes them.

SQLite forbids a fork to use or even to close them: closing such a connection might copy the write-ahead log into the
file and remove the log.
"""

_File = tuple[str, int, int]


class KeptFiles:
    """A cache of open SQLite files: the connections of the most recently used ones.

    Threads may share this object, and forks may inherit it.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._process, self._lock = os.getpid(), Lock()
        self._engines = OrderedDict[_File, sa.Engine]()

    @contextmanager
    def connect(self, path: str) -> Generator[sa.Connection]:
        """Yield a transaction in the current file at this path."""
        with self.engine(path).connect() as connection, connection.begin():
            yield connection

    def has(self, path: str) -> bool:
        """Return whether the current file at this path is kept open."""
        return self._process == os.getpid() and _file(path) in self._engines

    def engine(self, path: str) -> sa.Engine:
        """Return the engine for the current file at this path."""
        if self._process != os.getpid():
            _inherited.append(self._engines)
            self._begin()
        with self._lock:
            file = _file(path)
            engine = self._engines.pop(file, None) or _opened(path)
            self._engines[file] = engine  # The file is now the most recently used one.
            while len(self._engines) > MOST_FILES:
                self._engines.popitem(last=False)[1].dispose()
            return engine

    def close(self) -> None:
        """Close all files. They are opened again when needed."""
        while self._process == os.getpid() and self._engines:
            self._engines.popitem()[1].dispose()


def _file(path: str) -> _File:
    """Return what identifies a file: path, device and inode.

    So a file that was replaced at the same path counts as another file. The old file keeps its inode while it is open.
    """
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return path, 0, 0
    return path, status.st_dev, status.st_ino


def _opened(path: str) -> sa.Engine:
    return sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": BUSY_SECONDS}, max_overflow=-1)


class _OneFile:
    """Mixin for a storage of Dagster that has only one file. It keeps this file open."""

    _conn_string: str
    _file_name: ClassVar[str]
    _last_table: ClassVar[str]
    """The table that Dagster makes last, or adds to old files."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: ConfigurableClassData | None = None) -> Any:
        """Open the storage in a folder. Let Dagster complete a file that is new or half made.

        Dagster would load its 90 migrations first, which takes most of the time of opening an instance, to learn what
        one statement tells: whether the file has a version.
        """
        path = Path(base_dir, f"{cls._file_name}.db")
        if path.exists() and _is_complete(str(path), cls._last_table):
            storage: Any = cls
            return storage(create_db_conn_string(base_dir, cls._file_name), inst_data)
        dagsters: Any = super()
        return dagsters.from_local(base_dir, inst_data)

    @cached_property
    def files(self) -> KeptFiles:
        return KeptFiles()

    def connect(self) -> Any:
        """Return a context manager with a transaction in the storage's file."""
        return self.files.connect(sa.make_url(self._conn_string).database or "")

    def dispose(self) -> None:
        """Close the storage's only file."""
        self.files.close()


class KeptRunStorage(_OneFile, SqliteRunStorage):
    """Dagster's run storage with its file kept open."""

    _file_name, _last_table = "runs", "instance_info"


class KeptScheduleStorage(_OneFile, SqliteScheduleStorage):
    """Dagster's storage of ticks and sensors with its file kept open."""

    _file_name, _last_table = "schedules", "job_ticks"


class KeptEventLogStorage(SqliteEventLogStorage):
    """Dagster's event log with its files kept open. Files of runs are copies of a template made by Dagster."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._files = KeptFiles()
        super().__init__(base_dir, inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Generator[sa.Connection]:
        with self._db_lock:  # Only one thread at a time may enter, as in Dagster.
            path = self.path_for_shard(shard)
            if not self._files.has(path):
                self._make(path)
            with self._files.connect(path) as connection:
                before = _changes(connection)
                yield connection
                has_changed = _changes(connection) != before
            if has_changed and shard != INDEX_SHARD_NAME:
                # Watchers wait for a change of a run's file. Dagster changes it by closing it. Here it stays open, and
                # only its WAL changes. So touch it.
                os.utime(path)

    def _make(self, path: str) -> None:
        """Create the file of a run. If a kill has left a file without tables, initialize the file as Dagster does."""
        if not Path(path).exists():
            self._copy(path)
        engine = self._files.engine(path)
        if not _is_made(engine):
            self._initdb(engine)

    def _copy(self, path: str) -> None:
        """Copy the template atomically. Never replace a file that another process has created meanwhile."""
        with TemporaryDirectory(dir=self._base_dir) as folder:
            copy = Path(folder, "copy")
            with copy.open("wb") as file:
                file.write(self._template().read_bytes())
                file.flush()
                os.fsync(file.fileno())
            # The file exists already, or the disk has no hard links. In the second case `_make` initializes the file.
            with suppress(OSError):
                os.link(copy, path)

    def _template(self) -> Path:
        """Return the template: an empty run file of this Dagster version.

        Its name does not end as the names of run files do.
        """
        template = Path(self._base_dir, f"empty.{dg.__version__}")
        if not template.exists():
            with TemporaryDirectory(dir=self._base_dir) as folder:
                engine = _opened(str(new_file := Path(folder, "made")))
                self._initdb(engine)
                engine.dispose()
                shutil.move(new_file, template)
        return template

    def has_table(self, table_name: str) -> bool:
        """Return whether the index has a table. Take no lock, because Dagster also calls this in a transaction."""
        with self._files.connect(self.path_for_shard(INDEX_SHARD_NAME)) as connection:
            return sa.inspect(connection).has_table(table_name)

    def wipe(self) -> None:
        """Close and remove all files."""
        self._files.close()
        super().wipe()

    def dispose(self) -> None:
        """End the watchers and close the files."""
        super().dispose()
        self._files.close()


def _changes(connection: sa.Connection) -> int:
    driver: Any = connection.connection.dbapi_connection
    return driver.total_changes


def _is_made(engine: sa.Engine) -> bool:
    with engine.connect() as connection, suppress(OperationalError):  # The file has no such table.
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").first() is not None
    return False


def _is_complete(path: str, table: str) -> bool:
    """Return whether a storage's file has its version and this table."""
    engine = _opened(path)
    try:
        return _is_made(engine) and sa.inspect(engine).has_table(table)
    finally:
        engine.dispose()


class KeptSqliteStorage(DagsterSqliteStorage):
    """Dagster's storages of runs, events and schedules together.

    `storage: custom:` in `dagster.yaml` names this class.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        DagsterStorage.__init__(self)
        self.base_dir, self._inst_data = base_dir, inst_data
        self._run_storage = KeptRunStorage.from_local(str(Path(base_dir, "history")))
        self._event_log_storage = KeptEventLogStorage(str(Path(base_dir, "history", "runs")))
        ticks: Any = KeptScheduleStorage.from_local(str(Path(base_dir, "schedules")))
        # Close the file that was just created. Otherwise it would stay open until a garbage collection.
        ticks.dispose()
        # When an instance ends, it closes the run storage, but not the schedule storage.
        ticks.files = self._run_storage.files
        self._schedule_storage = ticks

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: Any) -> "KeptSqliteStorage":
        """Create the storage from its configuration, as Dagster does."""
        return cls.from_local(inst_data=inst_data, **config_value)
