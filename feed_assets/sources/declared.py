"""Declarations of event sources: plain values, which travel as an asset's metadata."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from feed_assets.core.argument_types import BoardName, Prefix, Url
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import check_segment
from feed_assets.core.typed import typed
from feed_assets.core.windows import step_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import check_installed
from feed_assets.settings import expand
from feed_assets.sources.contract import Reader
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.sql import SqlEvents

BoardNamed = Callable[[str | None], Blackboard]
"""A function that returns the blackboard of a name, and ours for None."""


@typed
@dataclass(frozen=True)
class SqlTable:
    """Events in a table or view of a database, which is only read.

    Args:
        url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
        table: Its name.
        order_by: A column that grows with each event, best a number that the database draws; never null.
        columns: Which column holds what.
        where: The values that are read by column, if the table is split into parts.
        schema: The database's schema that it is in.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the URL is none.
    """

    url: Url
    table: str
    order_by: str
    columns: Columns = field(default_factory=Columns)
    where: Mapping[str, Sequence[str | int]] = field(default_factory=dict[str, Sequence[str | int]])
    schema: str | None = None

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these events."""
        url, where = expand(self.url), self.where
        return SqlEvents(url, self.table, self.columns, order_by=self.order_by, where=where, schema=self.schema)


@typed
@dataclass(frozen=True)
class EventFiles:
    """Events in files on the blackboard, read in the order of their names.

    Args:
        prefix: The folder that they are in.
        format: `csv` (with a header), `jsonl` (one object a line) or `parquet`.
        columns: Which column holds what.
        blackboard: The name of the blackboard, of those in `FEED_ASSETS_BLACKBOARDS`; by default ours.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the prefix no folder.
    """

    prefix: Prefix
    format: Literal["csv", "jsonl", "parquet"]
    columns: Columns = field(default_factory=Columns)
    blackboard: BoardName | None = None

    def reader(self, board: BoardNamed) -> Reader:
        """Return the reader of these events."""
        return FileEvents(board(self.blackboard), self.prefix, self.format, self.columns)


@typed
@dataclass(frozen=True)
class EventTopic:
    """Events in a topic of the Kafka broker of `FEED_ASSETS_KAFKA`, one in each message.

    Args:
        topic: Its name.
        format: `json`, an object in each message, or `avro`, in the wire format of Confluent's registry.
        columns: Which field holds what; `_partition`, `_offset` and `_timestamp` of a message are fields, too.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the name cannot be that of a topic.
    """

    topic: str
    format: Literal["json", "avro"] = "json"
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.topic):
            raise InvalidDefinition(f"topic {self.topic!r}: expected 1 to 249 letters, digits, '_', '-' and '.'.")

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these events. Raise InvalidSetting if no broker, or registry, is set."""
        check_installed()
        from feed_assets.sources.topic_events import topic_events

        return topic_events(self.topic, self.format, self.columns)


@typed
@dataclass(frozen=True)
class TopicCounts:
    """Counts of the messages of a Kafka topic, for a dataset of the state store.

    Its chunks are reported as parts, by the timestamps of the messages.

    Args:
        dataset: The dataset's name, such as `web/clicks`, which the code location declares with its windows.
        tier: Who reports the source's counts: the `broker`, by its offsets, if it stamps messages on arrival and
            nobody writes in transactions; for any other topic we do, as a `reader` of all messages.
        grain: The dataset's smallest windows: minutes that divide an hour, or `hour`.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the grain none.
    """

    dataset: str
    tier: Literal["broker", "reader"] = "reader"
    grain: str = "5min"

    def __post_init__(self) -> None:
        step_of(self.grain)


@typed
@dataclass(frozen=True)
class SignalTopic:
    """The signals of a Kafka topic that becomes chunks: one event for each. `kafka_topic` declares it.

    Args:
        upstream: The name of the topic that the signals are about.
        counts: What the records of its chunks are reported as, if they are.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    upstream: str
    counts: TopicCounts | None = None

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these events. Raise InvalidSetting if no broker is set."""
        check_installed()
        from feed_assets.sources.signal_events import topic_signals

        reported = (self.counts.dataset, step_of(self.counts.grain)) if self.counts else None
        return topic_signals(self.upstream, reported)


@typed
@dataclass(frozen=True)
class CountedTopic:
    """The number of a Kafka topic's messages by window: reports, and no events. `kafka_topic` declares it.

    Args:
        counted: The topic's name.
        by: What they are reported as.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    counted: str
    by: TopicCounts

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these counts. Raise InvalidSetting if no broker is set."""
        check_installed()
        from feed_assets.sources.topic_counts import SourceCounts
        from feed_assets.sources.topic_events import clients_for

        step = step_of(self.by.grain)
        return SourceCounts(clients_for(self.counted), self.counted, self.by.dataset, self.by.tier, step)


@typed
@dataclass(frozen=True)
class LoadedTables:
    """The tables that a loader keeps in a warehouse: an event whenever one was loaded. `warehouse_table` declares it.

    Args:
        warehouse: The warehouse's name, of those in `FEED_ASSETS_WAREHOUSES`.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    warehouse: str

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these events. Raise InvalidSetting if there is no such warehouse."""
        from feed_assets.sources.warehouse_events import table_loads

        return table_loads(self.warehouse)


@typed
@dataclass(frozen=True)
class EventSource:
    """A table of events that others own, in one part or split into several, by table or pipeline, or in none.

    Args:
        name: Its name, which is also part of its sensor's: letters, digits and `_`.
        parts: Where its events are; `()` if its owners send them to the receiver, and nothing is to be read.
        out_of_order: An event whose marker is before its table's last one is recorded with a flag (`flag`), or
            refused and kept as a reject (`refuse`).

    Raises:
        InvalidName: The name cannot be that of a source.
        InvalidDefinition: A value is of a wrong type, or the name cannot be that of a sensor.
    """

    name: str
    parts: tuple[SqlTable | EventFiles | EventTopic | SignalTopic | CountedTopic | LoadedTables, ...]
    out_of_order: Literal["flag", "refuse"] = "flag"

    def __post_init__(self) -> None:
        check_segment(self.name, "event source")
        if not self.name.isidentifier():
            raise InvalidDefinition(f"event source {self.name!r}: expected letters, digits and '_': it names a sensor.")


_ADAPTER = TypeAdapter(EventSource)


def of_json(values: Any) -> EventSource:
    """Return the declaration that JSON values hold."""
    return _ADAPTER.validate_python(values)
