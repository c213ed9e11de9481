"""Markers of snapshots: messages that say that a snapshot of the source begins or ends in their topic partition.

A snapshot is all rows of the source, read again. Debezium marks rows of a snapshot in the field `source.snapshot`.
"""

from collections.abc import Mapping
from typing import Any, cast

from feed_assets.core.topics import DEBEZIUM, Topic
from feed_assets.kafka.messages import Marker, Message, SnapshotMarker
from feed_assets.kafka.poison import Poison

REPLAYED = "feed_assets.replayed"
"""The header of a replayed dead letter of a topic with markers. It marks nothing: the rest of its snapshot is older."""

_WORDS: dict[str, Marker] = {"begin": "begin", "end": "end"}

_DEBEZIUM: dict[str, Marker] = {
    "first": "begin",
    "first_in_data_collection": "begin",
    "last": "end",
    "last_in_data_collection": "end",
}
"""Marks by Debezium's words. `true` is a row in between, and `incremental` a row that is read beside the changes."""

_UNWRAPPED = "__source_snapshot"
"""The field that Debezium's transform adds to unwrapped rows with `add.fields=source.snapshot`."""


def header_of(message: Message, name: str) -> str | None:
    """Return the value of the first header with a name."""
    for each, value in message.headers:
        if each == name:
            return value.decode(errors="replace") if value is not None else None
    return None


def marker_of(topic: Topic, message: Message, value: Mapping[str, Any]) -> Marker:
    """Return the mark of a message. `value` has the fields of its value, and is empty without one. Raise Poison."""
    declared = topic.snapshot_markers
    if declared is None or any(name == REPLAYED for name, _ in message.headers):
        return ""
    if declared == DEBEZIUM:
        return _DEBEZIUM.get(_debezium_word(topic, value), "")
    kind, _, name = declared.partition(":")
    word = value.get(name) if kind == "field" else header_of(message, name)
    if not word:  # Protobuf's texts without presence are empty.
        return ""
    if not isinstance(word, str) or word not in _WORDS:
        reason = f"the {kind} {name} is another word than begin or end, which mark a snapshot"
        raise Poison.plain(f"{reason}: other messages have none")
    return _WORDS[word]


def only_marker(topic: Topic, message: Message) -> SnapshotMarker | None:
    """Return the marker in a message without key and value. Return None for any other message. Raise Poison."""
    if message.key is None and message.value is None and (marker := marker_of(topic, message, {})):
        return SnapshotMarker(message.offset, marker, message.moment)
    return None


def _debezium_word(topic: Topic, value: Mapping[str, Any]) -> str:
    word = value.get(_UNWRAPPED)
    if topic.is_debezium:
        source = value.get("source")
        word = cast(dict[str, Any], source).get("snapshot") if isinstance(source, dict) else None
    return word if isinstance(word, str) else ""
