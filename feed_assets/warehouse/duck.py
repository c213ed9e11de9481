"""DuckDB, a file on this machine. Chunks are read from local copies, and no extension is downloaded."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from time import monotonic, sleep
from typing import Any
from urllib.parse import unquote

import duckdb

from feed_assets.core.errors import LoadFailed, TableBusy, WarehouseBusy, WarehouseUnavailable
from feed_assets.core.sql_text import literal, quoted
from feed_assets.home import refuse_others_folder
from feed_assets.warehouse.chunk_rows import rows_of
from feed_assets.warehouse.engines import IS_ANOTHERS, MOST_OF_A_ROW, Engine
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.shapes import OFFSET, PARTITION, Kind, Shape, check_case

_MEMORY = "1GB"
"""The memory limit of DuckDB. A larger load uses temporary files. DuckDB's default is most of the machine's."""

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "memory_limit": _MEMORY,
    "preserve_insertion_order": False,
}

MOST_COPIED_COLUMNS = 1 << 21
"""The most columns that one change of a table may copy, summed over its statements.

Each statement that changes a column or its comment copies all columns of the table into memory. The copies, about 300
bytes for each column, stay until the COMMIT. The memory limit does not count them.
"""

BUSY_SECONDS = 5.0
"""Seconds to wait for another process that has the file open. Most loads and queries take less time."""

_AGAIN_SECONDS = 0.05
"""Seconds between two attempts to open the file. DuckDB itself does not wait for another process."""

_LOCKED = "lock on file"
"""DuckDB's error text for a file that another process has open."""

_TURN = RLock()
"""Lock that a thread holds while a file is open. DuckDB cannot open a file that another thread is just closing."""

_MAY_BE_OVER = (
    duckdb.IOException,
    duckdb.TransactionException,
    duckdb.ConnectionException,
)

_NAME_IN_USE = (
    f"Names that differ only in case are one name here. If it is not the table of another topic: {IS_ANOTHERS}"
)
"""Advice if a table has the name of a new one: DuckDB ignores case."""


class DuckDB(Engine):
    """A file of DuckDB, which one process at a time can open. It is opened and closed for each transaction."""

    json, has_keys, tells_deleted, most_digits = "json", False, False, 38
    counts_passed = thins = True
    most_copied_columns = MOST_COPIED_COLUMNS

    @property
    def now(self) -> str:
        """Return SQL for this process's time. DuckDB's own time would be the start of the transaction."""
        return f"CAST({literal(datetime.now(UTC).isoformat())} AS timestamptz)"

    @property
    def _path(self) -> str:
        return unquote(self._url.removeprefix("duckdb://"))

    def absence(self) -> str:
        """Return a message if the file is missing, because opening would create it; else ''."""
        return "" if Path(self._path).exists() else f"there is no file {self._path} yet: the first load makes it"

    @contextmanager
    def open(self) -> Generator["_DuckConnection"]:
        """Yield a connection until the block ends. Threads of a process take turns."""
        with _TURN, opened_at(self._path) as opened:
            connection = _DuckConnection(opened)
            if _CHECKED.get(self._path) != (state := _file_state(self._path)):
                _refuse_code(connection)
                _CHECKED[self._path] = state
            yield connection

    def bytes_of(self, text: str) -> str:
        """Return SQL that turns a text of hexadecimal digits into bytes, by DuckDB's `unhex`."""
        return f"unhex({text})"

    def newest(self, newest: str, staging: str, shape: Shape) -> Iterator[str]:
        """Yield statements that turn the staging table into `newest`: delete all rows except the newest of each key.

        Copying the newest rows would take twice the time. So they are copied only if some column has one type in the
        staging table, and another one in the loaded table, or if a column hides DuckDB's own `rowid`.
        """
        if not self.row_id(shape):
            yield from super().newest(newest, staging, shape)
            yield f"DROP TABLE {staging}"
            return
        kept = f"SELECT arg_max(rowid, {OFFSET}) FROM {staging} GROUP BY {self.keys(shape)}"
        yield f"DELETE FROM {staging} WHERE rowid NOT IN ({kept})"
        if all(self.staged(each.kind) == self.type_of(each.kind) for each in shape.columns):
            yield f"ALTER TABLE {staging} RENAME TO {newest}"
        else:  # Do not use SET DATA TYPE: it also casts the rows that were refused and deleted, and would fail.
            yield f"CREATE TEMP TABLE {newest} AS SELECT {self.columns(shape)} FROM {staging}"
            yield f"DROP TABLE {staging}"

    def row_id(self, shape: Shape, /) -> str:
        """Return DuckDB's `rowid`, unless a column of the table hides it. Finding rows by it reads no other column."""
        return "" if any(each.name.lower() == "rowid" for each in shape.columns) else "rowid"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type, by DuckDB's own cast."""
        if kind.name == "bytes":
            return f"NOT regexp_full_match({text}, '([0-9a-f]{{2}})*')"
        return f"{text} IS NOT NULL AND TRY_CAST({text} AS {self.type_of(kind)}) IS NULL"

    def row_json(self, texts: Mapping[str, str], /) -> str:
        """Return SQL for a JSON object of texts."""
        pairs = ", ".join(f"{literal(name)}, CAST({each} AS varchar)" for name, each in texts.items())
        return f"left(CAST(json_object({pairs}) AS varchar), {MOST_OF_A_ROW})"

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape also for names that differ only in case, which DuckDB treats as the same name."""
        super().check(table, shape)
        check_case(shape.columns, "DuckDB")


_TRIGGERS = "SELECT trigger_name, schema_name, table_name FROM system.main.duckdb_triggers()"
_FUNCTIONS = "SELECT DISTINCT function_name FROM system.main.duckdb_functions() WHERE "


@cache
def _built_in() -> frozenset[str]:
    """Return the names of DuckDB's functions and operators, lower-case."""
    with duckdb.connect() as fresh:
        return frozenset(name.lower() for (name,) in fresh.execute(f"{_FUNCTIONS} internal").fetchall())


_FileState = list[tuple[int, int, int]]
_CHECKED: dict[str, _FileState] = {}
"""The state of each file when its macros and triggers were checked last. The check takes longer than opening a file."""


def _file_state(path: str) -> _FileState:
    """Return a state that differs after each change of a database file.

    It includes the WAL file, in which a killed process leaves its last changes. It contains the time of change (ctime)
    of the files, which nobody can set back.
    """
    stats = [each.stat() for each in (Path(path), Path(f"{path}.wal")) if each.exists()]
    return [(each.st_ino, each.st_size, each.st_ctime_ns) for each in stats]


def _refuse_code(connection: "_DuckConnection") -> None:
    """Raise LoadFailed if a macro of the file replaces a function or operator of DuckDB, or if a table has a trigger.

    Our statements would run such code, which could read each file that this process may read. The check itself runs no
    code of the file.
    """
    names = {name.lower() for (name,) in connection.execute(f"{_FUNCTIONS} NOT internal")}
    if replaced := sorted(names & _built_in()):
        raise LoadFailed(
            f"the warehouse's file has a macro {replaced[0]}, which replaces the function of DuckDB: expected none, "
            f"because our statements would run it. Find out who made it, then DROP MACRO {quoted(replaced[0])}."
        )
    has_triggers = "duckdb_triggers" in _built_in()  # From DuckDB 2.0 on.
    if has_triggers and (triggers := sorted(connection.execute(_TRIGGERS))):
        name, schema, table = triggers[0]
        raise LoadFailed(
            f"the warehouse's file has a trigger {name} on {schema}.{table}: expected none in this file, because our "
            "statements may run it with the rights of the loader. Find out who made it, then "
            f"DROP TRIGGER {quoted(name)} ON {quoted(schema)}.{quoted(table)}."
        )


def opened_at(path: str) -> duckdb.DuckDBPyConnection:
    """Open a database file, or `:memory:`. INSERT does not preserve the order of rows.

    Preserving the order would cost a quarter more CPU time, and INSERT would use only one core.
    """
    with translated(Path(path)):
        return _opened(path, monotonic() + BUSY_SECONDS)


def _opened(path: str, until: float) -> duckdb.DuckDBPyConnection:
    while True:
        try:
            return duckdb.connect(path, config={**_SETTINGS, "temp_directory": _spill_folder(path)})
        except duckdb.IOException as error:
            if _LOCKED not in str(error) or monotonic() > until:
                raise
        sleep(_AGAIN_SECONDS)


def _spill_folder(path: str) -> str:
    """Return the folder for DuckDB's temporary files. It is private, because they contain rows of feeds.

    The folder is beside the database file, like DuckDB's default. The next load removes the files that a kill has left
    there. Raise InvalidSetting if another user has created the folder first.
    """
    if path == ":memory:":
        return _scratch().name
    folder = Path(f"{path}.tmp")
    # If the database file's folder does not exist, create nothing: opening the file raises the right error.
    if folder.parent.is_dir() and not Path(path).is_dir():
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        refuse_others_folder(folder, "the folder of DuckDB's temporary files")
        folder.chmod(0o700)
    return str(folder)


@cache
def _scratch() -> "TemporaryDirectory[str]":
    """Return a private folder that is removed at the end of the process."""
    return TemporaryDirectory(prefix="feed-assets-")


class _DuckConnection:
    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._opened = opened

    def execute(self, statement: str, values: Sequence[object] | None = None, /) -> list[tuple[Any, ...]]:
        with translated():
            return self._opened.execute(statement, values).fetchall()

    def shut(self) -> None:
        self._opened.interrupt()

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        names = ", ".join(map(quoted, columns))
        rows = rows_of(batch.copies, columns)
        self.execute(f"INSERT INTO {table} ({names}, {PARTITION}) SELECT *, {batch.partition} FROM {rows}")


@contextmanager
def translated(path: Path | None = None) -> Generator[None]:
    """Translate DuckDB's errors into ours: WarehouseBusy or WarehouseUnavailable if temporary, else LoadFailed.

    If a load needs too much memory, only its table is affected: raise TableBusy.
    """
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        message = " ".join(str(error).split())
        raise TableBusy(f"DuckDB cannot do it now: {message}. {_advice(message, path)}") from error
    except _MAY_BE_OVER as error:
        message = " ".join(str(error).split())
        kind = WarehouseBusy if _LOCKED in message else WarehouseUnavailable
        raise kind(f"DuckDB cannot do it now: {message}. {_advice(message, path)}") from error
    except duckdb.Error as error:
        message, advice = " ".join(str(error).split()), f". {_NAME_IN_USE}" if "already exists" in str(error) else ""
        raise LoadFailed(f"DuckDB refuses: {message}{advice}") from error


def _advice(message: str, path: Path | None) -> str:
    """Return advice for a file that cannot be opened; `path` is None if the file is open already."""
    if path and path.is_dir():
        return f"{path} is a folder: name a file in it."
    if path and not path.parent.is_dir():
        return f"Make the folder {path.parent}, or correct the url in FEED_ASSETS_WAREHOUSES."
    if "not a valid DuckDB database" in message:
        return "Name another file in FEED_ASSETS_WAREHOUSES: this one is not a DuckDB file."
    if message.startswith("Out of Memory"):
        return f"DuckDB may use {_MEMORY}: load fewer chunks at once (`chunks`), or publish shorter values."
    return (
        "Find the other process that has the file open."
        if _LOCKED in message
        else "Check the disk and its permissions."
    )
