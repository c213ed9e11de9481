"""One load of a dataset's table: the rows of another update replace a partition's rows, in one transaction.

The rows are copied to this machine before the transaction. A kill before it leaves only these copies, which nobody
reads. A kill in the transaction leaves the old rows. If the answer to COMMIT is lost, the next loader reads in
`feed_assets.updates` whether the load was committed.
"""

from dataclasses import replace as with_
from pathlib import Path
from typing import NamedTuple

from feed_assets.core.errors import WarehouseUnavailable
from feed_assets.core.feeds import File, Update
from feed_assets.feeds import read
from feed_assets.warehouse import dataset_state, load_files, load_state, statements
from feed_assets.warehouse.conflicts import TableChange, change
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.lease import kept
from feed_assets.warehouse.load import LoadContext
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.migrations import places
from feed_assets.warehouse.parquet_lines import Rows
from feed_assets.warehouse.shapes import Shape


class Exchange(NamedTuple):
    """The update to load for a partition, its data version, and the id of the update whose rows the table has now."""

    key: str
    held: str | None
    update: Update | None
    version: str | None


class _Lines(NamedTuple):
    """Rows to insert into some columns of a table, as lines in local files."""

    columns: tuple[str, ...]
    number: int
    paths: tuple[Path, ...]


def replace(place: LoadContext, table: str, state: TopicState, exchange: Exchange) -> TopicState:
    """Replace a partition's rows by the rows of an update. Only delete the partition's rows if there is no update.

    Return the table's new state. Raise UpdateChanged if the update's files have changed, and WarehouseUnavailable if
    the stored state is not `state`. Raise WarehouseTaken, DiskFull, and errors of the warehouse and a schema.
    """
    with load_files.room() as folder:
        with kept(place.engine, place.holder):
            rows = _fetched(place, exchange.update, folder / "update") if exchange.update else None
            shape = rows.shape if rows else None
            changed = _changed(place.engine, table, state, exchange.update, shape)
            lines = _lines(rows, shape, changed.state.shape, folder) if rows and shape and changed.state.shape else None
        with place.engine.open() as connection:
            _exchange(connection, place, table, state=state, changed=changed, exchange=exchange, lines=lines)
    return changed.state


def planned(place: LoadContext, table: str, state: TopicState, update: Update) -> TableChange:
    """Return the change that `replace` would make to the table for an update. Raise the same errors as `replace`."""
    with load_files.room() as folder:
        rows = _fetched(place, update, folder / "update")
        return _changed(place.engine, table, state, update, rows.shape if rows else None)


def _changed(engine: Engine, table: str, state: TopicState, update: Update | None, shape: Shape | None) -> TableChange:
    """Return the change that the table needs for an update's rows.

    Keep columns that the update does not have: other partitions may use them.
    """
    if update is None or shape is None:
        return TableChange((), state)
    number = int(update.id.replace(".", ""))
    if state.shape is None:
        return change(engine, table, state, number, shape)
    table_change = change(engine, table, with_(state, schema_id=number - 1), number, _both(state.shape, shape))
    return table_change if table_change.statements else TableChange((), state)


def _both(table: Shape, update: Shape) -> Shape:
    """Return a shape with the columns of a table, followed by the columns that only the update has.

    If both have a column, the update's form of the column is used.
    """
    update_columns, table_columns = ({each.name: each for each in shape.columns} for shape in (update, table))
    return Shape(columns=tuple((table_columns | update_columns).values()), key=())


def _fetched(place: LoadContext, update: Update, folder: Path) -> Rows | None:
    """Copy the files of an update, check that they are unchanged, and return their rows. Return None without files."""
    read.download(place.board, update, folder)
    paths = sorted(each for each in folder.rglob("*") if each.is_file())
    return Rows(paths) if paths else None


def _lines(rows: Rows, shape: Shape, table: Shape, folder: Path) -> _Lines:
    destinations = places(table, shape)
    count, paths = rows.write([*destinations], folder / "lines")
    return _Lines(tuple(destinations.values()), count, paths)


def _exchange(
    connection: Connection,
    place: LoadContext,
    table: str,
    state: TopicState,
    changed: TableChange,
    exchange: Exchange,
    lines: _Lines | None,
) -> None:
    """Replace the rows of one partition in a warehouse table, in one transaction."""
    engine, shape, update = place.engine, changed.state.shape, exchange.update
    connection.execute("BEGIN")
    load_state.renew(connection, engine, place.holder)
    _refuse_moved(connection, table, state, exchange)
    # The table is new, so rows that the state tables record as loaded are not in it.
    if state.shape is None and shape is not None:
        dataset_state.forget(connection, table)
    for each in changed.statements:
        connection.execute(each)
    if shape is not None:
        connection.execute(statements.remove(engine, table, exchange.key))
        if lines and lines.number:
            _insert(connection, engine, table, shape=shape, key=exchange.key, lines=lines)
    count = lines.number if lines else 0
    dataset_state.keep(
        connection,
        engine,
        table,
        key=exchange.key,
        update_id=update.id if update else None,
        version=exchange.version,
        rows=count,
    )
    load_state.write(connection, engine, table, state, changed.state)
    load_state.renew(connection, engine, place.holder)
    connection.execute("COMMIT")


def _refuse_moved(connection: Connection, table: str, state: TopicState, exchange: Exchange) -> None:
    """Raise WarehouseUnavailable if another session has changed the table since this session read its state."""
    held_update = dataset_state.held(connection, table, [exchange.key]).get(exchange.key)
    if held_update != exchange.held or load_state.read(connection, table) != state:
        raise WarehouseUnavailable(
            f"{table} was loaded by another process meanwhile. The next attempt continues after that load."
        )


def _insert(connection: Connection, engine: Engine, table: str, shape: Shape, key: str, lines: _Lines) -> None:
    kinds = {each.name: each.kind for each in shape.columns}
    connection.execute(statements.stage(engine, shape, ()))
    typed = {name: engine.staged(kinds[name]) for name in lines.columns}
    copies = tuple(Copy(0, lines.columns, path, File(path.name, path.stat().st_size, "")) for path in lines.paths)
    connection.copy(statements.STAGING, typed, ChunkGroup(0, lines.columns, copies, manifest=""))
    for each in statements.insert(engine, table, shape, key):
        connection.execute(each)
