"""Windows of Dagster's time partitions, by key and by moment, correct where clocks change.

Dagster starts its cron at the moment from which it searches. If this moment is the second of two equal local times,
Dagster returns a wrong window or raises an error. This module computes hours and days itself. It lists other windows
from an earlier local time that occurs only once.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import count
from zoneinfo import ZoneInfo

import dagster as dg

Times = dg.TimeWindowPartitionsDefinition
Bounds = tuple[datetime, datetime]

INSTANT = timedelta(microseconds=1)
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_NOON = time(12)
_LONGEST = timedelta(days=3000)
"""Longest time between two ticks of a cron (29 February: eight years)."""


@lru_cache(maxsize=16_384)
def bounds(times: Times, key: str) -> Bounds:
    """Return the time window (UTC) of a key.

    Raise ValueError if it has no window, such as the key of an hour that clocks skip.
    """
    if times.is_basic_daily:
        start, end = _midnights(times, _parsed(times, key).date())
        name = f"{_parsed(times, key).date():{times.fmt}}"
    elif _is_hours(times):
        moment = _parsed(times, key).astimezone(UTC)
        start = moment + (_first_hour(times) - moment) % _HOUR
        end, name = start + _HOUR, _key_of(times, start)
    else:
        window = times.time_window_for_partition_key(key)
        start, end, name = window.start.astimezone(UTC), window.end.astimezone(UTC), _named(times, window.start)
    if name != key or start >= end:  # a day that a zone skips is empty
        raise ValueError(f"{key!r} is no window of {times}: the next window is {name!r}.")
    return start, end


def key_at(times: Times, moment: datetime) -> str:
    """Return the key of the window that contains a moment (timezone-aware).

    If the moment is between two windows, return the key of the earlier one.
    """
    if times.is_basic_daily:
        return f"{_date_at(times, moment):{times.fmt}}"
    if _is_hours(times):
        return _key_of(times, moment.astimezone(UTC) - (moment - _first_hour(times)) % _HOUR)
    return _keys_upto(times, moment, moment + INSTANT)[-1]


@lru_cache(maxsize=16_384)
def keys_between(times: Times, start: datetime, end: datetime) -> tuple[str, ...]:
    """Return the ordered keys whose windows overlap `[start, end)`. Include keys that are not partitions."""
    if times.is_basic_daily:
        dates = (_day_after(times, _date_at(times, start), number) for number in count())
        return _until(times, end, (f"{each:{times.fmt}}" for each in dates))
    if _is_hours(times):
        first = bounds(times, key_at(times, start))[0]
        return _until(times, end, (_key_of(times, first + number * _HOUR) for number in count()))
    return tuple(key for key in _keys_upto(times, start, end) if bounds(times, key)[1] > start)


@lru_cache(maxsize=16_384)
def moved(times: Times, boundary: datetime, windows: int) -> datetime:
    """Return the window boundary that is `windows` windows after another boundary.

    A negative number counts backwards.
    """
    if times.is_basic_daily:
        return _midnights(times, _day_after(times, _date_at(times, boundary), windows))[0]
    if _is_hours(times):
        return boundary + windows * _HOUR
    for _ in range(abs(windows)):
        boundary = _next_end(times, boundary) if windows > 0 else bounds(times, key_at(times, boundary - INSTANT))[0]
    return boundary


@lru_cache(maxsize=16_384)
def ends_from(times: Times, end: datetime, windows: int) -> tuple[datetime, ...]:
    """Return the ends (UTC) of a window and of the next `windows` windows. Include windows that are not partitions."""
    ends = [end]
    while len(ends) <= windows:
        ends.append(_next_end(times, ends[-1]))
    return tuple(ends)


def is_kept(times: Times, window: Bounds) -> bool:
    """Return whether a window lies between the start and the end of the definition."""
    return window[0] >= times.start and (times.end is None or window[1] <= times.end)


def is_window(times: Times, key: str) -> bool:
    """Return whether a key names a window of time."""
    with suppress(ValueError):
        return bool(bounds(times, key))
    return False


def is_partition(times: Times, key: str, now: datetime) -> bool:
    """Return whether a key is a partition at a moment (timezone-aware).

    Its window must be within the definition and over.
    """
    try:
        window = bounds(times, key)
    except ValueError:
        return False
    over = moved(times, window[1], -times.end_offset) if times.end_offset else window[1]
    return is_kept(times, window) and over <= now


def existing_span(times: Times, now: datetime) -> Bounds | None:
    """Return the time from the first partition's start to the last partition's end at `now`.

    Return None if there are no partitions.
    """
    first = bounds(times, key_at(times, times.start))
    start = first[0] if first[0] >= times.start else _next_end(times, times.start, of=0)
    last = _last_end(times, now)
    if times.end_offset:
        last = moved(times, last, times.end_offset)
    end = min(last, _last_end(times, times.end)) if times.end else last
    return (start, end) if start < end else None


def newest_keys(times: Times, now: datetime, count: int) -> tuple[str, ...]:
    """Return the ordered keys of the last `count` windows that are over at `now`, and of the current window."""
    span = existing_span(times, now)
    if span is None:
        return ()
    first, last = span
    width = last - bounds(times, key_at(times, last - INSTANT))[0]
    # Go back twice as far, because the last window, which gives the width, may be shorter than other windows.
    keys = keys_between(times, max(first, last - 2 * count * width), last + INSTANT)
    kept = [key for key in keys if is_kept(times, bounds(times, key))]
    over = [key for key in kept if bounds(times, key)[1] <= last]
    return *over[-count:], *kept[len(over) :]


def _last_end(times: Times, moment: datetime) -> datetime:
    """Return the end of the last window that is over at a moment."""
    start, end = bounds(times, key_at(times, moment))
    return end if end <= moment else start


def current_time() -> datetime:
    """Return the moment that Dagster currently uses to decide which partitions exist."""
    with dg.partition_loading_context() as loading:
        return loading.effective_dt


def _is_hours(times: Times) -> bool:
    kind = times.schedule_type
    return kind is not None and kind.name == "HOURLY" and not times.exclusions


@lru_cache(maxsize=1024)
def _first_hour(times: Times) -> datetime:
    """Return the start of Dagster's first hour. Other hours follow every 60 minutes.

    On Lord Howe, where clocks change by 30 minutes, this start decides whether hours begin at :00 or :30.
    """
    (key,) = times.get_partition_keys_in_time_window(dg.TimeWindow(times.start, times.start + _HOUR))[:1]
    return _parsed(times, key).astimezone(UTC)


@lru_cache(maxsize=1024)
def repeats_hourly(times: Times) -> bool:
    """Return whether a window begins in every hour."""
    return times.cron_schedule.split()[1] == "*"


def _parsed(times: Times, key: str) -> datetime:
    """Return the time that a key names.

    If the local time occurs twice, return the first, unless the key has a UTC offset.
    """
    zone = ZoneInfo(times.timezone)
    with suppress(ValueError):
        moment = datetime.strptime(key, times.fmt)  # noqa: DTZ007
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return datetime.strptime(key, f"{times.fmt}%z")


def _key_of(times: Times, start: datetime) -> str:
    return _named(times, start.astimezone(ZoneInfo(times.timezone)))


def _named(times: Times, local: datetime) -> str:
    """Return Dagster's key of a window that begins at a local time.

    The key of the second of two equal local times ends with its UTC offset.
    """
    is_second = local.fold and local.utcoffset() != local.replace(fold=0).utcoffset()
    return local.strftime(
        f"{times.fmt}%z" if is_second and repeats_hourly(times) and "%z" not in times.fmt else times.fmt
    )


def _midnights(times: Times, day: date) -> Bounds:
    """Return the starts of a day and of the next day.

    If midnight occurs twice, the day starts at the first one. If clocks skip midnight, it starts after the jump.
    """
    first, last = (
        datetime.combine(each, time(), ZoneInfo(times.timezone)).astimezone(UTC) for each in (day, day + _DAY)
    )
    return first, last


def _date_at(times: Times, moment: datetime) -> date:
    day = moment.astimezone(ZoneInfo(times.timezone)).date()
    # If clocks go back over midnight, a date has two separate parts. The next day begins after the first part.
    while moment >= _midnights(times, day)[1]:
        day += _DAY
    return day


def _day_after(times: Times, day: date, days: int) -> date:
    """Return the date `days` days after another date. A negative number counts backwards.

    Skip dates that the zone does not have.
    """
    for _ in range(abs(days)):
        day += _DAY if days > 0 else -_DAY
        while _midnights(times, day)[0] >= _midnights(times, day)[1]:
            day += _DAY if days > 0 else -_DAY
    return day


def _until(times: Times, end: datetime, keys: Iterator[str]) -> tuple[str, ...]:
    ended: list[str] = []
    while bounds(times, key := next(keys))[0] < end:
        ended.append(key)
    return tuple(ended)


def _keys_upto(times: Times, start: datetime, end: datetime) -> tuple[str, ...]:
    """Return the keys whose windows begin before `end`. The first window contains `start`, or begins earlier."""
    back = 2 * _HOUR if repeats_hourly(times) else 2 * _DAY
    while back < 2 * _LONGEST:
        begin = start - back if repeats_hourly(times) else _noon(times, start - back)
        listed = times.get_partition_keys_in_time_window(dg.TimeWindow(begin, end))
        keys = [key for key in listed if is_window(times, key)]
        if keys and bounds(times, keys[0])[0] <= start:
            return tuple(keys)
        back *= 4
    raise ValueError(f"{times} has no window that begins at or before {start:%Y-%m-%d %H:%M} UTC.")


def _noon(times: Times, moment: datetime) -> datetime:
    """Return the noon of a moment's local day.

    Clocks never change at noon, so Dagster's cron is correct if it starts at noon.
    """
    return datetime.combine(moment.astimezone(ZoneInfo(times.timezone)).date(), _NOON, ZoneInfo(times.timezone))


def _next_end(times: Times, boundary: datetime, of: int = 1) -> datetime:
    """Return the end (`of` 1) or the start (`of` 0) of the first window that begins at a boundary or later."""
    ahead = _HOUR
    while ahead < 2 * _LONGEST:
        windows = [bounds(times, key) for key in keys_between(times, boundary, boundary + ahead)]
        if edges := [window[of] for window in windows if window[0] >= boundary]:
            return edges[0]
        ahead *= 16
    raise ValueError(f"{times} has no window that begins at or after {boundary:%Y-%m-%d %H:%M} UTC.")
