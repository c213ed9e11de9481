"""Windows of event time: half-open, in UTC, at a grain. The days of a zone are local days, of 23 to 25 hours.

Grains are minutes that divide an hour (`5min`), `hour` and `day`. Only days depend on a time zone. Source: "Data
Dependency Driven Orchestration", the article about the global state store.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed, Partition

HOUR, DAY = "hour", "day"
HOUR_MINUTES = 60
FIRST_YEAR, LAST_YEAR = 1970, 9998
"""The first and last year in which windows of any grain and zone begin and end on whole minutes."""
_DAY_MINUTES = 24 * HOUR_MINUTES
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_GRAIN = re.compile(r"([1-9][0-9]?)min")
_ADDRESS = re.compile(r"([1-9][0-9]?min|hour|day)@(\d{4}-\d\d-\d\d(?:-\d\d:\d\d)?)(?:/(.*))?")
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])0?(\d{1,2})(?::?00)?")
_FARTHEST = {"+": 14, "-": 12}


class Window(NamedTuple):
    """A window `[start, end)` in UTC. Its key is its start in UTC, such as `2026-01-01-15:00`, or the date of a day."""

    start: datetime
    end: datetime
    grain: str
    key: str


class WindowAddress(NamedTuple):
    """One window of a dataset's sub-partition ('' is the whole dataset). The ledger stores its state.

    In the log it is a partition: `hour@2026-01-01-15:00/region=apac`.
    """

    dataset: Feed
    sub_partition: str
    grain: str
    key: str

    @property
    def partition(self) -> Partition:
        """Return the address as a partition of its dataset. Raise InvalidName if the sub-partition is malformed."""
        below = f"/{self.sub_partition}" if self.sub_partition else ""
        return Partition(self.dataset, f"{self.grain}@{self.key}{below}")


def address_of(partition: Partition) -> WindowAddress | None:
    """Return the address of the window that a partition in the log stands for.

    Return None for an ordinary partition: one that holds data.
    """
    match = _ADDRESS.fullmatch(partition.key)
    return WindowAddress(partition.feed, match[3] or "", match[1], match[2]) if match else None


@lru_cache(maxsize=256)
def minutes_of(grain: str) -> int:
    """Return the minutes of a grain; a day counts as 24 hours. Raise InvalidDefinition for an unknown grain."""
    if grain in (HOUR, DAY):
        return HOUR_MINUTES if grain == HOUR else _DAY_MINUTES
    match = _GRAIN.fullmatch(grain)
    if not match or HOUR_MINUTES % int(match[1]) or int(match[1]) == HOUR_MINUTES:
        raise InvalidDefinition(
            f"grain {grain!r}: expected minutes that divide an hour, such as '5min', or 'hour' or 'day'."
        )
    return int(match[1])


def step_of(grain: str) -> timedelta:
    """Return the time step by which records are counted for a base grain.

    For days the step is 15 minutes, because the days of any time zone begin on a quarter of an hour. Raise
    InvalidDefinition for an unknown grain.
    """
    return (15 if grain == DAY else minutes_of(grain)) * _MINUTE


def sorted_grains(grains: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct grains, the smallest (the base grain) first."""
    return tuple(sorted(set(grains), key=minutes_of))


@lru_cache(maxsize=1024)
def zone_of(text: str) -> str:
    """Return the IANA name of a time zone. An offset of whole hours, such as `+08:00` or `UTC+8`, gives `Etc/GMT-8`.

    Raise InvalidDefinition for any other text.
    """
    match = _OFFSET.fullmatch(text)
    if match and int(match[2]) <= _FARTHEST[match[1]]:
        return f"Etc/GMT{'-' if match[1] == '+' else '+'}{int(match[2])}" if int(match[2]) else "UTC"
    try:
        ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidDefinition(
            f"time zone {text!r}: expected an IANA name such as Asia/Kolkata, or whole hours such as +08:00."
        ) from None
    return text


@lru_cache(maxsize=65_536)
def window_at(grain: str, key: str, zone: str = "UTC") -> Window:
    """Return the window with this key. Raise InvalidName if there is none, such as a day that a zone skipped."""
    try:
        window = _day(date.fromisoformat(key), zone) if grain == DAY else _short(grain, _parsed(key))
    except (ValueError, OverflowError):
        window = None
    if window is None or window.key != key or window.start >= window.end:
        expected = "2026-01-01" if grain == DAY else f"2026-01-01-15:00, on the grid of {grain}, UTC"
        raise InvalidName(f"{key!r} is not a window of the grain {grain} in {zone}: expected, for example, {expected}.")
    return window


def _parsed(key: str) -> datetime:
    return datetime.fromisoformat(f"{key[:10]}T{key[11:]}+00:00")


def window_of(grain: str, moment: datetime, zone: str = "UTC") -> Window:
    """Return the window of a grain that contains a moment (timezone-aware)."""
    if grain != DAY:
        return _short(grain, moment.astimezone(UTC))
    local = moment.astimezone(ZoneInfo(zone)).date()
    window = _day(local, zone)
    # If clocks are set back over midnight, a date occurs twice: its second part belongs to the next day.
    while moment >= window.end:
        window = _day(date.fromisoformat(window.key) + timedelta(days=1), zone)
    return window


@lru_cache(maxsize=65_536)
def _short(grain: str, moment: datetime) -> Window:
    minutes = minutes_of(grain)
    start = _EPOCH + (moment - _EPOCH) // (minutes * _MINUTE) * minutes * _MINUTE
    return Window(start, start + minutes * _MINUTE, grain, f"{start:%Y-%m-%d-%H:%M}".zfill(len("YYYY-MM-DD-HH:MM")))


@lru_cache(maxsize=16_384)
def _day(day: date, zone: str) -> Window:
    """Return the window of a calendar day in a zone.

    If the zone skips midnight, the day begins at the moment of the jump (by Python's fold).
    """
    start, end = (
        datetime.combine(each, time(), ZoneInfo(zone)).astimezone(UTC) for each in (day, day + timedelta(days=1))
    )
    return Window(start, end, DAY, day.isoformat())


@lru_cache(maxsize=65_536)
def tiles(start: datetime, end: datetime, grains: tuple[str, ...], zone: str = "UTC") -> tuple[Window, ...]:
    """Return windows of one grain (length) that fill `[start, end)` exactly, in order. The largest such grain is used.

    Return () if there is no such grain.
    """
    tilings = (_tiled(start, end, grain, zone) for grain in reversed(sorted_grains(grains)))
    return next((windows for windows in tilings if windows), ())


def _tiled(start: datetime, end: datetime, grain: str, zone: str) -> tuple[Window, ...]:
    windows: list[Window] = []
    at = start
    while at < end:
        window = window_of(grain, at, zone)
        if window.start != at:
            return ()
        windows.append(window)
        at = window.end
    return tuple(windows) if at == end else ()


@lru_cache(maxsize=65_536)
def children(window: Window, grains: tuple[str, ...]) -> tuple[Window, ...]:
    """Return the smaller windows that decide whether a window is complete. A window of the base grain has none.

    Their grain is the largest of the smaller grains whose windows fill this window exactly.
    """
    smaller = tuple(grain for grain in grains if minutes_of(grain) < minutes_of(window.grain))
    return tiles(window.start, window.end, smaller) if smaller else ()


def parents(window: Window, grains: tuple[str, ...], zone: str = "UTC") -> tuple[Window, ...]:
    """Return the larger windows whose completeness depends on this window: it is one of their `children`."""
    larger = (grain for grain in grains if minutes_of(grain) > minutes_of(window.grain))
    holding = (window_of(grain, window.start, zone) for grain in larger)
    return tuple(each for each in holding if _child_grain(each, grains) == window.grain)


@lru_cache(maxsize=65_536)
def _child_grain(window: Window, grains: tuple[str, ...]) -> str | None:
    below = children(window, grains)
    return below[0].grain if below else None


def check_grains(grains: Sequence[str], zones: Iterable[str]) -> tuple[str, ...]:
    """Return the grains, which are lengths of windows, from the shortest to the longest.

    Raise InvalidDefinition if there are none, the shortest does not divide the others, or `_check_days` refuses a zone.
    """
    ordered = sorted_grains(grains)
    if not ordered:
        raise InvalidDefinition("grains: found none, expected at least one, such as '5min'.")
    base = minutes_of(ordered[0])
    if wrong := [grain for grain in ordered if minutes_of(grain) % base]:
        raise InvalidDefinition(f"grain {wrong[0]!r} is not made of {ordered[0]!r}: expected a multiple of it.")
    for zone in zones if DAY in ordered else ():
        _check_days(ordered[0], zone)
    return ordered


def _check_days(base: str, zone: str) -> None:
    """Raise InvalidDefinition if the days of a zone do not begin where a base window begins.

    Example: the days of a zone at +05:45, and a base grain of 10 minutes.
    """
    for month in (1, 7):
        start = _day(date(2026, month, 1), zone).start
        if base != DAY and _short(base, start).start != start:
            raise InvalidDefinition(
                f"the days of {zone} begin at {start:%H:%M} UTC, where no window of {base!r} begins: expected a "
                "smaller grain, too, such as '5min'."
            )
