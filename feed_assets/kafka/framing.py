"""The bytes before a key or value: the magic byte 0 and four bytes of schema id, then for Protobuf the message's index.

Source: "Wire format" of Confluent's Schema Registry.
"""

from feed_assets.kafka.avro import HEAD
from feed_assets.kafka.registry_schemas import Poison
from feed_assets.kafka.schema_limits import LEVELS

_GREATEST_ID = 2**31 - 1
_VARINT_BYTES = 5


def schema_id(data: bytes, part: str, form: str) -> int:
    """Return the schema id before a key or value. Raise Poison if there is none."""
    if len(data) < HEAD.size:
        raise Poison.plain(f"the {part} has {len(data)} bytes: expected a magic byte, 4 bytes of schema id, and {form}")
    magic, number = HEAD.unpack_from(data)
    if magic != 0:
        public = f"the {part} does not begin with the magic byte 0"
        raise Poison(f"the {part} begins with byte {magic}: expected the magic byte 0", public)
    if number > _GREATEST_ID:  # Do not request such an id, because the registry's answer would look like an outage.
        raise Poison.plain(f"the {part} has the schema id {number}: expected at most {_GREATEST_ID}")
    return number


def message_index(data: bytes, part: str) -> tuple[tuple[int, ...], int]:
    """Return the index of a Protobuf message in its schema, and where the message begins. Raise Poison.

    The index has a number for each level of nested messages. A count of 0 stands for the first message.
    """
    count, at = _varint(data, HEAD.size, part)
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
    number = 0
    for shift, byte in enumerate(data[at : at + _VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + shift + 1
    raise Poison.plain(f"the {part} has no message index after its schema id")
