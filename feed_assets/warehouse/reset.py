"""Reset of a table: one transaction drops the table and deletes its rows in the state tables."""

from collections.abc import Iterator, Mapping, Sequence

from feed_assets.core.errors import InvalidName
from feed_assets.core.sql_text import literal
from feed_assets.core.topic_unions import UnionPart
from feed_assets.warehouse import (
    dataset_state,
    load_state,
    loader_tables,
    message_history,
    snapshots,
    table_changes,
    union_topics,
)
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.shapes import PARTITION, Shape
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
    check_table(connection, engine, table)
    shape = load_state.shape(connection, table)  # Do not read positions: a reset must also repair wrong positions.
    is_dataset = shape is not None and not shape.key
    if is_dataset and begin is not None:
        raise InvalidName(f"{table} is a dataset, which has no offsets: leave out --from.")
    is_union = begin is not None and table in union_topics.topics_of(connection)
    forgotten = _forgotten(connection, engine, table, is_union=is_union)
    return [*_dropped(engine, table, shape), *forgotten, *_positions(table, begin)]


def plan_topic(connection: Connection, engine: Engine, table: str, topic: str) -> list[str]:
    """Return the statements that delete the rows and positions of one topic of a union. The next load reads it again.

    Raise InvalidName if the table is not a union with this topic, or has `newest_by`: then rows of other topics that
    lost to the deleted ones would not come back.
    """
    ids = union_topics.topics_of(connection).get(table, {}) if load_state.exists(connection, engine) else {}
    topics = [*ids]
    if topic not in topics:
        expected = f"expected one of {', '.join(topics)}" if topics else "expected the table of a union"
        raise InvalidName(f"{table} has no topic {topic!r}: {expected}. Correct the name.")
    shape = load_state.shape(connection, table)
    if shape and shape.newest_by and not shape.is_history:
        raise InvalidName(
            f"{table} has newest_by, and rows of its other topics have lost to rows of {topic}: they would not come "
            "back. Make the whole table anew: leave out --topic."
        )
    part = UnionPart(tuple(topics), topics.index(topic))
    own = f" AND topic_partition {_between(part)}"
    return [
        *_deleted_rows(engine, table, shape, part),
        *snapshots.forget(connection, engine, table, own),
        _forgotten_topic(table, {**ids, topic: None}),
    ]


def _deleted_rows(engine: Engine, table: str, shape: Shape | None, part: UnionPart) -> Iterator[str]:
    own = _between(part)
    if shape is not None:
        yield f"DELETE FROM {engine.table(table)} WHERE {PARTITION} {own}"
    if shape is not None and not shape.is_history:
        yield f"DELETE FROM {deleted_of(table)} WHERE {PARTITION} {own}"
    for each in ("refused", "positions"):
        yield f"DELETE FROM {STATE}.{each} WHERE topic = {literal(table)} AND topic_partition {own}"


def _between(part: UnionPart) -> str:
    return f"BETWEEN {part.partitions.start} AND {part.partitions[-1]}"


def _forgotten_topic(table: str, ids: Mapping[str, str | None]) -> str:
    """Return the statement after which a recreated topic is loaded, too. It keeps its number."""
    text = literal(union_topics.text_of(ids))
    return f"UPDATE {STATE}.tables SET topic_id = {text}, problem = NULL WHERE topic = {literal(table)}"


def check_table(connection: Connection, engine: Engine, table: str) -> None:
    """Raise InvalidName if nothing was loaded into a table of this name."""
    names = (
        sorted({each.topic for each in load_state.tables(connection)}) if load_state.exists(connection, engine) else []
    )
    if table not in names:
        expected = f"expected one of {', '.join(names)}" if names else "nothing was loaded into it yet"
        raise InvalidName(f"the warehouse has no table {table!r}: {expected}. Correct the name.")


def _dropped(engine: Engine, table: str, shape: Shape | None) -> Iterator[str]:
    """Yield statements that drop a loaded table and its deleted keys, or the view of a history.

    Yield none if no load has created the table.
    """
    if shape is not None and shape.is_history:
        yield message_history.drop_view(engine, table)
    if shape is not None:
        yield f"DROP TABLE IF EXISTS {engine.table(table)}"
        yield f"DROP TABLE IF EXISTS {deleted_of(table)}"


def _forgotten(connection: Connection, engine: Engine, table: str, *, is_union: bool) -> Iterator[str]:
    """Yield statements that forget a table. A union that keeps its positions keeps its topics, which number them."""
    where = f"WHERE topic = {literal(table)}"
    if is_union:
        yield f"UPDATE {STATE}.tables SET schema_id = NULL, shape = NULL, problem = NULL {where}"
    else:
        yield f"DELETE FROM {STATE}.tables {where}"
    yield f"DELETE FROM {STATE}.refused {where}"
    yield from table_changes.forget(engine, table)
    yield from snapshots.forget(connection, engine, table)
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
    drops = [each for each in statements if each.startswith("DROP ")] if engine.ddl_commits else []
    if drops:  # Each commits. After a kill, the same reset can be repeated.
        load_state.take(connection, engine, holder, seconds)
    for each in drops:
        connection.execute(each)
    connection.execute("BEGIN")
    load_state.take(connection, engine, holder, seconds)
    for each in statements[len(drops) :]:
        connection.execute(each)
    load_state.release(connection, holder)
    connection.execute("COMMIT")
