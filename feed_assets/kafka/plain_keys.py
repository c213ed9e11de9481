"""Keys of messages in the formats of Kafka's own serializers."""

import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from feed_assets.kafka.poison import Poison

_NO_UUID = "the key is not the text of a UUID"


def key_of(data: bytes, form: str) -> Any:
    """Return the value of a key in one of the formats of `PLAIN_KEYS`. Raise Poison if it is invalid."""
    return _READERS[form](data)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Poison.plain("the key is not UTF-8: expected the text of a string key") from error


def _uuid(data: bytes) -> UUID:
    """Return the UUID of a key. Kafka's serializer writes its text."""
    text = _text(data)
    try:
        number = UUID(text)
    except ValueError as error:
        raise Poison(f"the key is {text[:50]!r}: expected the text of a UUID", _NO_UUID) from error
    if str(number) != text.lower():
        raise Poison(f"the key is {text[:50]!r}: expected a UUID such as {number}", _NO_UUID)
    return number


def _number(form: str, name: str) -> Callable[[bytes], int]:
    layout = struct.Struct(form)

    def number(data: bytes) -> int:
        if len(data) != layout.size:
            raise Poison.plain(f"the key has {len(data)} bytes: expected the {layout.size} bytes of {name}")
        return layout.unpack(data)[0]

    return number


_READERS: Mapping[str, Callable[[bytes], Any]] = {
    "string": _text,
    "int": _number(">i", "an int"),
    "long": _number(">q", "a long"),
    "uuid": _uuid,
}
