"""Values and keys in Protobuf, with a registry's schemas. A row's type is registered as an Avro record, as for JSON."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from feed_assets.core.limits import REASON_BYTES, excerpt
from feed_assets.kafka import avro
from feed_assets.kafka.framing import Framed
from feed_assets.kafka.json_values import subject_of
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_messages import TypeReaders
from feed_assets.kafka.protobuf_schemas import MessageIndex
from feed_assets.kafka.registry_schemas import MOST_CHARACTERS, Schemas
from feed_assets.kafka.schema_limits import MOST_COLUMNS, InvalidSchema, check_most

_MOST_MESSAGES = 4
"""The most messages of one schema whose readers are kept."""


class ProtobufType:
    """A message type of a schema: how its messages are read, and the Avro record of its rows. Raise InvalidSchema."""

    def __init__(self, descriptor: Any) -> None:
        check_most(len(descriptor.fields), MOST_COLUMNS, "fields")
        self._class: Any = GetMessageClass(descriptor)
        self._readers = TypeReaders(descriptor)
        self.record: Mapping[str, Any] = self._readers.root.record
        check_most(len(text := json.dumps(self.record)), MOST_CHARACTERS, "characters as an Avro record")
        avro.parsed(text, {})
        self._schema_id: int | None = None

    def schema_id(self, schemas: Schemas) -> int:
        """Return the id of the Avro record. It is registered first. A repeated call returns the same id."""
        if self._schema_id is None:
            self._schema_id = schemas.register(subject_of(self.record), self.record)
        return self._schema_id

    def fields(self, data: bytes, part: str, place: str) -> Mapping[str, Any]:
        """Return the fields of a message. Raise Poison if it is invalid, or has fields that would be lost."""
        if len(data) > (most := self._readers.most_bytes):
            raise Poison.plain(
                f"the {part} has {len(data):,} bytes of {place}, whose nested messages may then take too much memory: "
                f"expected at most {most:,}"
            )
        try:
            return self._read(data, part, place)
        except Poison:
            raise
        except Exception as error:  # The library may raise any exception for bad bytes.
            reason = f"the {part} is not Protobuf of {place}"
            raise Poison(f"{reason} ({type(error).__name__}: {str(error)[:200]})", reason) from error

    def _read(self, data: bytes, part: str, place: str) -> Mapping[str, Any]:
        """Call methods of the class, because a message may have a field with the name of one."""
        own = self._class
        message = own.FromString(data)
        if not own.IsInitialized(message):
            raise Poison.plain(f"the {part} lacks a required field of {place}")
        size = own.ByteSize(message)
        own.DiscardUnknownFields(message)
        if own.ByteSize(message) != size:
            self._readers.check_unknown(own.FromString(data))
        return self._readers.read(message)


def protobuf_fields(framed: Framed, part: str, schemas: Schemas) -> tuple[ProtobufType, Mapping[str, Any]]:
    """Return the type and the fields of a key or value.

    Raise Poison if it is not a valid message, and KafkaUnavailable if the registry does not answer.
    """
    kind = _type(framed.schema_id, framed.message, schemas)
    return kind, kind.fields(framed.content, part, f"schema {framed.schema_id}")


def _type(schema_id: int, index: MessageIndex, schemas: Schemas) -> ProtobufType:
    kinds = schemas.protobuf(schema_id).messages
    if index not in kinds:
        if len(kinds) >= _MOST_MESSAGES:
            kinds.clear()
        kinds[index] = _read_type(schema_id, index, schemas)
    if isinstance(kind := kinds[index], Poison):
        raise Poison.plain(str(kind))
    return kind


def _read_type(schema_id: int, index: MessageIndex, schemas: Schemas) -> ProtobufType | Poison:
    """Return the type of messages with an index, or the error for it, so that it is found only once."""
    try:
        return ProtobufType(schemas.protobuf(schema_id).message(index))
    except InvalidSchema as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - The library accepts some invalid descriptors.
        reason = excerpt(f"{type(error).__name__}: {error}", REASON_BYTES // 2)
    return Poison.plain(f"schema {schema_id} cannot be read: {reason}")
