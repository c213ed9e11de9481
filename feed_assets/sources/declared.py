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
from feed_assets.sources.event_rows import Columns

BoardNamed = Callable[[str | None], Blackboard]
"""A function that returns the blackboard with the given name, or our own blackboard for None."""


@typed
@dataclass(frozen=True)
class SqlTable:
    """Events in a table or view of a database. feed_assets only reads it.

    Args:
        url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
        table: The table's name.
        order_by: A column that grows with each event and is never null, preferably a number that the database draws.
        columns: The column for each fact about an event.
        where: The values of the rows to read, by column; by default all rows are read.
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
        """Return the reader of the write events in this SQL table."""
        from feed_assets.sources.sql import SqlEvents  # SQLAlchemy takes long to load.

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
        """Return the reader of the write events in these files."""
        from feed_assets.sources.event_files import FileEvents

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
        """Return the reader of the write events in this topic.

        Raise InvalidSetting if the broker or a needed registry is not set.
        """
        check_installed()
        from feed_assets.sources.topic_events import topic_events

        return topic_events(self.topic, self.format, self.columns)


@typed
@dataclass(frozen=True)
class TopicCounts:
    """Rules for counting the messages of a Kafka topic, and the dataset for which the counts are reported.

    Each chunk of the topic becomes a report: the number of its messages in each window of their timestamps.

    Args:
        dataset: The dataset's name, such as `web/clicks`, which the code location declares with its windows.
        tier: The tier of the source's counts. `broker` counts by the broker's offsets. It works only if the broker
            stamps messages on arrival, and if no producer uses transactions. `reader` reads all messages of any topic.
        grain: The length of the dataset's smallest windows: minutes that divide an hour, such as `5min`, or `hour`.

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
    """The signals of a Kafka topic that is cut into chunks. Each signal is an event.

    The function `kafka_topic` makes this declaration.

    Args:
        upstream: The name of the topic with the messages.
        counts: The rules for reporting the record counts of the chunks; None if they are not reported.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    upstream: str
    counts: TopicCounts | None = None

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader that turns this topic's signals into write events.

        Raise InvalidSetting if no broker is set.
        """
        check_installed()
        from feed_assets.sources.signal_events import topic_signals

        reported = (self.counts.dataset, step_of(self.counts.grain)) if self.counts else None
        return topic_signals(self.upstream, reported)


@typed
@dataclass(frozen=True)
class CountedTopic:
    """A Kafka topic whose messages are counted by window. The ledger stores the counts as reports.

    The function `kafka_topic` makes this declaration.

    Args:
        counted: The topic's name.
        by: The rules for counting and reporting.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    counted: str
    by: TopicCounts

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader that counts this topic's messages by window. Raise InvalidSetting if no broker is set."""
        check_installed()
        from feed_assets.sources.topic_counts import SourceCounts
        from feed_assets.sources.topic_events import clients_for

        step = step_of(self.by.grain)
        return SourceCounts(clients_for(self.counted), self.counted, self.by.dataset, self.by.tier, step)


@typed
@dataclass(frozen=True)
class LoadedTables:
    """The tables that a loader fills in a warehouse. New loads become events.

    The function `warehouse_table` makes this declaration.

    Args:
        warehouse: The name of a warehouse in `FEED_ASSETS_WAREHOUSES`.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    warehouse: str

    def reader(self, _board: BoardNamed) -> Reader:
        """Return the reader of write events about loads into a warehouse.

        Raise InvalidSetting if there is no such warehouse.
        """
        from feed_assets.sources.warehouse_events import table_loads

        return table_loads(self.warehouse)


@typed
@dataclass(frozen=True)
class EventSource:
    """A table of events that others own.

    Args:
        name: The source's name, also used for its sensor: letters, digits and `_`.
        parts: The places with its events, for example one per table or pipeline; `()` if its owners send all events to
            the receiver.
        out_of_order: The action for an event whose marker is before the last marker of its table: `flag` records it
            with a flag, and `refuse` keeps it as a reject.

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
            raise InvalidDefinition(
                f"event source {self.name!r}: expected a name of letters, digits and '_', because a sensor gets this "
                "name."
            )


_ADAPTER = TypeAdapter(EventSource)


def of_json(values: Any) -> EventSource:
    """Return the declaration of an event source from the JSON values in an asset's metadata."""
    return _ADAPTER.validate_python(values)
