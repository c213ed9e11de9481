"""Problems of packed files that Spark cannot read, or would read only in part. The first and last bytes show them."""

import re
from collections.abc import Mapping

from feed_assets.core.feeds import PACKED
from feed_assets.core.limits import READ_BYTES

FORMS: Mapping[str, str] = {".gz": "gzip", ".bz2": "bzip2", ".zst": "Zstandard", ".deflate": "zlib"}
"""Packings that Spark can read, by the ending of a name."""

_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    "LZ4 in frames": re.compile(rb"\x04\x22\x4d\x18"),
    "Snappy in frames": re.compile(rb"\xff\x06\0\0sNaPpY"),
}
_CURE = "Have the producer pack it by gzip (.gz), bzip2 (.bz2) or Zstandard (.zst)"

MAGIC_BYTES = 16
"""Number of bytes at the beginning of a file that show how it is packed."""

BZIP2_END = 11
"""Number of bytes at the end of a bzip2 file that hold its end mark, a checksum, and up to 7 zero bits."""
_MARK = 0x177245385090
_MARK_BITS, _CHECKSUM_BITS = 48, 32


def packing_problem(name: str, head: bytes, size: int) -> str | None:
    """Return why Spark cannot read a file because of its packing. Return None if it can, or the file is not packed.

    Args:
        name: The file's name, whose ending shows Spark how it is packed.
        head: The first bytes: at least `MAGIC_BYTES`, or the whole file.
        size: The size of the file in bytes.
    """
    form = next((form for form, magic in _MAGIC.items() if magic.match(head)), None)
    ending = ending_of(name)
    begins = form or f"the bytes {head[:8].hex(' ')} at its beginning"
    if ending and ending not in FORMS:
        expected_form = f"blocks of Hadoop's format, as Spark writes {ending}"
        return (
            None
            if _is_of_hadoop(head, size)
            else f"it is packed in another way: found {begins}, expected {expected_form}. {_CURE}"
        )
    if ending:
        expected = FORMS[ending]
        return f"it is not a {expected} file: found {begins}" if expected in _MAGIC and form != expected else None
    if form is None:
        return None
    right = next((ending for ending, each in FORMS.items() if each == form), None)
    if right:
        return f"it is packed by {form}, and its name does not end in {right}: have the producer add this ending"
    return f"it is packed by {form}, which Spark does not read. {_CURE}"


def ending_of(name: str) -> str:
    """Return the ending of a name that shows how the file is packed. Return an empty text if it is not packed."""
    return next((ending for ending in PACKED if name.endswith(ending)), "")


def end_problem(name: str, tail: bytes) -> str | None:
    """Return why a bzip2 file is incomplete, judged by its last `BZIP2_END` bytes. Return None for any other file.

    Hadoop does not notice a bzip2 file that is cut off between two blocks.
    """
    bits = int.from_bytes(tail, "big") >> _CHECKSUM_BITS
    is_whole = any(bits >> padding & ((1 << _MARK_BITS) - 1) == _MARK for padding in range(8))
    if is_whole or ending_of(name) != ".bz2":
        return None
    return "it is cut short, or something follows it: expected the end mark of bzip2 in its last bytes"


def _is_of_hadoop(head: bytes, size: int) -> bool:
    """Return whether a file begins with plausible sizes of a Hadoop block and chunk.

    Java allocates memory of these sizes. So wrong sizes could exhaust Java's memory.
    """
    block, chunk = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    is_empty = block == 0 and size == 4
    return is_empty or (0 < block <= READ_BYTES and 0 < chunk <= size - 8)
