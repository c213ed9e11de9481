"""A signal, its form in Avro, and its checks: anybody with access to the topic may have written it."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from feed_assets.core.errors import InvalidEvent
from feed_assets.kafka import avro
from feed_assets.kafka.chunk_files import signalled_key

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Signal",
    "namespace": "feed_assets",
    "doc": "A chunk exists: these offsets of a topic partition are in this file, which never changes.",
    "fields": [
        {"name": "topic", "type": "string", "doc": "the upstream topic"},
        {"name": "partition", "type": "int"},
        {
            "name": "first_offset",
            "type": "long",
            "doc": "first offset: the one after the last offset of the preceding signal",
        },
        {"name": "last_offset", "type": "long", "doc": "last offset, included"},
        {"name": "records", "type": "long", "doc": "number of lines in the file, without the header"},
        {
            "name": "dead_letters",
            "type": "long",
            "doc": "number of messages between these offsets that are no valid records",
        },
        {"name": "dialect", "type": "string", "doc": "name of the CSV dialect"},
        {"name": "path", "type": ["null", "string"], "doc": "URL of the file; null if there are no records"},
        {"name": "size", "type": "long", "doc": "bytes of the stored file"},
        {"name": "sha256", "type": ["null", "string"], "doc": "SHA-256 of the stored file, hexadecimal"},
        {
            "name": "schema_id",
            "type": ["null", "int"],
            "doc": "schema of the values; null if all records are tombstones",
        },
        {
            "name": "minutes",
            "type": {"type": "map", "values": "long"},
            "doc": "number of messages by minute of their timestamps, such as 2026-01-31T15:59Z; with dead letters",
        },
        {
            "name": "topic_id",
            "type": "string",
            "doc": "id of the topic at the broker; a recreated topic has another id",
        },
        {
            "name": "snapshot_begins",
            "type": "boolean",
            "default": False,
            "doc": "whether a snapshot of this partition begins with the first message",
        },
        {
            "name": "snapshot_ends",
            "type": "boolean",
            "default": False,
            "doc": "whether a snapshot of this partition ends with the last message",
        },
    ],
}
_PARSED = avro.parsed(json.dumps(SCHEMA), {})
_EARLIER = avro.parsed(json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:-2]}), {})
"""The schema of signals before they had marks of snapshots. Such signals stay in their topic."""

_LAST_OFFSET = 2**63 - 2
"""The greatest valid offset. The offset after it is used as a version, and must fit into 64 bits."""

_MINUTE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Signal:
    """The content of a signal, with the fields of SCHEMA."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    dead_letters: int
    dialect: str
    path: str | None
    size: int
    sha256: str | None
    schema_id: int | None
    minutes: Mapping[str, int] = field(default_factory=dict[str, int])
    topic_id: str = ""
    snapshot_begins: bool = False
    snapshot_ends: bool = False

    @property
    def next_offset(self) -> int:
        """Return the offset at which the next chunk begins."""
        return self.last_offset + 1

    @classmethod
    def of(cls, value: bytes) -> "Signal":
        """Return the signal in a message's value. Raise InvalidEvent if no connector can have written it."""
        try:
            fields, remaining = _decoded(value)
            signal = cls(**fields)
        except Exception as error:  # The library may raise any exception for bad bytes.
            raise InvalidEvent(
                f"{value[:60]!r} is not a signal ({type(error).__name__}: {str(error)[:200]})."
            ) from error
        if remaining:
            raise InvalidEvent(f"{value[:60]!r} is a signal followed by {remaining} bytes: expected none.")
        check(signal)
        return signal

    def encoded(self, schema_id: int) -> bytes:
        """Return the signal as a message's value."""
        return avro.encoded(asdict(self), _PARSED, schema_id)


def _decoded(value: bytes) -> tuple[Any, int]:
    """Return the fields of a signal, and the number of bytes after them. Raise any exception for bad bytes."""
    try:
        return avro.decoded(value, _PARSED)
    except Exception:  # noqa: BLE001  The library may raise any exception for bad bytes.
        return avro.decoded(value, _EARLIER)


def minute_of(minutes: int) -> str:
    """Return a minute, given in minutes since 1970, in the form that signals use."""
    return f"{datetime.fromtimestamp(60 * minutes, UTC):%Y-%m-%dT%H:%MZ}"


def check(signal: Signal) -> None:
    """Raise InvalidEvent for a signal that no connector writes. The error names the field and the expected value."""
    _check_offsets(signal)
    _check_file(signal)
    for minute in signal.minutes:
        _check_minute(minute)


def check_place(signal: Signal, topic: str, partition: int) -> None:
    """Raise InvalidEvent if a signal is not about this topic and partition."""
    if (signal.topic, signal.partition) != (topic, partition):
        raise InvalidEvent(f"it is about {signal.topic}/{signal.partition}: expected {topic}/{partition}.")


def _check_offsets(signal: Signal) -> None:
    first, last = signal.first_offset, signal.last_offset
    if not 0 <= first <= last <= _LAST_OFFSET:
        raise InvalidEvent(
            f"its offsets are {first} to {last}: expected a first offset of 0 or more, and a last offset not below it."
        )
    room, minutes = last - first + 1, signal.minutes.values()
    if min(signal.records, signal.dead_letters, *minutes) < 0:
        raise InvalidEvent("it has a count below 0 in records, dead_letters or minutes: expected none.")
    for name, count in {
        "records and dead_letters": signal.records + signal.dead_letters,
        "minutes": sum(minutes),
    }.items():
        if count > room:
            raise InvalidEvent(f"{name} sum up to {count} messages at {room} offsets: expected at most one each.")


def _check_file(signal: Signal) -> None:
    """Raise InvalidEvent unless the path is the path of the chunk at the first offset.

    So no other file is ever read.
    """
    if signal.path is None:
        if signal.records:
            raise InvalidEvent(f"path: found none, expected the path of a file with {signal.records} records.")
        return
    path = signal.path
    key = signalled_key(signal.topic, signal.partition, signal.first_offset, path)
    if not path.endswith(f"/{key}") or not path.isprintable() or ".." in path.split("/"):
        raise InvalidEvent(f"path: found {path!r:.200}, expected a path without '..' that ends with /{key}.")
    if signal.size < 0:
        raise InvalidEvent(f"size: found {signal.size}, expected a number of bytes.")
    if not _DIGEST.fullmatch(signal.sha256 or ""):
        raise InvalidEvent(f"sha256: found {signal.sha256!r:.80}, expected 64 hexadecimal digits.")


def _check_minute(minute: str) -> None:
    try:
        is_minute = _MINUTE.fullmatch(minute) and datetime.fromisoformat(minute)
    except ValueError:
        is_minute = None
    if not is_minute:
        raise InvalidEvent(f"minutes: found {minute!r:.60}, expected a minute in UTC, such as 2026-01-31T15:59Z.")
