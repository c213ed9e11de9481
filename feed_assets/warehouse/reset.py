"""Reset of a table: one transaction drops the table and deletes its rows in the state tables."""

from collections.abc import Iterator, Sequence

from feed_assets.core.errors import InvalidName
from feed_assets.core.sql_text import literal
from feed_assets.warehouse import dataset_state, load_state, loader_tables, message_history
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.statements import STATE, deleted_of

STOP = "stop"
"""Value for `begin` that keeps the positions. Loaded data still count as loaded, although their rows are dropped."""


def plan(connection: Connection, engine: Engine, table: str, begin: int | str | None) -> list[str]:
    """Return the statements that delete a table and its state, so that the next load makes it anew.

    Args:
        connection: The warehouse.
        engine: The engine of the warehouse.
        table: The topic or the dataset.
        begin: The first offset to load in each partition, STOP to load only later data, or None to load everything.

    Raises:
        InvalidName: The warehouse has no such table, or an offset is given for a dataset.
    """
    names = (
        sorted({each.topic for each in load_state.tables(connection)}) if load_state.exists(connection, engine) else []
    )
    if table not in names:
        expected = f"expected one of {', '.join(names)}" if names else "nothing was loaded into it yet"
        raise InvalidName(f"the warehouse has no table {table!r}: {expected}. Correct the name.")
    shape = load_state.shape(connection, table)  # Do not read positions: a reset must also repair wrong positions.
    is_dataset = shape is not None and not shape.key
    if is_dataset and begin is not None:
        raise InvalidName(f"{table} is a dataset, which has no offsets: leave out --from.")
    return [*_dropped(engine, table, shape), *_forgotten(connection, engine, table), *_positions(table, begin)]


def _dropped(engine: Engine, table: str, shape: Shape | None) -> Iterator[str]:
    """Yield statements that drop a loaded table and its deleted keys, or the view of a history.

    Yield none if no load has created the table.
    """
    if shape is not None and shape.is_history:
        yield message_history.drop_view(engine, table)
    if shape is not None:
        yield f"DROP TABLE IF EXISTS {engine.table(table)}"
        yield f"DROP TABLE IF EXISTS {deleted_of(table)}"


def _forgotten(connection: Connection, engine: Engine, table: str) -> Iterator[str]:
    for name in ("tables", "refused"):
        yield f"DELETE FROM {STATE}.{name} WHERE topic = {literal(table)}"
    if dataset_state.exists(connection, engine):
        for name in ("updates", "marks"):
            yield f"DELETE FROM {STATE}.{name} WHERE dataset = {literal(table)}"


def _positions(table: str, begin: int | str | None) -> Iterator[str]:
    where = f"WHERE topic = {literal(table)}"
    if begin is None:
        yield f"DELETE FROM {STATE}.positions {where}"
    elif begin != STOP:
        yield f"UPDATE {STATE}.positions SET next_offset = {begin}, signal_offset = 0 {where}"


def apply(connection: Connection, engine: Engine, holder: str, seconds: float, statements: Sequence[str]) -> None:
    """Run the statements in one transaction that holds the lease. Raise WarehouseTaken."""
    loader_tables.refuse_planted(connection, engine)
    connection.execute("BEGIN")
    load_state.take(connection, engine, holder, seconds)
    for each in statements:
        connection.execute(each)
    load_state.release(connection, holder)
    connection.execute("COMMIT")
