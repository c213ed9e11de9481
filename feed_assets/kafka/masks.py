"""Masks of a topic's declared columns, applied to a decoded message before any file, log or dead letter has it.

A mask depends only on the value and the secret key. So a chunk that is cut again has the same bytes, and equal values
of all topics have equal hashes.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from uuid import UUID

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.record_columns import records_of
from feed_assets.core.topics import OPTIONAL, Mask, Topic
from feed_assets.kafka import dialect
from feed_assets.kafka.avro_types import branches
from feed_assets.kafka.flat_records import aliases_of
from feed_assets.kafka.messages import DeadLetter, Headers, Message
from feed_assets.kafka.poison import Poison

SIZE, DIGEST = "feed_assets.size", "feed_assets.digest"
"""Headers of a dead letter without content: the bytes of its message, and their keyed digest."""

HIDDEN = "****"
"""The text before the last four characters. It stands alone for a value of less than `_LEAST` characters."""

_LAST, _LEAST = 4, 8
"""A shorter text has no visible characters, so at least half of each text is hidden."""

_ONE_TEXT = {"null", "string", "int", "long", "boolean", "enum"}
"""Types whose equal values have equal texts in each format of keys, and in wider types."""

_TIMES = {
    *("date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros"),
    *("local-timestamp-millis", "local-timestamp-micros"),
}
"""Logical types of numbers that have other texts than the number."""

_TYPES: Mapping[Mask, str] = {"hash": "string", "last4": "string"}


class Masks:
    """The masks of one topic, with the secret key of hashes. Raise InvalidSetting without a key."""

    def __init__(self, topic: Topic, key: bytes) -> None:
        check_key([topic], key)
        self._key = key
        self._converts: Mapping[Mask, Callable[[Any], str | None]] = {
            "hash": self._hash,
            "last4": _last4,
            "null": lambda _: None,
        }

    def fields(self, values: Mapping[str, Any], masks: Mapping[str, Mask]) -> dict[str, Any]:
        """Return a row or key with masked values. Null stays null. Raise Unwritable for too much JSON."""
        return {
            name: self._converts[masks[name]](value) if name in masks and value is not None else value
            for name, value in values.items()
        }

    def sealed(self, message: Message, reason: str) -> DeadLetter:
        """Return the dead letter of a message without its content, because bytes without a schema cannot be masked."""
        seal = [(SIZE, str(message.size).encode()), (DIGEST, digest(message, self._key))]
        return DeadLetter(message._replace(key=None, value=None, headers=()), reason, seal)

    def _hash(self, value: Any) -> str:
        return hmac.digest(self._key, dialect.text(value).encode(errors="surrogatepass"), "sha256").hex()


def check_key(topics: Iterable[Topic], key: bytes) -> None:
    """Raise InvalidSetting if a topic has masks, and there is no key.

    Without a key, whoever guesses a value could compute its hash.
    """
    if not key and any(each.mask for each in topics):
        raise InvalidSetting(
            "FEED_ASSETS_MASK_KEY is not set, and a topic has masked columns: expected the secret key of hashes, such "
            "as `openssl rand -hex 32`. Set the same key for all processes, and keep it."
        )


def digest(message: Message, key: bytes) -> bytes:
    """Return the keyed digest of a message's content, in hexadecimal digits."""
    parts: Headers = [("key", message.key), ("value", message.value), *message.headers]
    content = [(name, None if value is None else value.hex()) for name, value in parts]
    return hmac.digest(key, f"feed_assets.message {content!r}".encode(errors="surrogatepass"), "sha256").hex().encode()


def masks_of(record: Mapping[str, Any], topic: Topic, place: str) -> dict[str, Mask]:
    """Return the masks of a schema's rows and keys by field. `place` names the schema in errors.

    Raise Poison if the schema lacks a masked column. The name may be misspelled or the field renamed, so to take the
    row would publish the column.
    """
    masks: dict[str, Mask] = {**_of_key(topic), **_of_fields(record, topic.masks)}
    names = {*topic.key, *masks, *_aliases_in(record)}
    if absent := [each for each in topic.mask if not each.endswith(OPTIONAL) and each not in names]:
        column = absent[0]
        raise Poison.plain(
            f"{place} has no field {column}, which is masked: correct the mask, or declare {column}{OPTIONAL} if "
            "schemas may lack it"
        )
    _check_records(record, topic, place)
    # A tombstone has no aliases, so its key would have another text than the key of its row.
    if unlike := [name for name in topic.key if masks.get(name) != topic.masks.get(name)]:
        raise Poison.plain(f"{place} has the key field {unlike[0]} with a masked alias: mask {unlike[0]} by its name")
    if name := _of_several_texts(record, topic):
        raise Poison.plain(
            f"{place} has the masked key field {name}, of a type whose equal values may have different texts and so "
            "different hashes: expected a text, a whole number or a boolean"
        )
    return masks


def _check_records(record: Mapping[str, Any], topic: Topic, place: str) -> None:
    """Raise Poison for a mask of a record whose fields are columns, or of a field in a column: it would have no effect.

    The names alone decide, because the columns of values in JSON have no records. The mask of `home__city` has no
    effect if `home` is one column, such as an array of records.
    """
    columns = [str(each["name"]) for each in record["fields"]]
    names = {*columns, *topic.key, *_aliases_in(record)}
    for name in topic.masks.keys() - names:
        if topic.flatten and (inside := [each for each in sorted(names) if name in records_of(each)]):
            raise Poison.plain(f"{place} has columns for the fields of {name}, which is masked: mask {inside[0]}")
        if around := [each for each in records_of(name) if each in {*columns, *topic.key}]:
            raise Poison.plain(f"{place} has {around[0]} as one column, and {name} is masked: mask {around[0]}")


def _of_several_texts(record: Mapping[str, Any], topic: Topic) -> str | None:
    """Return a masked key field with a type such as a decimal: `1.5` is also `1.50`."""
    types = {
        str(each["name"]): each["type"] for each in record["fields"] if each["name"] in {*topic.key} & {*topic.masks}
    }
    for name, declared in types.items():
        for kind in branches(declared):
            definition = cast(dict[str, Any], kind) if isinstance(kind, dict) else {"type": kind}
            if not _has_one_text(definition):
                return name
    return None


def _has_one_text(definition: Mapping[str, Any]) -> bool:
    logical = str(definition.get("logicalType"))
    if logical == "decimal":
        return definition.get("scale", 0) == 0
    return str(definition["type"]) in _ONE_TEXT and logical not in _TIMES


def masked_record(record: Mapping[str, Any], declared: Mapping[str, Mask]) -> Mapping[str, Any]:
    """Return the Avro type of masked rows: hashes and last characters are texts, and masked columns may be null.

    A masked field has no default, because the default could be the text of another type.
    """
    masks = _of_fields(record, declared)
    return {**record, "fields": [_masked(each, masks.get(str(each["name"]))) for each in record["fields"]]}


def _of_key(topic: Topic) -> dict[str, Mask]:
    return {name: kind for name, kind in topic.masks.items() if name in topic.key}


def _of_fields(record: Mapping[str, Any], declared: Mapping[str, Mask]) -> dict[str, Mask]:
    """Return the masks of a record's fields. A renamed field has the mask of its alias."""
    masks = dict[str, Mask]()
    for field in record["fields"]:
        name = str(field["name"])
        kinds: list[Mask] = [declared[each] for each in (name, *aliases_of(field)) if each in declared]
        if kinds:
            masks[name] = kinds[0]
    return masks


def _aliases_in(record: Mapping[str, Any]) -> set[str]:
    return {alias for field in record["fields"] for alias in aliases_of(field)}


def _masked(field: Mapping[str, Any], kind: Mask | None) -> Mapping[str, Any]:
    if kind is None:
        return field
    types = [_TYPES[kind]] if kind in _TYPES else [each for each in branches(field["type"]) if each != "null"]
    return {**{name: each for name, each in field.items() if name != "default"}, "type": ["null", *types]}


def _last4(value: Any) -> str:
    text = str(value) if type(value) in (str, int, UUID) else ""
    return HIDDEN + (text[-_LAST:] if len(text) >= _LEAST else "")
