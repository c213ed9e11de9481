"""Cuts of a topic partition into chunks: on a fixed grid of offsets, so that anybody can cut any range alone.

Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the S3 Spolt. Its batches begin
where the last one ended, so earlier cuts decide the later ones. Here only the offsets decide.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

_DIGITS = 20
"""Digits of an offset in a key: more than any has, so that keys sort as offsets do."""


class OffsetRange(NamedTuple):
    """Offsets of one topic partition from `start` up to `end`, without `end` itself."""

    start: int
    end: int


def line_after(offset: int, limit: int) -> int:
    """Return the first line of the grid behind an offset: the lines are the multiples of the limit."""
    return offset - offset % limit + limit


def line_before(offset: int, limit: int) -> int:
    """Return the last line of the grid that is not behind an offset."""
    return offset - offset % limit


def plan(start: int, end: int, limit: int, schema_starts: Iterable[int] = ()) -> tuple[OffsetRange, ...]:
    """Cut offsets into the ranges of chunks.

    Args:
        start: The first offset.
        end: The offset behind the last one.
        limit: Offsets between two lines of the grid, which is how many messages a chunk has at most.
        schema_starts: Offsets at which another schema begins than that of the message before.

    Returns:
        The ranges, without a hole from `start` to `end`; an empty tuple if there is nothing between the two.
    """
    lines = range(line_after(start, limit), end, limit)
    inside = {each for each in schema_starts if start < each < end}
    cuts = sorted({*lines, *inside, start, end}) if start < end else []
    return tuple(OffsetRange(*each) for each in pairwise(cuts))


def key_of(topic: str, partition: int, start: int, *, is_packed: bool) -> str:
    """Return the key of the chunk that begins at an offset, below the prefix of all chunks."""
    return f"{topic}/{partition}/{start:0{_DIGITS}}.csv{'.gz' if is_packed else ''}"
