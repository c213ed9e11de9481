"""Limits of events and requests that other programs send, and excerpts of texts that are too long.

Names are limited because a PostgreSQL index row has at most 2,700 bytes, and one index of the ledger has four names.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from hashlib import sha256
from reprlib import repr as brief
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.feeds import Feed, Partition, Version

NAME_BYTES = 500
"""Maximum number of UTF-8 bytes of the name of a table or feed, of a partition key, or of a correlation id."""
SEGMENTS = 8
"""Maximum number of segments of a partition key, and of a feed's name without its version. Listings go no deeper."""
CONTEXT_BYTES = 65_536
"""Maximum number of bytes of an event's context, as JSON in ASCII."""
CONTEXT_DEPTH = 50
"""Maximum depth of nested objects and lists in a context, including the context itself."""
ROW_BYTES = 1_048_576
"""Maximum number of bytes of a line, record or cell that is parsed as an event. A longer text is rejected."""
READ_BYTES = 33_554_432
"""Bytes after which a source stops adding rows to one read."""
REJECT_BYTES = 4096
"""Maximum number of bytes that are stored of a rejected text."""
REASON_BYTES = 1024
"""Maximum number of bytes of the reason for a rejection, and of a reason that a person gives."""

HEADERS = 100
"""Maximum number of headers of an HTTP request. In memory, a short header takes thirty times its bytes."""

_TAIL_BYTES = 120
_READABLE_LEVELS = 1000
"""Levels of nested values after which `json_length` stops. Python's `json` cannot write values with so many levels."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def check_feed(feed: Feed) -> Feed:
    """Return the feed, or raise InvalidName if its name is too long or has too many segments."""
    _check_name("feed", str(feed), feed.name)
    return feed


def check_version(feed: Feed) -> Feed:
    """Return the feed. Raise InvalidName, with the correct name, if its name ends in a misspelled version.

    Otherwise `ads/shown/v01.0` would be a feed without a version, and nobody would read it.
    """
    above, _, last = feed.name.rpartition("/")
    if (near := Version.near(last)) and not feed.version:
        raise InvalidName(
            f"feed {str(feed)!r} ends in what looks like a misspelled version: expected v<major>.<minor> without "
            f"leading zeros. Is {f'{above}/{near}'.lstrip('/')!r} meant?"
        )
    return feed


def check_partition(partition: Partition) -> Partition:
    """Return the partition, or raise InvalidName if its feed or key is too long or has too many segments."""
    check_feed(partition.feed)
    _check_name("partition key", partition.key, partition.key)
    return partition


def _check_name(label: str, text: str, path: str) -> None:
    size, segments = len(text.encode()), path.count("/") + 1
    if size > NAME_BYTES or segments > SEGMENTS:
        raise InvalidName(
            f"{label} {text[:60]!r}… has {size} bytes and {segments} segments: expected at most {NAME_BYTES} and "
            f"{SEGMENTS}. Use a shorter one."
        )


def check_line(label: str, text: str, size: int) -> None:
    """Raise InvalidName unless a person's text is one printable, non-blank line of at most `size` bytes."""
    if not text.strip() or not text.isprintable() or len(text.encode(errors="replace")) > size:
        raise InvalidName(
            f"{label}: found {brief(text)}, expected a line of printable characters, not blank, of up to {size} bytes."
        )


def check_correlation(text: str) -> None:
    """Raise InvalidEvent unless a correlation id is printable, not empty, and not too long."""
    if not text or not text.isprintable():
        raise InvalidEvent(f"found {text[:60]!r}, expected a correlation_id of printable characters.")
    if (size := len(text.encode())) > NAME_BYTES:
        raise InvalidEvent(f"correlation_id {text[:60]!r}… has {size} bytes: expected at most {NAME_BYTES}.")


def check_context(context: Mapping[str, Any], kinds: Mapping[str, tuple[type, str]]) -> None:
    """Raise InvalidEvent unless a context is JSON that databases can store, not too large, and has valid types.

    `kinds` has the type of each key with a meaning, and the description of the type for messages.
    """
    for name, (kind, expected) in kinds.items():
        if name in context and not isinstance(context[name], kind):
            raise InvalidEvent(f"context {name}: found {context[name]!r:.60}, expected {expected}.")
    _check_depth(context)
    try:
        text = json.dumps(dict(context), allow_nan=False)
        json.dumps(dict(context), ensure_ascii=False).encode()
    except (ValueError, TypeError) as error:
        raise InvalidEvent(f"the context is not JSON: {error}. Expected JSON, without NaN, in Unicode.") from None
    if _NUL.search(text):
        raise InvalidEvent("the context has a NUL character, which databases refuse: expected none.")
    if len(text) > CONTEXT_BYTES:
        raise InvalidEvent(f"the context has {len(text)} bytes: expected at most {CONTEXT_BYTES}.")


def _check_depth(context: Mapping[str, Any]) -> None:
    level: list[Any] = [context]
    for _ in range(CONTEXT_DEPTH):
        level = [below for each in level for below in _below(each) if isinstance(below, (Mapping, list, tuple))]
        if not level:
            return
    raise InvalidEvent(f"the context is more than {CONTEXT_DEPTH} levels deep: expected at most that many.")


def _below(value: Any) -> Iterable[Any]:
    return cast(Mapping[str, Any], value).values() if isinstance(value, Mapping) else value


def json_length(value: Any, most: int) -> int:
    """Return a lower limit for the length of a value's JSON, without writing the JSON. Stop counting beyond `most`.

    One byte of Avro may stand for a name of many characters, so the JSON of a short message may exceed the memory.
    """
    length, level = 0, [value]
    for _ in range(_READABLE_LEVELS):
        below = list[Any]()
        for each in level:
            if isinstance(each, (str, bytes)):
                length += len(each)
            elif isinstance(each, dict):
                fields = cast(dict[object, Any], each)
                length += sum(map(len, map(str, fields))) + 3 * len(fields) + 1
                below += fields.values()
            elif isinstance(each, (list, tuple)):
                length += 1
                below += cast(list[Any], each)
            elif isinstance(each, Decimal):
                length += abs(each.adjusted())
        length += 2 * len(below)  # Each value has at least one digit, and a comma or bracket.
        if length > most or not below:
            break
        level = below
    return length


def as_text(row: Mapping[str, Any]) -> str:
    """Return any row as JSON text. Values that JSON lacks are written as text.

    If the row contains itself, is very deep or too long, or has a huge number, keep the texts, and write each
    other value as its type.
    """
    with suppress(ValueError, TypeError, RecursionError):
        if json_length(row, READ_BYTES) <= READ_BYTES:
            return json.dumps(row, default=str)
    texts = {str(name): each if isinstance(each, str) else f"{type(each)}" for name, each in row.items()}
    return json.dumps(texts)


def excerpt(text: str, size: int) -> str:
    """Return a text that databases can store. If it has more than `size` bytes, return its start, length and digest."""
    data = text.replace("\0", "\\x00").encode(errors="backslashreplace")
    if len(data) <= size:
        return data.decode()
    return shortened(data, len(data), sha256(data).hexdigest(), size)


def shortened(head: bytes, length: int, digest: str, size: int) -> str:
    """Return the excerpt of a text of `length` bytes, of which only the beginning, `head`, is in memory.

    The text is longer than `size`, and its excerpt is not: `excerpt` would return the excerpt unchanged.
    """
    kept = head[: size - _TAIL_BYTES].decode(errors="ignore").replace("\0", "\\x00")[: size - _TAIL_BYTES]
    return f"{kept}… ({length} bytes, sha256 {digest})"
