"""Time windows that Dagster lists but cannot run, because clocks skip the time at which they begin.

An example is 1:00 in Dublin on the last Sunday of March: Dagster's cron lists this time, but Dagster has no partition
with this name. The data of this window would silently belong to no partition.
"""

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.declare.partitions import Partitions, times_of
from feed_assets.orchestration.declare.time_windows import Times, is_window, repeats_hourly

_DAY = timedelta(days=1)
_DATE_LINE = timedelta(hours=12)
"""Jumps of clocks that are longer than this skip a whole day. Then Dagster does not list the window of that day."""
_AHEAD = timedelta(days=400)


def check_windows(feed: Feed, partitions_def: Partitions) -> None:
    """Raise InvalidDefinition if clocks skip the start of a window between the first partition and next year."""
    times = times_of(partitions_def)
    if times is not None and (key := lost_window(times, times.end or datetime.now(UTC) + _AHEAD)):
        raise InvalidDefinition(
            f"{feed} has windows by the cron {times.cron_schedule!r} in {times.timezone}, where clocks skip the "
            f"beginning of {key}: Dagster lists that partition but cannot run it, so its data would be lost. Expected "
            "windows that begin at another time of day, or in UTC. Change the cron, or the time zone."
        )


def lost_window(times: Times, end: datetime) -> str | None:
    """Return the key of the first lost window until `end` (timezone-aware). Return None if no window is lost."""
    if times.is_basic_daily or repeats_hourly(times):
        return None  # `time_windows` computes days itself, and hourly windows do not depend on local time.
    start, zone = times.start.astimezone(ZoneInfo(times.timezone)).date(), times.timezone
    for day in _days_with_a_jump(zone, start, end.date()):
        noon = datetime.combine(day, time(12), ZoneInfo(zone))
        window = dg.TimeWindow(max(noon - 2 * _DAY, times.start), noon + _DAY)
        if lost := [key for key in times.get_partition_keys_in_time_window(window) if not is_window(times, key)]:
            return lost[0]
    return None


@lru_cache(maxsize=256)
def _days_with_a_jump(zone: str, start: date, end: date) -> tuple[date, ...]:
    """Return the days on which clocks go forward."""
    noons = [
        datetime.combine(start + _DAY * number, time(12), ZoneInfo(zone)) for number in range((end - start).days + 2)
    ]
    lengths = ((before.date(), after.astimezone(UTC) - before.astimezone(UTC)) for before, after in pairwise(noons))
    return tuple(day + _DAY for day, length in lengths if _DAY - _DATE_LINE < length < _DAY)
