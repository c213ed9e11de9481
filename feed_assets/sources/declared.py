"""Declarations of event sources: plain values that are stored in an asset's metadata."""

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
"""A function that returns the blackboard with a name; for None, ours."""


@typed
@dataclass(frozen=True)
class SqlTable:
    """Events in a table or view of a database. It is only read.

    Args:
        url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
        table: The table's name.
        order_by: A column that grows with each event and is never null, preferably a number that the database draws.
        columns: The column for each fact about an event.
        where: The values to read, by column, if the table is split into parts.
        schema: The table's schema in the database.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the URL is invalid.
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
        prefix: The folder with the files.
        format: `csv` (with a header), `jsonl` (one object per line) or `parquet`.
        columns: The column for each fact about an event.
        blackboard: The name of a blackboard in `FEED_ASSETS_BLACKBOARDS`; by default ours.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the prefix is not a folder.
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
        topic: The topic's name.
        format: `json`, an object in each message, or `avro`, in the wire format of Confluent's registry.
        columns: The field for each fact about an event; `_partition`, `_offset` and `_timestamp` of a message are
            fields, too.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the topic's name is invalid.
    """

    topic: str
    format: Literal["json", "avro"] = "json"
    columns: Columns = field(default_factory=Columns)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", self.topic):
            raise InvalidDefinition(f"topic {self.topic!r}: expected 1 to 249 letters, digits, '_', '-' and '.'.")

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of these events. Raise InvalidSetting if no broker, or no needed registry, is set."""
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
        tier: The reporter of the source's counts. `broker`: the broker's offsets, if it stamps messages on arrival and
            nobody writes in transactions. `reader`: our own reading of all messages, for any other topic.
        grain: The dataset's smallest windows: minutes that divide an hour, or `hour`.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the grain is invalid.
    """

    dataset: str
    tier: Literal["broker", "reader"] = "reader"
    grain: str = "5min"

    def __post_init__(self) -> None:
        step_of(self.grain)


@typed
@dataclass(frozen=True)
class SignalTopic:
    """The signals of a Kafka topic that is cut into chunks: one event for each. `kafka_topic` declares it.

    Args:
        upstream: The name of the topic with the messages.
        counts: How the record counts of its chunks are reported, if they are.

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
    """The number of a Kafka topic's messages by window: reports without events. `kafka_topic` declares it.

    Args:
        counted: The topic's name.
        by: How they are reported.

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
    """The tables that a loader keeps in a warehouse: an event for each load. `warehouse_table` declares it.

    Args:
        warehouse: The name of a warehouse in `FEED_ASSETS_WAREHOUSES`.

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
    """A table of events that others own: in one part, split into several by table or pipeline, or only received.

    Args:
        name: The source's name, also used for its sensor: letters, digits and `_`.
        parts: The places of its events; `()` if its owners send all events to the receiver.
        out_of_order: An event whose marker is before its table's last one is recorded with a flag (`flag`), or
            refused and kept as a reject (`refuse`).

    Raises:
        InvalidName: The name is not a valid source name.
        InvalidDefinition: A value is of a wrong type, or the name is not a valid sensor name.
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
    """Return the declaration for some JSON values."""
    return _ADAPTER.validate_python(values)
