"""Time partitions that are missing. Each partition is expected from a moment on, until it arrives.

A partition is expected from the first tick of its cadence's cron at or after its end. Without a cron, it is expected
once a later partition has arrived. The watch then begins with the first partition that arrives, because a producer's
history may begin at any time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from shlex import quote

from feed_assets.core.cadence import Cadence, tick_after, tick_upto

Came = tuple[datetime, datetime]
"""The start of an arrived partition, and the time at which its arrival was recorded."""

MISSING_AT_MOST = 500
"""Maximum number of missing partitions to keep for one feed. Later partitions are checked when fewer are missing."""

_NAMED = 5
_CAME_AT_MOST = 64
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class Expected:
    """Progress of the watch over one feed's partitions, and the missing partitions. All times are UTC."""

    since: datetime
    """Partitions that end at or before this time are never expected."""
    upto: datetime
    """Partitions that end at or before this time have been checked."""
    position: int
    """The number of the last log change that was read."""
    missing: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    """The missing partitions by key, each with the time since which it is expected."""
    came: tuple[Came, ...] = ()
    """Used only without a cron: the arrived partitions that were later than all earlier arrivals, in order."""


def begin(cadence: Cadence, now: datetime, position: int) -> Expected:
    """Return the state of a watch that begins at `now`. Partitions that were expected before `now` are never late.

    A partition that is expected exactly at `now`, because the cron ticks then, is watched.
    """
    first = tick_upto(cadence.cron, cadence.timezone, now - _INSTANT) if cadence.cron else now
    return Expected(first, first, position)


def has_come(expected: Expected, start: datetime, end: datetime, now: datetime) -> Expected:
    """Return the state after a partition arrived. Without a cron, earlier partitions are expected from now on."""
    if end <= expected.since:
        return expected
    if not expected.came:
        return replace(expected, since=start, upto=start, came=((start, now),))
    if start <= expected.came[-1][0]:
        return expected
    # A full list drops its last arrival for the new one: partitions between the two are expected a bit later.
    kept = expected.came[:-1] if len(expected.came) == _CAME_AT_MOST else expected.came
    return replace(expected, came=(*kept, (start, now)))


def due_upto(cadence: Cadence, expected: Expected, now: datetime) -> datetime:
    """Return the moment up to which partitions must have arrived by now, at least `expected.upto`.

    A partition that ended at or before this moment and is missing is late.
    """
    over = now - cadence.tolerance
    if cadence.cron:
        return max(expected.upto, tick_upto(cadence.cron, cadence.timezone, over))
    return max([expected.upto, *(start for start, heard in expected.came if heard <= over)])


def expected_since(cadence: Cadence, expected: Expected, end: datetime) -> datetime:
    """Return the time since which a partition that ends at `end` is expected. `end` is at most `due_upto`."""
    if cadence.cron:
        return tick_after(cadence.cron, cadence.timezone, end - _INSTANT) or end
    return next((heard for start, heard in expected.came if start >= end), end)


def looked(expected: Expected, upto: datetime, position: int, missing: Mapping[str, datetime]) -> Expected:
    """Return the state after a check for missing partitions.

    `came` keeps the last arrival, and the arrivals after `upto`.
    """
    came = tuple(each for each in expected.came[:-1] if each[0] > upto) + expected.came[-1:]
    return replace(expected, upto=upto, position=position, missing=missing, came=came)


def not_there(feed: str, expected: Expected, *, is_all: bool) -> str:
    """Describe what is missing, in bounded length. `is_all` is True if no more partitions remain to be checked."""
    ordered = sorted(expected.missing.items(), key=lambda each: (each[1], each[0]))
    count, named = len(ordered), ", ".join(f"{key} ({words(since)})" for key, since in ordered[:_NAMED])
    further_count = count - min(count, _NAMED)
    suffix = f" and {further_count} more" * (further_count > 0) if is_all else f" and {further_count} or more others"
    subject = f"{count}{'' if is_all else ' or more'} partition{'s' * (count > 1)}"
    return (
        f"{subject} of {feed} {'are' if count > 1 else 'is'} not there: {named}{suffix}. Ask its owner. "
        f"If one will never come, say so: `feed-assets state close {feed} {quote(ordered[0][0])} --why …`."
    )


def words(since: datetime) -> str:
    """Return the text that alerts, the status page and `explain` show for an expected partition."""
    return f"expected since {since:%Y-%m-%d %H:%M} UTC"


def late_of(expected: Expected, keys: Iterable[str]) -> dict[str, str]:
    """Return the keys of late partitions among `keys`, each with the text about its lateness."""
    return {key: f"{words(expected.missing[key])}, and late" for key in keys if key in expected.missing}
