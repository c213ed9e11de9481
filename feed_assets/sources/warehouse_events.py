"""The tables of a warehouse as event tables: one event for each partition with new loads."""

import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from feed_assets.core.errors import (
    InvalidEvent,
    InvalidName,
    InvalidSetting,
    LoadFailed,
    NoTopic,
    SourceBusy,
    SourceUnavailable,
    WarehouseBusy,
    WarehouseUnavailable,
)
from feed_assets.core.events import COLUMNS, UPDATE_ID, Operation, Rejected, WriteEvent, check_event
from feed_assets.core.limits import as_text
from feed_assets.core.time_limits import ended_after
from feed_assets.core.topics import HISTORY, TOPIC_NAME
from feed_assets.core.warehouses import table_of
from feed_assets.feeds.answers import answers_of
from feed_assets.settings import settings
from feed_assets.sources.contract import EventBatch, Positions, batch_of
from feed_assets.warehouse import dataset_state, load_state
from feed_assets.warehouse.dataset_state import LoadedUpdate
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.load_state import TableState, TopicState
from feed_assets.warehouse.shapes import Column
from feed_assets.warehouse.statements import STATE
from feed_assets.warehouse.target import engine_at

OWNERS = "owners"
"""The key, in an event's context, of the owners that the table's schema names."""


class Loaded(NamedTuple):
    """A topic partition, the offset up to which its table is loaded, and the time (UTC) of its last load.

    The time is None if no load can have written the stored time.
    """

    topic: str
    partition: int
    next_offset: int
    loaded_at: datetime | None
    schema_id: int | None
    refused: int
    place: str | None
    """The partition's name. It is None if no load can have written the partition."""

    @property
    def name(self) -> str:
        """Return the name that positions use for the topic partition."""
        return f"{self.topic}/{self.partition}"


LOOK_SECONDS = 30
"""Seconds for all queries of one look. Dagster ends a tick after 60 s, but the tick's thread waits on."""

_Row = TypeVar("_Row", Loaded, LoadedUpdate)


@dataclass(frozen=True)
class TableLoads:
    """The loads of a warehouse's tables, read from its state tables.

    A load changes rows and state tables in one transaction. Several loads of a partition between two reads become one
    event. For a table of a topic, the event's marker is the first offset that is not loaded yet. So the event covers
    the offsets from the previous event's marker up to its own. For a table of a dataset, a load replaces a partition,
    and the event's marker is the time of the load.
    """

    warehouse: str
    engine: Engine = field(repr=False)

    def read(self, after: str | None, limit: int, seconds: float, /) -> EventBatch:
        """Return events of up to `limit` partitions loaded since a position. Raise SourceUnavailable on failure.

        After `seconds`, the broker gets no more requests, and the remaining events have no lag.
        """
        until = monotonic() + seconds
        if self.engine.absence():
            return EventBatch((), (), after, True)
        place = self._positions.load(after) or {}
        nexts, schemas, last = dict(place.get("next", {})), dict(place.get("schemas", {})), place.get("loaded_at")
        with looking(self.engine) as connection:
            moved = [each for each in _loaded(connection, self.engine) if nexts.get(each.name) != each.next_offset]
            new = moved[:limit]
            room = limit - len(new)
            after_load = datetime.fromisoformat(last) if last else None
            replaced = dataset_state.loads(connection, self.engine, after_load, room)
            ids = {each.topic: each.schema_id for each in new}
            changed = {name for name, each in ids.items() if each != schemas.get(name) or name.endswith(HISTORY)}
            states, rejected = _states(connection, sorted(changed | {each.dataset for each in replaced}))
        ids |= {name: each.schema_id for name, each in states.items()}
        declared = self._declared({name: each for name, each in states.items() if ids[name] != schemas.get(name)})
        is_history = {name: each.shape.is_history for name, each in states.items() if each.shape}
        histories = {name: name.removesuffix(HISTORY) for name, is_true in is_history.items() if is_true}
        rows = [*self._events(new, declared, histories, until), *self._replacements(replaced, ids, declared), *rejected]
        # If a table's stored shape cannot be read, its columns are reported only after a repair.
        schemas |= {name: each for name, each in ids.items() if name in states or name not in changed}
        nexts |= {each.name: each.next_offset for each in new}
        last = replaced[-1].loaded_at.isoformat() if replaced else last
        position = self._positions.dump({"next": nexts, "schemas": schemas, "loaded_at": last})
        is_complete = len(new) == len(moved) and len(replaced) < room
        return batch_of(rows, position if rows else after, is_complete=is_complete, waits=None)

    def _declared(self, states: Mapping[str, TopicState]) -> dict[str, dict[str, Any]]:
        """Return, for Dagster, the columns and the owners (as one text) that each table's schema declares."""
        return {
            table: {COLUMNS: [*map(self._column, shape.columns)], OWNERS: ", ".join(shape.owners) or None}
            for table, state in states.items()
            if (shape := state.shape)
        }

    def _column(self, column: Column) -> dict[str, Any]:
        return {
            "name": column.name,
            "type": self.engine.type_of(column.kind),
            "description": column.comment,
            "nullable": column.is_nullable,
        }

    def _events(
        self,
        new: Collection[Loaded],
        declared: Mapping[str, Mapping[str, Any]],
        histories: Mapping[str, str],
        until: float,
    ) -> Iterator[WriteEvent | Rejected]:
        """Yield an event for each topic partition with new loads. `histories` has the topics of history tables."""
        # Each topic takes a connection to the broker. Whoever may write the state tables can name thousands of topics.
        places = {each.name: _place(each, each.place, histories) for each in new if each.place is not None}
        topics = {topic for topic, _ in places.values()}
        ends_by_topic = {each: _ends(each) if monotonic() <= until else None for each in topics}

        def event_of(each: Loaded) -> WriteEvent:
            if each.loaded_at is None:
                raise InvalidEvent("no load can have written the time: expected one from 1970 to now.")
            if each.place is None:
                raise InvalidEvent("no load can have written the partition: expected one of the table's topics.")
            topic, partition = places[each.name]
            ends = ends_by_topic[topic]
            lag = None if ends is None else max(0, ends.get(partition, 0) - each.next_offset)
            context = {"schema_id": each.schema_id, "refused": each.refused, "lag": lag, **declared.get(each.topic, {})}
            return _event(
                table_name=table_of(self.warehouse, each.topic),
                marker=each.next_offset,
                event_marker=each.loaded_at,
                correlation_id=f"{self.warehouse}/{each.name}/{each.next_offset}@{each.loaded_at.isoformat()}",
                write_operation=Operation.INSERT if each.topic in histories else Operation.UPSERT,
                partition_key=each.place,
                context=context,
            )

        return _each_alone("positions", new, event_of)

    def _replacements(
        self,
        loads: Collection[LoadedUpdate],
        schemas: Mapping[str, int | None],
        declared: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[WriteEvent | Rejected]:
        def event_of(each: LoadedUpdate) -> WriteEvent:
            context = {UPDATE_ID: each.update_id, "data_version": each.version, "records": each.records}
            context |= {"schema_id": schemas.get(each.dataset), **declared.get(each.dataset, {})}
            return _event(
                table_name=table_of(self.warehouse, each.dataset),
                marker=each.loaded_at,
                event_marker=each.loaded_at,
                correlation_id=f"{self.warehouse}/{each.dataset}/{each.partition}@{each.loaded_at.isoformat()}",
                write_operation=Operation.OVERWRITE if each.update_id else Operation.DELETE,
                partition_key=each.partition,
                context=context,
            )

        return _each_alone("updates", loads, event_of)

    @property
    def _positions(self) -> Positions:
        return Positions(self.warehouse)


def _event(context: Mapping[str, Any], **values: Any) -> WriteEvent:
    """Return the write event of a load. Its context has only the values that are known."""
    event = WriteEvent(**values, context={name: value for name, value in context.items() if value is not None})
    check_event(event)
    return event


def _each_alone(
    name: str, rows: Iterable[_Row], event_of: Callable[[_Row], WriteEvent]
) -> Iterator[WriteEvent | Rejected]:
    """Yield the event of each row of a state table. Reject a row that no load can have written."""
    for row in rows:
        try:
            yield event_of(row)
        except (InvalidEvent, InvalidName) as error:
            yield Rejected(as_text(row._asdict()), f"a row of {STATE}.{name}: {error}")


def _states(connection: Connection, tables: Iterable[str]) -> tuple[dict[str, TopicState], list[Rejected]]:
    """Return the states of some tables. Reject a state that no load can have written."""
    states, rejected = dict[str, TopicState](), list[Rejected]()
    for table in tables:
        try:
            states[table] = load_state.read(connection, table)
        except LoadFailed as error:
            rejected.append(Rejected(table, str(error)))
    return states, rejected


def table_loads(warehouse: str) -> TableLoads:
    """Return the loads of a warehouse in the settings. Raise InvalidSetting if the settings lack it."""
    return TableLoads(warehouse, _engine(warehouse))


def states(warehouse: str) -> list[TableState]:
    """Return the states of the tables in a warehouse of the settings.

    Raise SourceUnavailable on failure, and if there is no answer in time: alerts of all datasets wait for this.
    """
    engine = _engine(warehouse)

    def ask() -> list[TableState]:
        if engine.absence():
            return []
        with looking(engine) as connection:
            return load_state.tables(connection) if load_state.exists(connection, engine) else []

    try:
        return answers_of("warehouse", warehouse).within(ask)
    except OSError as error:
        raise SourceUnavailable(f"the warehouse {warehouse}: {error}") from error


@contextmanager
def looking(engine: Engine) -> Generator[Connection]:
    """Open a connection to a warehouse, which is broken after `LOOK_SECONDS`.

    Turn its errors into SourceBusy or SourceUnavailable.
    """
    try:
        with engine.open() as connection, ended_after(LOOK_SECONDS, connection.shut):
            yield connection
    except WarehouseBusy as error:
        raise SourceBusy(str(error)) from error
    except (WarehouseUnavailable, LoadFailed) as error:
        raise SourceUnavailable(str(error)) from error


def _engine(warehouse: str) -> Engine:
    setting = settings().warehouse(warehouse)
    return engine_at(setting, warehouse)


def _ends(topic: str) -> dict[int, int] | None:
    """Return the end offsets of a topic's partitions; {} for a deleted topic whose table remains.

    Return None if no broker is set, or if Kafka's packages are missing. Also return None if no topic can have this
    name: another role may have written the name to the state table.
    """
    if not re.fullmatch(TOPIC_NAME, topic):
        return None
    try:
        from feed_assets.kafka.lag import ends  # Imported here: a dataset's table needs no Kafka packages.
        from feed_assets.sources.topic_events import clients_for, translated

        with translated(), suppress(NoTopic):  # `translated` would turn NoTopic into SourceUnavailable.
            return ends(clients_for(topic), topic)
    except (InvalidSetting, ImportError):
        return None
    return {}


def _place(loaded: Loaded, place: str, histories: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic and partition of a loaded partition. In a union, its name has both."""
    topic, _, partition = place.rpartition("-")
    return (topic, int(partition)) if topic else (histories.get(loaded.topic, loaded.topic), loaded.partition)


def _loaded(connection: Connection, engine: Engine) -> list[Loaded]:
    """Return the topic partitions that have been loaded at least once."""
    rows = load_state.tables(connection) if load_state.exists(connection, engine) else []
    return [
        Loaded(
            each.topic,
            each.partition,
            each.next_offset,
            loaded_at=each.loaded_at,
            schema_id=each.schema_id,
            refused=each.refused,
            place=each.place,
        )
        for each in rows
        if each.partition is not None and each.next_offset is not None
    ]
