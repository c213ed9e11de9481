"""Events in a Kafka topic, one per message."""

import json
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from time import monotonic
from typing import Any, Literal

from feed_assets.core.errors import InvalidSetting, KafkaUnavailable, LogTrimmed, SourceUnavailable
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.limits import READ_BYTES, REASON_BYTES, REJECT_BYTES, ROW_BYTES, excerpt, json_length
from feed_assets.kafka import topic_reader
from feed_assets.kafka.clients import SECONDS, Clients
from feed_assets.kafka.decode import record
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.topic_identity import one_topic
from feed_assets.kafka.topic_reader import Placed, ReadMessages
from feed_assets.settings import settings
from feed_assets.sources.contract import EventBatch, Positions, batch_of
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.text_rows import json_object

LOOKUPS = 200
"""The most schemas that one read requests. The read ends earlier if its time is over, so that other topics are read."""

DECODE_SECONDS = 5.0
"""Seconds that a read without schema requests may always use to decode, even if the broker's answer used up its time.
"""

_ADVICE = (
    "`feed-assets reconcile` reads the new topic from its beginning. If the markers of its events are offsets, declare "
    "another table first: they begin again, too."
)


@dataclass(frozen=True)
class Messages(ABC):
    """The messages of a topic as events, in the order of each partition. Aborted transactions are skipped."""

    clients: Clients = field(repr=False)
    topic: str

    def read(self, after: str | None, limit: int, seconds: float = SECONDS, /) -> EventBatch:
        """Return up to `limit` messages after a position. Raise SourceUnavailable if they cannot be read."""
        place = self._positions.load(after) or {}
        begins = {int(partition): offset for partition, offset in place.get("next", {}).items()}
        until = monotonic() + seconds
        with (
            translated(),
            one_topic(self.clients, self.topic, place.get("topic_id"), advice=_ADVICE, seconds=seconds) as topic_id,
        ):
            page = topic_reader.read(self.clients, self.topic, begins, limit=limit, size=READ_BYTES, seconds=seconds)
            rows = self._rows(page.messages, until)
        page = _first(page, begins, len(rows))
        nexts = {"next": dict(sorted(page.after.items())), "topic_id": topic_id}
        position = self._positions.dump(nexts) if page.after else after
        held = ", ".join(f"{self.topic}/{partition}" for partition in sorted(page.held))
        waits = f"a transaction in {held} has not ended: it and all later messages wait" if held else None
        batch = batch_of(rows, position, page.is_complete, waits)
        return replace(batch, reports=tuple(self._reports(page.messages)))

    def _rows(self, messages: Sequence[Placed], until: float) -> list[WriteEvent | Rejected]:
        """Return the rows of messages until one of three limits is reached.

        These are READ_BYTES for the rows, `until` for the time, and LOOKUPS for requested schemas.
        """
        rows, size, before = list[WriteEvent | Rejected](), 0, self._lookups
        decoded_until = max(until, monotonic() + DECODE_SECONDS)
        for each in messages:
            rows.append(row := self._row(each))
            size += json_length(row.context, READ_BYTES) if isinstance(row, WriteEvent) else len(row.raw)
            lookups = self._lookups - before
            is_over = monotonic() > (until if lookups else decoded_until)
            if size >= READ_BYTES or lookups >= LOOKUPS or is_over:
                break
        return rows

    @property
    def _lookups(self) -> int:
        """Return how many schemas were requested so far."""
        return 0

    def _reports(self, _: Sequence[Placed], /) -> Iterable[Mapping[str, Any]]:
        """Return the messages' reports for the ledger."""
        return ()

    @abstractmethod
    def _row(self, placed: Placed) -> WriteEvent | Rejected: ...

    @property
    @abstractmethod
    def _positions(self) -> Positions: ...


def _first(page: ReadMessages, begins: Mapping[int, int], count: int) -> ReadMessages:
    """Return a page with only its first `count` messages, and the position after them."""
    if count == len(page.messages):
        return page
    messages = page.messages[:count]
    return ReadMessages({**begins, **{each.partition: each.message.offset + 1 for each in messages}}, messages)


@dataclass(frozen=True)
class TopicEvents(Messages):
    """The events in a topic's messages: one JSON object each, or Avro with the registry's schemas.

    `_partition`, `_offset` and `_timestamp` (milliseconds since 1970) are columns, too.
    """

    format: Literal["json", "avro"]
    columns: Columns = field(default_factory=Columns)
    schemas: Schemas | None = field(default=None, repr=False)

    def _row(self, placed: Placed) -> WriteEvent | Rejected:
        partition, message = placed
        value = message.value or b""
        fields = self._fields(value) if len(value) <= ROW_BYTES else f"it has more than {ROW_BYTES} bytes"
        if isinstance(fields, str):
            row = Rejected(excerpt(json.dumps(value.decode(errors="surrogateescape")), REJECT_BYTES), fields)
        else:
            message_columns = {"_partition": partition, "_offset": message.offset, "_timestamp": message.timestamp}
            row = self.columns.read({**message_columns, **fields})
        if isinstance(row, Rejected):
            reason = f"{self.topic}/{partition} offset {message.offset}: {row.reason}"
            return Rejected(excerpt(row.raw, REJECT_BYTES), excerpt(reason, REASON_BYTES))
        return row

    def _fields(self, value: bytes) -> Mapping[str, Any] | str:
        """Return the fields of a message, or why they cannot be read."""
        if self.schemas is None:
            return json_object(value.decode(errors="surrogateescape"))
        try:
            fields = record(value, "value", self.schemas)[1]
        except Poison as error:
            return str(error)
        is_long = json_length(fields, ROW_BYTES) > ROW_BYTES
        return f"its fields have more than {ROW_BYTES} characters as JSON" if is_long else fields

    @property
    def _lookups(self) -> int:
        return self.schemas.lookups if self.schemas else 0

    @property
    def _positions(self) -> Positions:
        return Positions(self.topic, self.format, self.columns)


@contextmanager
def translated() -> Generator[None]:
    """Turn Kafka's errors into errors of an event source."""
    try:
        yield
    except (KafkaUnavailable, LogTrimmed) as error:
        raise SourceUnavailable(str(error)) from error


def topic_events(topic: str, form: Literal["json", "avro"], columns: Columns) -> TopicEvents:
    """Return the events in a topic. Raise InvalidSetting if the broker or a needed registry is not set."""
    registry = settings().kafka_registry if form == "avro" else None
    if form == "avro" and registry is None:
        raise InvalidSetting(
            f"{topic} has Avro messages: expected the registry's URL in FEED_ASSETS_KAFKA_REGISTRY. Set it."
        )
    schemas = _schemas(registry.get_secret_value()) if registry else None
    return TopicEvents(clients_for(topic), topic, form, columns, schemas)


def clients_for(topic: str) -> Clients:
    """Return the clients of the settings' broker for `topic`. Raise InvalidSetting if no broker is set."""
    conf = settings().kafka.get_secret_value()
    if "bootstrap.servers" not in conf:
        raise InvalidSetting(
            f"{topic} is a topic, but FEED_ASSETS_KAFKA names no broker: expected a JSON object such as "
            '{"bootstrap.servers": "kafka:9092"}. Set it.'
        )
    return Clients(conf)


@cache
def _schemas(url: str) -> Schemas:
    """Return the schemas of a registry, cached for the process: each schema is requested once."""
    return Schemas(url)
