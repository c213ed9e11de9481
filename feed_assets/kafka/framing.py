"""How a key or value names its schema, and where its content begins.

Sources: "Wire format" of Confluent's Schema Registry: the magic byte 0 and four bytes of schema id, then for Protobuf
the message's index. The handlers of ids and headers and the Protobuf serializers of Apicurio's serdes 2 and 3: the
magic byte 0 and eight or four bytes of an id, or a header with eight bytes, then for Protobuf the message's name. The
AWS Glue Schema Registry Library: the version 3, a byte that names a compression, and the UUID of the schema's version;
what follows may be compressed, and begins for Protobuf with the message's number.
"""

import struct
import zlib
from typing import NamedTuple
from uuid import UUID

from feed_assets.core.topics import Framing
from feed_assets.kafka.avro import HEAD
from feed_assets.kafka.foreign_schemas import GlobalId
from feed_assets.kafka.messages import Message
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.protobuf_schemas import MessageIndex
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.schema_limits import LEVELS, NAME_CHARACTERS

_GREATEST_ID = 2**31 - 1
_VARINT_BYTES = 5
_LONG = struct.Struct(">q")
_LONG_HEAD = struct.Struct(">Bq")
_SMALL = bytes(4)
"""The first half of an id of eight bytes. Apicurio counts its ids from 1, so an id of four bytes has another one."""


_GLUE = struct.Struct(">BB16s")
_GLUE_VERSION, _PLAIN, _ZLIB = 3, 0, 5
MOST_UNPACKED = 16 << 20
"""The most bytes of a compressed key or value after it is unpacked. Zlib may pack a thousand zeros into a byte."""


class Framed(NamedTuple):
    """A key or value: the id of its schema in the registry, and its content, which begins at `begin` of `data`."""

    schema_id: int
    data: bytes
    begin: int
    message: MessageIndex = ()
    """The message's type in a schema in Protobuf."""

    @property
    def content(self) -> bytes:
        """Return the content alone."""
        return self.data[self.begin :]


def framed(message: Message, part: str, form: str, *, framing: Framing, schemas: Schemas) -> Framed:
    """Return a message's key or value, which `part` names, with a schema in Avro, Protobuf or JSON, which is its form.

    Raise Poison if it names no usable schema, and KafkaUnavailable.
    """
    data = _data(message, part)
    if framing == "confluent":
        schema, begin = schema_id(data, part, form), HEAD.size
        index, begin = _message_index(data, begin, part) if form == "Protobuf" else ((), begin)
        return Framed(schema, data, begin, index)
    if framing == "glue":
        version, data, begin = _glue(data, part, form)
        index, begin = _unsigned(data, begin, part) if form == "Protobuf" else ((), begin)
        return Framed(schemas.copied(version, form.upper()), data, begin, index)
    schema, begin = _apicurio_id(message, part, form, is_global=framing == "apicurio_global_id")
    index, begin = _message_name(message, begin, part) if form == "Protobuf" else ((), begin)
    number = schema if isinstance(schema, int) else schemas.copied(schema, form.upper())
    return Framed(number, data, begin, index)


def schema_id(data: bytes, part: str, form: str) -> int:
    """Return the schema id before a key or value in Confluent's wire format. Raise Poison if there is none."""
    if len(data) < HEAD.size:
        raise Poison.plain(f"the {part} has {len(data)} bytes: expected a magic byte, 4 bytes of schema id, and {form}")
    _check_magic(data, part)
    _, number = HEAD.unpack_from(data)
    return _checked(number, part)


def without_head(message: Message, part: str, framing: Framing) -> bytes:
    """Return a key or value in JSON, without the head that a serializer may have written. JSON begins with no NUL."""
    data = _data(message, part)
    if framing == "glue" and data[:1] == bytes([_GLUE_VERSION]):
        _, data, begin = _glue(data, part, "JSON")
        return data[begin:]
    if framing == "glue" or not data.startswith(b"\0"):
        return data
    return data[HEAD.size if framing == "confluent" else _head_size(data) :]


def _data(message: Message, part: str) -> bytes:
    return (message.key if part == "key" else message.value) or b""


def _check_magic(data: bytes, part: str) -> None:
    if data[0] != 0:
        public = f"the {part} does not begin with the magic byte 0"
        raise Poison(f"the {part} begins with byte {data[0]}: expected the magic byte 0", public)


def _checked(number: int, part: str) -> int:
    """Return a schema id. Raise Poison for one that is too large: the registry's answer would look like an outage."""
    if not 0 <= number <= _GREATEST_ID:
        reason = f"the {part} has the schema id {{}}: expected at most {_GREATEST_ID}"
        raise Poison(reason.format(number), reason.format("of another number"))
    return number


def _apicurio_id(message: Message, part: str, form: str, *, is_global: bool) -> tuple[int | GlobalId, int]:
    """Return the id in the headers of a message, or before its key or value, and where the content begins."""
    headers = dict(message.headers)  # Apicurio reads the last header of a name, too.
    if form == "Avro" and headers.get(f"apicurio.{part}.encoding") == b"JSON":
        raise Poison.plain(f"the {part} is Avro in its encoding as JSON: expected the binary encoding")
    for kind in ("contentId", "globalId"):
        if (content := headers.get(name := f"apicurio.{part}.{kind}")) is not None:
            if len(content) != _LONG.size:
                raise Poison.plain(f"the header {name} has {len(content)} bytes: expected {_LONG.size}")
            number = _checked(_LONG.unpack(content)[0], part)
            return (GlobalId(number) if kind == "globalId" else number), 0
    data = _data(message, part)
    if len(data) < HEAD.size:
        raise Poison.plain(
            f"the {part} has {len(data)} bytes, and no header apicurio.{part}.contentId or apicurio.{part}.globalId: "
            f"expected the header, or a magic byte, 8 or 4 bytes of id, and {form}"
        )
    _check_magic(data, part)
    size = _head_size(data)
    number = _checked(int.from_bytes(data[1:size]), part)
    return (GlobalId(number) if is_global else number), size


def _head_size(data: bytes) -> int:
    """Return the bytes before a content of Apicurio: the magic byte, and an id of eight bytes or four."""
    is_long = len(data) >= _LONG_HEAD.size and data[1 : 1 + len(_SMALL)] == _SMALL
    return _LONG_HEAD.size if is_long else HEAD.size


def _glue(data: bytes, part: str, form: str) -> tuple[UUID, bytes, int]:
    """Return the UUID before a key or value, the bytes that have the content, not compressed, and where it begins."""
    if len(data) < _GLUE.size:
        raise Poison.plain(
            f"the {part} has {len(data)} bytes: expected the version {_GLUE_VERSION}, a compression, 16 bytes of a "
            f"UUID, and {form}"
        )
    version, compression, number = _GLUE.unpack_from(data)
    if version != _GLUE_VERSION or compression not in (_PLAIN, _ZLIB):
        expected = f"expected {_GLUE_VERSION}, and {_PLAIN} or {_ZLIB} for a compression"
        public = f"the {part} does not begin with the bytes of AWS Glue: {expected}"
        raise Poison(f"the {part} begins with the bytes {version} and {compression}: {expected}", public)
    if compression == _PLAIN:
        return UUID(bytes=number), data, _GLUE.size
    return UUID(bytes=number), _unpacked(data[_GLUE.size :], part), 0


def _unpacked(data: bytes, part: str) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data, MOST_UNPACKED + 1)
    except zlib.error as error:
        raise Poison.plain(f"the {part} says that it is compressed by zlib, and is not") from error
    if len(content) > MOST_UNPACKED:
        raise Poison.plain(f"the {part} unpacks to more than {MOST_UNPACKED:,} bytes: expected at most that")
    if not unpacking.eof or unpacking.unused_data:
        raise Poison.plain(f"the {part} has less or more bytes than its zlib says")
    return content


def _message_name(message: Message, begin: int, part: str) -> tuple[str, int]:
    """Return the name of a Protobuf message in Apicurio's framing, and where the message begins. Raise Poison.

    The name is in a header, or in a message `Ref` with its length before the message. Serdes 3 write both.
    """
    data = _data(message, part)
    name = dict(message.headers).get(f"apicurio.protobuf.type{'.key' if part == 'key' else ''}")
    ref = _ref(data, begin)
    if name is None and ref is None:
        raise Poison.plain(f"the {part} has no name of its message, neither in a header nor after its schema id")
    if ref is None or name not in (None, ref[0]):
        return _text(name or b"", part), begin
    return _text(ref[0], part), ref[1]


def _ref(data: bytes, begin: int) -> tuple[bytes, int] | None:
    """Return the name in a message `Ref` with its length before it, and the place after it; None for other bytes."""
    try:
        size, at = _unsigned(data, begin, "")
        length, start = _unsigned(data, at + 1, "")
    except Poison:
        return None
    end = start + length
    is_ref = data[at : at + 1] == b"\x0a" and end == at + size and end <= len(data)
    return (data[start:end], end) if is_ref else None


def _text(name: bytes, part: str) -> str:
    if len(name) > NAME_CHARACTERS or not name.isascii():
        raise Poison.plain(f"the name of the {part}'s message has {len(name)} bytes, or is no name")
    return name.decode()


def _message_index(data: bytes, begin: int, part: str) -> tuple[tuple[int, ...], int]:
    """Return the index of a Protobuf message in its schema, and where the message begins. Raise Poison.

    The index has a number for each level of nested messages. A count of 0 stands for the first message.
    """
    count, at = _varint(data, begin, part)
    if not count:
        return (0,), at
    if not 0 < count <= LEVELS:
        reason = f"the {part} has an index of {{}} messages: expected at most {LEVELS}"
        raise Poison(reason.format(count), reason.format("too many"))
    numbers = list[int]()
    for _ in range(count):
        number, at = _varint(data, at, part)
        if number < 0:
            reason = f"the {part} has the message index {{}}: expected no number below 0"
            raise Poison(reason.format(number), reason.format("of a negative number"))
        numbers.append(number)
    return tuple(numbers), at


def _varint(data: bytes, at: int, part: str) -> tuple[int, int]:
    """Return a zigzag number, and the place after it."""
    number, end = _unsigned(data, at, part)
    return (number >> 1) ^ -(number & 1), end


def _unsigned(data: bytes, at: int, part: str) -> tuple[int, int]:
    """Return a number, and the place after it."""
    number = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise Poison.plain(f"the {part} has no message index after its schema id")
