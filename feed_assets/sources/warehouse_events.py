"""The tables of a warehouse as event tables: one event for each partition with new loads."""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from feed_assets.core.errors import (
    LoadFailed,
    NoTopic,
    SourceBusy,
    SourceUnavailable,
    WarehouseBusy,
    WarehouseUnavailable,
)
from feed_assets.core.events import COLUMNS, UPDATE_ID, Operation, WriteEvent, check_event
from feed_assets.core.warehouses import table_of
from feed_assets.settings import settings
from feed_assets.sources.contract import EventBatch, Positions
from feed_assets.warehouse import dataset_state, load_state
from feed_assets.warehouse.dataset_state import LoadedUpdate
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.load_state import TableState
from feed_assets.warehouse.shapes import Column
from feed_assets.warehouse.target import engine_of

OWNERS = "owners"
"""The key, in an event's context, of the owners that the table's schema names."""


class Loaded(NamedTuple):
    """A topic partition, the offset up to which its table is loaded, and the time (UTC) of its last load."""

    topic: str
    partition: int
    next_offset: int
    loaded_at: datetime
    schema_id: int | None
    refused: int

    @property
    def name(self) -> str:
        """Return the name that positions use for the topic partition."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True)
class TableLoads:
    """The loads of a warehouse's tables, read from its state tables. One transaction changes these and the rows.

    Several loads of a partition between two reads become one event. For a table of a topic, the event's marker is the
    first offset that is not loaded yet. So the event covers the offsets from the previous marker on. A load of a
    dataset replaces a partition, and the event's marker is the time of the load.
    """

    warehouse: str
    engine: Engine = field(repr=False)

    def read(self, after: str | None, limit: int, _seconds: float, /) -> EventBatch:
        """Return events of up to `limit` partitions loaded since a position. Raise SourceUnavailable on failure."""
        if self.engine.absence():
            return EventBatch((), (), after, True)
        place = self._positions.load(after) or {}
        nexts, schemas, last = dict(place.get("next", {})), dict(place.get("schemas", {})), place.get("loaded_at")
        with looking(self.engine) as connection:
            moved = [each for each in _loaded(connection) if nexts.get(each.name) != each.next_offset]
            new = moved[:limit]
            room = limit - len(new)
            replaced = dataset_state.loads(connection, datetime.fromisoformat(last) if last else None, room)
            states = {each: load_state.read(connection, each) for each in {each.dataset for each in replaced}}
            ids = {each.topic: each.schema_id for each in new} | {name: each.schema_id for name, each in states.items()}
            declared = self._declared(connection, [name for name, each in ids.items() if each != schemas.get(name)])
        events = *self._events(new, declared), *self._replacements(replaced, ids, declared)
        nexts |= {each.name: each.next_offset for each in new}
        last = replaced[-1].loaded_at.isoformat() if replaced else last
        position = self._positions.dump({"next": nexts, "schemas": schemas | ids, "loaded_at": last})
        is_complete = len(new) == len(moved) and len(replaced) < room
        return EventBatch(events, (), position if events else after, is_complete)

    def _declared(self, connection: Connection, tables: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return, for Dagster, the columns and the owners (as one text) that each table's schema declares."""
        shapes = {each: load_state.read(connection, each).shape for each in tables}
        return {
            table: {COLUMNS: [*map(self._column, shape.columns)], OWNERS: ", ".join(shape.owners) or None}
            for table, shape in shapes.items()
            if shape
        }

    def _column(self, column: Column) -> dict[str, Any]:
        return {
            "name": column.name,
            "type": self.engine.type_of(column.kind),
            "description": column.comment,
            "nullable": column.is_nullable,
        }

    def _events(self, new: Sequence[Loaded], declared: Mapping[str, Mapping[str, Any]]) -> Iterator[WriteEvent]:
        ends_by_topic = {each: _ends(each) for each in {each.topic for each in new}}
        for each in new:
            lag = max(0, ends_by_topic[each.topic].get(each.partition, 0) - each.next_offset)
            context = {"schema_id": each.schema_id, "refused": each.refused, "lag": lag, **declared.get(each.topic, {})}
            yield _event(
                table_name=table_of(self.warehouse, each.topic),
                marker=each.next_offset,
                event_marker=each.loaded_at,
                correlation_id=f"{self.warehouse}/{each.name}/{each.next_offset}@{each.loaded_at.isoformat()}",
                write_operation=Operation.UPSERT,
                partition_key=str(each.partition),
                context=context,
            )

    def _replacements(
        self,
        loads: Sequence[LoadedUpdate],
        schemas: Mapping[str, int | None],
        declared: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[WriteEvent]:
        for each in loads:
            context = {UPDATE_ID: each.update_id, "data_version": each.version, "records": each.records}
            context |= {"schema_id": schemas[each.dataset], **declared.get(each.dataset, {})}
            yield _event(
                table_name=table_of(self.warehouse, each.dataset),
                marker=each.loaded_at,
                event_marker=each.loaded_at,
                correlation_id=f"{self.warehouse}/{each.dataset}/{each.partition}@{each.loaded_at.isoformat()}",
                write_operation=Operation.OVERWRITE if each.update_id else Operation.DELETE,
                partition_key=each.partition,
                context=context,
            )

    @property
    def _positions(self) -> Positions:
        return Positions(self.warehouse)


def _event(context: Mapping[str, Any], **values: Any) -> WriteEvent:
    """Return the write event of a load. Its context has only the values that are known."""
    event = WriteEvent(**values, context={name: value for name, value in context.items() if value is not None})
    check_event(event)
    return event


def table_loads(warehouse: str) -> TableLoads:
    """Return the loads of a warehouse in the settings. Raise InvalidSetting if the settings lack it."""
    return TableLoads(warehouse, _engine(warehouse))


def states(warehouse: str) -> list[TableState]:
    """Return the states of the tables in a warehouse of the settings. Raise SourceUnavailable on failure."""
    engine = _engine(warehouse)
    if engine.absence():
        return []
    with looking(engine) as connection:
        return load_state.tables(connection) if load_state.exists(connection) else []


@contextmanager
def looking(engine: Engine) -> Generator[Connection]:
    """Open a connection to a warehouse, and turn its errors into SourceBusy or SourceUnavailable."""
    try:
        with engine.open() as connection:
            yield connection
    except WarehouseBusy as error:
        raise SourceBusy(str(error)) from error
    except (WarehouseUnavailable, LoadFailed) as error:
        raise SourceUnavailable(str(error)) from error


def _engine(warehouse: str) -> Engine:
    setting = settings().warehouse(warehouse)
    return engine_of(setting.url.get_secret_value(), setting.iam_role, warehouse)


def _ends(topic: str) -> dict[int, int]:
    """Return the end offsets of a topic's partitions; {} for a deleted topic whose table remains."""
    from feed_assets.kafka.lag import ends  # Imported here: a dataset's table needs no Kafka packages.
    from feed_assets.sources.topic_events import clients_for, translated

    with translated():
        try:
            return ends(clients_for(topic), topic)
        except NoTopic:
            return {}


def _loaded(connection: Connection) -> list[Loaded]:
    """Return the topic partitions that have been loaded at least once."""
    rows = load_state.tables(connection) if load_state.exists(connection) else []
    return [
        Loaded(
            each.topic,
            each.partition,
            each.next_offset,
            loaded_at=each.loaded_at,
            schema_id=each.schema_id,
            refused=each.refused,
        )
        for each in rows
        if each.partition is not None and each.next_offset is not None and each.loaded_at is not None
    ]
