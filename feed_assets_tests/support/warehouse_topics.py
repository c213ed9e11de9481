"""A topic at a real broker that is loaded into a warehouse.

The expected content of its table is the fold of its messages.
"""

from typing import Any

from feed_assets.core.sql_text import quoted
from feed_assets.core.warehouses import Warehouse
from feed_assets.kafka import avro
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.table import Loading
from feed_assets_tests.support.kafka_topics import Place, World
from feed_assets_tests.support.warehouse_connection import opened

COLUMNS = ("id", "n", "note", "_partition", "_offset")


def loading_of(place: Place, url: str, **limits: Any) -> Loading:
    """Return the loading for a process of its own, with short limits."""
    chunking = place.chunking()
    warehouse = Warehouse(url=url, **{"seconds": 0.1, **limits})  # type: ignore[arg-type]
    return Loading("main", warehouse, chunking.clients, chunking.schemas, chunking.board)


def folded(world: World, nexts: dict[int, int]) -> dict[str, tuple[Any, ...]]:
    """Return the rows of the messages before these offsets; a message that is no record is skipped."""
    found: dict[str, tuple[Any, ...]] = {}
    for each in sorted(world.messages(), key=lambda each: (each.partition(), each.offset())):
        if each.offset() >= nexts.get(each.partition(), 0):
            continue
        key = avro.decoded(each.key(), world.schemas.get(world.key_id))[0]["id"]
        if each.value() is None or dict(each.headers())["op"] == b"delete":
            found.pop(key, None)
        elif each.value()[:1] == b"\0":
            _, schema_id = avro.HEAD.unpack_from(each.value())
            value = avro.decoded(each.value(), world.schemas.get(schema_id))[0]
            found[key] = (*(value.get(name) for name in COLUMNS[:3]), each.partition(), each.offset())
    return found


def nexts(engine: Engine, name: str) -> dict[int, int]:
    with opened(engine) as connection:
        load_state.prepare(connection, engine)
        return _nexts(load_state.read(connection, name))


def _nexts(known: TopicState) -> dict[int, int]:
    return {number: each.next_offset for number, each in known.positions.items()}


def rows(engine: Engine, name: str) -> dict[str, tuple[Any, ...]]:
    """Return the rows of the table by key."""
    with opened(engine) as connection:
        return _rows(connection, name, load_state.read(connection, name).shape)


def _rows(connection: Connection, name: str, shape: Shape | None) -> dict[str, tuple[Any, ...]]:
    if shape is None:
        return {}
    there = {each.name for each in shape.columns}
    columns = ", ".join(each if each in there or each[0] == "_" else f"NULL AS {each}" for each in COLUMNS)
    found = connection.execute(f"SELECT {columns} FROM {quoted(name)}")
    assert len(found) == len({row[0] for row in found}), "a key has two rows"
    return {row[0]: row for row in found}


def check(world: World, engine: Engine) -> dict[int, int]:
    """Assert that the table is the fold of the topic up to its positions, and return these.

    A loader may run meanwhile.
    """
    with opened(engine) as connection:
        connection.execute("BEGIN" if not engine.has_keys else "BEGIN ISOLATION LEVEL REPEATABLE READ")
        known = load_state.read(connection, world.name)
        found = _rows(connection, world.name, known.shape)
    assert found == folded(world, _nexts(known)), "the table is not what its positions say"
    return _nexts(known)
