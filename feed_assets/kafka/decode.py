"""Decoding of messages to rows: Avro, Protobuf or JSON, and the operation in a header or field."""

from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as brief
from traceback import extract_tb
from typing import Any, NamedTuple, cast

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.limits import REASON_BYTES, excerpt
from feed_assets.core.record_columns import SEPARATOR
from feed_assets.core.schemas import column_types
from feed_assets.core.topics import OPERATIONS, PLAIN_KEYS, Mask, Topic
from feed_assets.kafka import avro, debezium, dialect, framing, snapshot_markers
from feed_assets.kafka.dialect import Unwritable
from feed_assets.kafka.flat_records import FlatRecord, flattened, with_key_columns
from feed_assets.kafka.framing import Framed
from feed_assets.kafka.json_values import JsonValues, object_of, value_of
from feed_assets.kafka.masks import Masks, masked_record, masks_of
from feed_assets.kafka.messages import OFFSET, OPERATION, ChunkRow, DeadLetter, Decoded, Message, Tombstone
from feed_assets.kafka.plain_keys import key_of
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_values import protobuf_fields
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.schema_limits import InvalidSchema

_DEFAULT = "update"
_OPERATIONS = {**{each: each for each in OPERATIONS}, **debezium.OPERATIONS, "true": "delete", "false": _DEFAULT}
"""Operations by their words in messages. `true` and `false` are those of Debezium's field `__deleted`."""

_MOST_READERS = 20


class _Layout(NamedTuple):
    """The columns of a chunk with one schema, and the key fields that values of this schema do not have.

    The columns end with those of a row, which `flat` makes of a value. `record` is the Avro type of a masked row, and
    `masks` has its masked columns.
    """

    columns: tuple[str, ...]
    missing: tuple[str, ...]
    flat: FlatRecord
    record: Mapping[str, Any]
    masks: Mapping[str, Mask]


class Decoder:
    """Decoder of one topic's messages. The same message always becomes the same row."""

    def __init__(self, topic: Topic, schemas: Schemas, mask_key: bytes = b"") -> None:
        self._topic, self._schemas = topic, schemas
        self._masks = Masks(topic, mask_key) if topic.mask else None
        self._kind, _, self._name = (topic.operation or "").partition(":")
        self._json = JsonValues(column_types(topic.columns), schemas, topic.flatten) if topic.columns else None
        self._json_readers: dict[int, JsonValues] = {}
        """Readers of values with a JSON Schema, by its id."""

    def __call__(self, message: Message) -> Decoded:
        """Return a message's row or tombstone, or a DeadLetter with the reason. Raise KafkaUnavailable."""
        try:
            return self._decoded(message)
        except (Poison, Unwritable) as error:
            if self._masks:
                return self._masks.sealed(message, excerpt(getattr(error, "public", str(error)), REASON_BYTES))
            return DeadLetter(message, excerpt(str(error), REASON_BYTES))

    def _decoded(self, message: Message) -> Decoded:
        """Return a message's row or tombstone. An error of ours must not stop all topics for one message."""
        try:
            if message.value is not None:
                return self._row(message)
            return snapshot_markers.only_marker(self._topic, message) or self._tombstone(message)
        except (Poison, Unwritable, FeedAssetsError):
            raise
        except Exception as error:
            at = extract_tb(error.__traceback__)[-1]
            place = f"{type(error).__name__} in {Path(at.filename).name}, line {at.lineno}"
            raise Poison.plain(f"an error of feed_assets ({place}): report it, and replay this letter later") from error

    def _row(self, message: Message) -> ChunkRow:
        if self._topic.values == "avro":
            framed = self._framed(message, "value", "Avro")
            schema_id, content = framed.schema_id, _record(framed, "value", self._schemas)
            layout = self._layout(schema_id)
            operation, value = self._change(message, framed.data, content)
        elif self._topic.values == "protobuf":
            framed = self._framed(message, "value", "Protobuf")
            kind, content = protobuf_fields(framed, "value", self._schemas)
            operation, value = self._change(message, framed.data, content)
            schema_id = kind.schema_id(self._schemas)
            layout = self._layout(schema_id)
        else:
            reader, data = self._json_value(message)
            content = object_of(data)
            operation, fields = self._change(message, data, content)
            schema_id, value = reader.schema_id, reader.row(fields)
            layout = self._layout(schema_id)
        marker = snapshot_markers.marker_of(self._topic, message, content)
        if self._topic.is_debezium:
            _check_fields(value, layout.flat.fields.names)
        value = layout.flat.row(value)
        key: Mapping[str, Any] = self._key(message) if layout.missing else {}
        for name in self._topic.key:
            if value.get(name, key.get(name)) is None:
                raise Poison.plain(f"the key field {name} is null or missing")
        if self._masks:  # Mask before the line is made: nothing else of a message reaches a file.
            key, value = self._masks.fields(key, layout.masks), self._masks.fields(value, layout.masks)
        cells: list[Any] = [key[name] for name in layout.missing]
        line = dialect.line([operation, message.offset, *cells, *value.values()])
        return ChunkRow(
            message.offset,
            schema_id,
            layout.columns,
            line,
            timestamp=message.moment,
            record=layout.record,
            marker=marker,
        )

    def _framed(self, message: Message, part: str, form: str) -> Framed:
        return framing.framed(message, part, form, framing=self._topic.framing, schemas=self._schemas)

    def _json_value(self, message: Message) -> tuple[JsonValues, bytes]:
        """Return the reader of a value, which is that of its JSON Schema unless columns are declared, and its JSON."""
        if self._json:
            return self._json, framing.without_head(message, "value", self._topic.framing)
        framed = self._framed(message, "value", "JSON")
        if framed.schema_id not in self._json_readers:
            if len(self._json_readers) >= _MOST_READERS:
                self._json_readers.clear()
            columns = self._schemas.json_columns(framed.schema_id, self._topic.flatten)
            self._json_readers[framed.schema_id] = JsonValues(columns, self._schemas, self._topic.flatten)
        return self._json_readers[framed.schema_id], framed.content

    def _tombstone(self, message: Message) -> Tombstone:
        key = self._key(message)
        key_values = {name: key[name] for name in self._topic.key}
        if absent := [name for name, value in key_values.items() if value is None]:
            raise Poison.plain(f"a tombstone whose key field {absent[0]} is null")
        if self._masks:
            key_values = self._masks.fields(key_values, self._topic.masks)
        # The cutter writes another line, with its chunk's columns. There a value that is nested this deeply might fail.
        key_values = {
            name: dialect.text(each) if dialect.is_nested(each) else each for name, each in key_values.items()
        }
        line = dialect.line([*key_values.values()])
        marker = snapshot_markers.marker_of(self._topic, message, {})
        return Tombstone(message.offset, key_values, message.moment, len(line), marker=marker)

    def _change(self, message: Message, data: bytes, value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the operation of a message, and its row. `data` has the bytes of the value, not compressed."""
        if self._topic.is_debezium:
            return debezium.change(value)
        operation = self._operation(message, value) if self._kind else _DEFAULT
        debezium.check_unwrapped(data, operation, value)
        return operation, value

    def _operation(self, message: Message, value: Mapping[str, Any]) -> str:
        word = value.get(self._name) if self._kind == "field" else snapshot_markers.header_of(message, self._name)
        if not isinstance(word, str) or word not in _OPERATIONS:
            expected, place = f"expected one of {', '.join(_OPERATIONS)}", f"the {self._kind} {self._name}"
            shown_word = "null or missing" if word is None else brief(word)
            raise Poison(f"{place} is {shown_word}: {expected}", f"{place} is another word: {expected}")
        return _OPERATIONS[word]

    def _key(self, message: Message) -> Mapping[str, Any]:
        """Return the fields of the key. If the key is not a record, it is the value of the topic's only key field."""
        if message.key is None:
            raise Poison.plain("there is no key")
        if self._topic.keys == "avro":
            framed = self._framed(message, "key", "Avro")
            key, place = _decoded(framed, "key", self._schemas), f"the key (schema {framed.schema_id})"
        elif self._topic.keys == "protobuf":
            key, place = protobuf_fields(self._framed(message, "key", "Protobuf"), "key", self._schemas)[1], "the key"
        elif self._topic.keys == "json":
            key, place = value_of(framing.without_head(message, "key", self._topic.framing), "key"), "the key"
        else:
            key, place = key_of(message.key, self._topic.keys), "the key"
        if not isinstance(key, dict) and len(self._topic.key) == 1:
            key = {self._topic.key[0]: key}
        fields = cast(Mapping[str, Any], key if isinstance(key, dict) else {})
        fields = with_key_columns(fields, self._topic.key, self._topic.flatten)
        if absent := [name for name in self._topic.key if name not in fields]:
            raise Poison.plain(f"{place} has no field {absent[0]}")
        return self._of_declared_types(fields)

    def _of_declared_types(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields of a key. Those without a schema have the values of the topic's declared columns."""
        if self._topic.keys == "json":
            fields = {name: fields[name] for name in self._topic.key}
            if nested := [name for name, each in fields.items() if dialect.is_nested(each)]:
                raise Poison.plain(f"the field {nested[0]} of the key is an object or an array: expected a plain value")
            fields = self._json.cells(fields) if self._json else fields
        elif self._topic.keys in PLAIN_KEYS and self._json:
            fields = self._json.of_plain_key(fields)
        return fields

    def _layout(self, schema_id: int) -> _Layout:
        schema = self._schemas.get(schema_id)
        has_envelopes = self._topic.has_envelope_schemas
        place = has_envelopes, self._topic.key, tuple(self._topic.mask.items()), self._topic.flatten
        if layout := schema.layouts.get(place):
            return layout
        declared = (debezium.row_type if has_envelopes else avro.record_of)(schema)
        if declared is None and has_envelopes:
            raise Poison.plain(
                f"schema {schema_id} is no envelope of Debezium: expected a record with op, before and after"
            )
        if declared is None:
            raise Poison.plain(
                f"schema {schema_id} is neither a record nor a union of null and a record: expected one of these"
            )
        try:
            flat = flattened(declared, self._topic.flatten)
        except InvalidSchema as error:
            raise Poison.plain(f"schema {schema_id}: {error}") from error
        if reserved := {OPERATION, OFFSET} & {*flat.columns}:
            raise Poison.plain(f"schema {schema_id} has a field {min(reserved)}, which is a column of every chunk")
        missing = tuple(name for name in self._topic.key if name not in flat.columns)
        if records := flat.records & {*missing}:
            name = min(records)
            raise Poison.plain(
                f"schema {schema_id} has the key field {name} as a record whose fields are columns: declare columns, "
                f"such as {name}{SEPARATOR}id"
            )
        masks = masks_of(flat.record, self._topic, f"schema {schema_id}")
        columns, masked = (OPERATION, OFFSET, *missing, *flat.columns), masked_record(flat.record, self._topic.masks)
        layout = _Layout(columns, missing, flat, masked, masks)
        return schema.layouts.setdefault(place, layout)


def _check_fields(row: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    """Raise Poison unless a row of an envelope has the fields of the chunk's columns, in the same order.

    Nothing in Avro makes the types of `before` and `after` equal. A line with other cells would break the whole chunk.
    """
    if (*row,) != fields:
        expected = excerpt(", ".join(fields), REASON_BYTES // 4)
        raise Poison.plain(f"the row has the fields {brief([*row])}: expected those of the field after ({expected})")


def record(data: bytes, part: str, schemas: Schemas) -> tuple[int, Mapping[str, Any]]:
    """Return the schema id and the fields of a message's key or value.

    Raise Poison if it is not a valid record, and KafkaUnavailable if the registry does not answer.
    """
    schema_id = framing.schema_id(data, part, "Avro")
    return schema_id, _record(Framed(schema_id, data, avro.HEAD.size), part, schemas)


def _record(framed: Framed, part: str, schemas: Schemas) -> Mapping[str, Any]:
    value = _decoded(framed, part, schemas)
    if not isinstance(value, dict):
        raise Poison.plain(f"the {part} (schema {framed.schema_id}) is not a record")
    return cast(dict[str, Any], value)


def _decoded(framed: Framed, part: str, schemas: Schemas) -> Any:
    schema_id, data, begin, _ = framed
    schema = schemas.get(schema_id)
    if len(data) > (most := avro.most_bytes(schema)):
        raise Poison.plain(
            f"the {part} has {len(data):,} bytes of schema {schema_id}, whose arrays may then take too much memory: "
            f"expected at most {most:,}"
        )
    try:
        datum, remaining = avro.decoded(data, schema, begin)
    except Exception as error:  # The library may raise any exception for bad bytes.
        message = f"{type(error).__name__}: {error}"
        reason = f"the {part} is not Avro of schema {schema_id}"
        raise Poison(f"{reason} ({message[:200]})", reason) from error
    if remaining:
        raise Poison.plain(f"the {part} has {remaining} bytes after the Avro of schema {schema_id}")
    return datum
