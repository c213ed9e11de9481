"""Limits of events that others write, and the excerpts that are kept of longer texts.

No index of the ledger can take a row of more than 2,700 bytes on PostgreSQL, and the largest have four names.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from reprlib import repr as brief
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent, InvalidName
from feed_assets.core.feeds import Feed, Partition, Version

NAME_BYTES = 500
"""Bytes in UTF-8 of a table's or feed's name, of a partition key, of a correlation id."""
SEGMENTS = 8
"""Segments of a partition key, and of a feed's name without its version: listings go no deeper."""
CONTEXT_BYTES = 65_536
"""Bytes of an event's context, as JSON in ASCII."""
CONTEXT_DEPTH = 50
"""Objects and lists within each other in a context, itself included."""
ROW_BYTES = 1_048_576
"""Bytes of a line or record of a file, or of a cell of a table, that are parsed: a longer one is no event."""
READ_BYTES = 33_554_432
"""Bytes of rows that a source returns at a time, or one row more."""
REJECT_BYTES = 4096
"""Bytes that are kept of a text that was read and is no event."""
REASON_BYTES = 1024
"""Bytes of the reason why it is no event, and of a reason that a person gives."""

_TAIL_BYTES = 120
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def check_feed(feed: Feed) -> Feed:
    """Return a feed whose name is not too long or too deep, else raise InvalidName."""
    _check_name("feed", str(feed), feed.name)
    return feed


def check_version(feed: Feed) -> Feed:
    """Return a feed whose name does not end in what looks like a version, else raise InvalidName with the near one.

    Without this `ads/shown/v01.0` is a feed without a version, which nobody reads.
    """
    above, _, last = feed.name.rpartition("/")
    if (near := Version.near(last)) and not feed.version:
        raise InvalidName(
            f"feed {str(feed)!r} ends in what looks like a version and is none: expected v<major>.<minor> without "
            f"leading zeros. Is {f'{above}/{near}'.lstrip('/')!r} meant?"
        )
    return feed


def check_partition(partition: Partition) -> Partition:
    """Return a partition whose feed and key are not too long or too deep, else raise InvalidName."""
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
    """Raise InvalidName unless a person's words are one printable line that is not blank, of at most so many bytes."""
    if not text.strip() or not text.isprintable() or len(text.encode(errors="replace")) > size:
        raise InvalidName(
            f"{label}: found {brief(text)}, expected a line of printable characters, not blank, of up to {size} bytes."
        )


def check_correlation(text: str) -> None:
    """Raise InvalidEvent unless this can be a correlation id: not empty, printable, not too long."""
    if not text or not text.isprintable():
        raise InvalidEvent(f"found {text[:60]!r}, expected a correlation_id of printable characters.")
    if (size := len(text.encode())) > NAME_BYTES:
        raise InvalidEvent(f"correlation_id {text[:60]!r}… has {size} bytes: expected at most {NAME_BYTES}.")


def check_context(context: Mapping[str, Any], kinds: Mapping[str, tuple[type, str]]) -> None:
    """Raise InvalidEvent unless a context is JSON that every database keeps, not too large, with values of their types.

    `kinds` has the type of each key that has a meaning, and the text for it in a message.
    """
    for name, (kind, expected) in kinds.items():
        if name in context and not isinstance(context[name], kind):
            raise InvalidEvent(f"context {name}: found {context[name]!r:.60}, expected {expected}.")
    _check_depth(context)
    try:
        text = json.dumps(dict(context), allow_nan=False)
        json.dumps(dict(context), ensure_ascii=False).encode()
    except (ValueError, TypeError) as error:
        raise InvalidEvent(f"the context is no JSON: {error}. Expected JSON, without NaN, in Unicode.") from None
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
    raise InvalidEvent(f"the context is more than {CONTEXT_DEPTH} levels deep: expected at most so many.")


def _below(value: Any) -> Iterable[Any]:
    return cast(Mapping[str, Any], value).values() if isinstance(value, Mapping) else value


def as_text(row: Mapping[str, Any]) -> str:
    """Return a row as JSON text, whatever is in it; a value that JSON has no form for, as its text."""
    try:
        return json.dumps(row, default=str)
    except (ValueError, TypeError, RecursionError):  # Circular, numbers of thousands of digits, too deep.
        texts = {str(name): each if isinstance(each, str) else f"{type(each)}" for name, each in row.items()}
        return json.dumps(texts)


def excerpt(text: str, size: int) -> str:
    """Return at most `size` bytes of a text that every database keeps: if longer its beginning, length and digest."""
    data = text.replace("\0", "\\x00").encode(errors="backslashreplace")
    if len(data) <= size:
        return data.decode()
    return shortened(data, len(data), sha256(data).hexdigest(), size)


def shortened(head: bytes, length: int, digest: str, size: int) -> str:
    """Return the excerpt of a text that begins with `head` and is longer than `size`: `excerpt` leaves it as it is."""
    kept = head[: size - _TAIL_BYTES].decode(errors="ignore").replace("\0", "\\x00")[: size - _TAIL_BYTES]
    return f"{kept}… ({length} bytes, sha256 {digest})"
