"""Cuts of a topic partition into chunks, on a fixed grid of offsets. So a process need not know earlier cuts.

Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the S3 Spolt. In that article a
batch begins where the last batch ended, so earlier cuts decide later cuts. Here only the offsets decide.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

CSV, PACKED_CSV, PARQUET = ".csv", ".csv.gz", ".parquet"
"""Endings of chunks' keys, by the format of the file."""

_DIGITS = 20
"""Number of digits of an offset in a key: enough for any offset, so that keys sort as offsets do."""


class OffsetRange(NamedTuple):
    """Offsets of one topic partition from `start` up to, not including, `end`."""

    start: int
    end: int


def line_after(offset: int, limit: int) -> int:
    """Return the first multiple of `limit` after an offset. Such multiples are the grid lines at which chunks end."""
    return offset - offset % limit + limit


def line_before(offset: int, limit: int) -> int:
    """Return the last multiple of `limit` at or before an offset. Chunks end at such multiples (grid lines)."""
    return offset - offset % limit


def plan(start: int, end: int, limit: int, schema_starts: Iterable[int] = ()) -> tuple[OffsetRange, ...]:
    """Cut offsets into the ranges of chunks.

    Args:
        start: The first offset.
        end: The offset after the last one.
        limit: The most messages of a chunk. Chunks also end at each multiple of this number.
        schema_starts: Offsets of messages whose schema differs from the previous message's schema.

    Returns:
        The ranges, consecutive from `start` to `end`; an empty tuple if `start` is not before `end`.
    """
    lines = range(line_after(start, limit), end, limit)
    inside = {each for each in schema_starts if start < each < end}
    cuts = sorted({*lines, *inside, start, end}) if start < end else []
    return tuple(OffsetRange(*each) for each in pairwise(cuts))


def key_of(topic: str, partition: int, start: int, ending: str) -> str:
    """Return the key of the chunk that begins at an offset, below the prefix of all chunks."""
    return f"{topic}/{partition}/{start:0{_DIGITS}}{ending}"


def ending_of(path: str) -> str:
    """Return the ending of a chunk's path: `.csv` if it has none of the others."""
    return next((each for each in (PACKED_CSV, PARQUET) if path.endswith(each)), CSV)
