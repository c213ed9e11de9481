"""A topic without a broker: the connector's code makes its chunks, and a model holds the expected table."""

import json
from hashlib import sha256
from typing import Any

from feed_assets.core.chunks import key_of
from feed_assets.core.sql_text import quoted
from feed_assets.core.topics import Topic
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro, chunk_files, dialect
from feed_assets.kafka.cutter import Cutter
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import Message
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse.engines import Engine
from feed_assets.warehouse.load_groups import Signalled
from feed_assets.warehouse.shapes import shape_of
from feed_assets_tests.support.warehouse_connection import opened

ID = {"name": "id", "type": "long"}
TEXT = {"name": "text", "type": ["null", "string"], "default": None}


class Registry:
    """Schemas by ids, which are numbered in order."""

    def __init__(self) -> None:
        self.known: dict[int, avro.Schema] = {}

    def get(self, schema_id: int) -> avro.Schema:
        if schema_id not in self.known:
            raise Poison(f"the registry has no schema {schema_id}")
        return self.known[schema_id]

    def add(self, *fields: Any, name: str = "Value") -> int:
        schema = avro.parsed(json.dumps({"type": "record", "name": name, "fields": fields}), {})
        self.known[len(self.known) + 1] = schema
        return len(self.known)


class Stream:
    """A topic, its chunks on a blackboard, and its expected table: rows by key, with partition and offset."""

    def __init__(self, board: Blackboard, name: str, *key: str, gzip: bool = False, format: str = "csv") -> None:  # noqa: A002
        self.board, self.name, self.schemas = board, name, Registry()
        self.topic = Topic(key=key or ("id",), operation="header:op", gzip=gzip)
        self._formats = ["csv", "parquet"] if format == "both" else [format]
        self.key_id = self.schemas.add(*({"name": each, "type": "long"} for each in self.topic.key), name="Key")
        self.ends: dict[int, int] = {}
        self.signals: list[Signalled] = []
        self.messages: list[tuple[int, int, Any, dict[str, Any]]] = []
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def shape(self, schema_id: int | None):
        return None if schema_id is None else shape_of(self.schemas.get(schema_id), self.topic.key)

    def send(self, schema_id: int, *rows: Any, partition: int = 0, skips: int = 0) -> Signalled:
        """Send a chunk: a dict is an update, `(operation, dict)` has that operation, `(None, dict)` is a tombstone."""
        start = self.ends.get(partition, 0)
        messages = [self._message(start + skips + number, schema_id, each) for number, each in enumerate(rows)]
        decoder = Decoder(self.topic, self.schemas)  # type: ignore[arg-type]
        cutter = Cutter(start, Topic(key=self.topic.key, messages=1_000_000))
        for each in messages:
            assert not [*cutter.add(decoder(each), 0)]
        chunk = cutter.due(1e9)
        assert chunk
        self._fold(rows, partition, start + skips)
        return self._signal(partition, chunk)

    def quiet(self, count: int, partition: int = 0) -> Signalled:
        """Signal a range without records."""
        start = self.ends.get(partition, 0)
        self.ends[partition] = start + count
        return self._keep(
            Signal(self.name, partition, start, start + count - 1, 0, count, dialect.NAME, None, 0, None, None)
        )

    def model(self) -> list[tuple[Any, ...]]:
        """Return the expected rows, with partition and offset at the end."""
        return sorted(self.rows.values(), key=repr)

    def table(self, engine: Engine) -> list[tuple[Any, ...]]:
        """Return the rows of the table, in the form of the model."""
        with opened(engine) as connection:
            return sorted(connection.execute(f"SELECT * FROM {quoted(self.name)}"), key=repr)

    def _message(self, offset: int, schema_id: int, row: Any) -> Message:
        operation, value = row if isinstance(row, tuple) else ("update", row)
        named = {each: value[each] for each in self.topic.key}
        key = avro.encoded(named, self.schemas.get(self.key_id), self.key_id)
        data = avro.encoded(value, self.schemas.get(schema_id), schema_id) if operation else None
        return Message(offset, key, data, [("op", str(operation).encode())])

    def _fold(self, rows: Any, partition: int, start: int) -> None:
        for offset, row in enumerate(rows, start):
            operation, value = row if isinstance(row, tuple) else ("update", row)
            self.messages.append((partition, offset, operation, value))
            key = tuple(value[each] for each in self.topic.key)
            if operation in (None, "delete"):
                self.rows.pop(key, None)
            else:
                self.rows[key] = (*value.values(), partition, offset)

    def folded(self, nexts: dict[int, int]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Fold the messages before these offsets: by key the value, partition and offset."""
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for partition, offset, operation, value in self.messages:
            if offset < nexts.get(partition, 0):
                key = tuple(value[each] for each in self.topic.key)
                found.pop(key, None)
                found |= {} if operation in (None, "delete") else {key: (value, partition, offset)}
        return found

    def _signal(self, partition: int, chunk: Any) -> Signalled:
        topic = self.topic.model_copy(update={"format": self._formats[len(self.signals) % len(self._formats)]})
        content = chunk_files.stored(chunk.content, topic, chunk.record)
        start, end = chunk.offsets
        key = key_of(self.name.replace("/", "_"), partition, start, topic.ending)
        self.board.put(f"{chunk_files.FOLDER}/{key}", content)
        self.ends[partition] = end
        path, digest = f"{self.board.url}/{chunk_files.FOLDER}/{key}", sha256(content).hexdigest()
        name = chunk_files.dialect_of(topic.ending)
        facts = (chunk.records, len(chunk.dead), name, path, len(content), digest, chunk.schema_id)
        return self._keep(Signal(self.name, partition, start, end - 1, *facts))

    def _keep(self, signal: Signal) -> Signalled:
        self.signals.append(Signalled(signal, len(self.signals) + 1))
        return self.signals[-1]
