"""Schedules by which partitions and events are expected. Both are late if they do not arrive within the tolerance.

If a feed has time partitions, each partition is watched by itself: see `core.expected_partitions`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from feed_assets.core.argument_types import Age
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.typed import typed
from feed_assets.core.windows import zone_of

_ANY = datetime(2000, 1, 1, tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)
_TICKS = 1000
"""Number of ticks among which a cron's longest pause is searched: enough for crons that skip nights and weekends."""


@typed
@dataclass(frozen=True)
class Cadence:
    """Schedule by which partitions or events are expected: the ticks of a cron, or the arrival of later partitions.

    A time partition is expected at the first tick at or after its end. Without a cron, it is expected when a later
    partition has arrived. An expected partition is late after the tolerance. If the cron has more ticks than there
    are partitions, or partitions have no time, then not a partition but an event is expected at each tick.

    If clocks change, ticks follow Debian's cron. A tick in the skipped hour moves to the end of that hour, and a tick
    in the repeated hour happens once. If the cron's minutes or hours begin with `*`, ticks follow the clock instead:
    there is no tick in the skipped hour, and the ticks of the repeated hour happen twice.

    Args:
        cron: A cron of five fields, such as `0 6 * * *`. None means: partitions may come at any time, but no time
            partition may be left out.
        tolerance: The allowed delay after the tick, or after a later partition. An event may also be this early.
        timezone: The zone of the cron, such as `Europe/Berlin`, or whole hours, such as `+08:00`.

    Raises:
        InvalidDefinition: A value is of a wrong type, the tolerance is below 0, or the cron or zone is invalid.
    """

    cron: str | None = None
    tolerance: Age = timedelta(hours=1)
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        check_cron("Cadence", "0 0 * * *" if self.cron is None else self.cron, self.timezone)


def check_cron(declared: str, cron: str, timezone: str) -> None:
    """Raise InvalidDefinition if the cron or the zone is invalid. The message names the declaration by `declared`."""
    prefix = f"{declared}: the cron is '{cron}'"
    if len(cron.split()) != 5:
        raise InvalidDefinition(f"{prefix}, expected a cron of five fields, such as '0 6 * * *'.")
    try:
        never = tick_after(cron, timezone, _ANY) is None
    except InvalidDefinition as error:
        raise InvalidDefinition(
            f"{declared}: the zone is '{timezone}', expected a time zone such as 'Europe/Berlin' or '+08:00'."
        ) from error
    except CronSimError as error:
        raise InvalidDefinition(f"{prefix}: {error}. Expected one such as '0 6 * * *'.") from error
    if never:
        raise InvalidDefinition(f"{prefix}, which has no tick in fifty years, so nothing would ever be expected.")


def missing(cadence: Cadence, last: datetime | None, since: datetime, now: datetime) -> datetime | None:
    """Return the first tick (UTC) whose event is late now. Return None if no event is late.

    The last event, at `last`, belongs to each tick c with c - tolerance <= last. The event of the next tick c is late
    once now >= c + tolerance. Ticks before `since`, when the table was declared, do not count. All times are
    timezone-aware.
    """
    if cadence.cron is None:
        return None
    earliest = since - timedelta(microseconds=1)  # The tick at `since` itself counts.
    earliest = max(earliest, last + cadence.tolerance) if last else earliest
    tick = tick_after(cadence.cron, cadence.timezone, earliest)
    return tick if tick and tick + cadence.tolerance <= now else None


def longest_pause(cadence: Cadence) -> timedelta | None:
    """Return the longest time between two events that are both on time. Return None without a cron.

    It is the longest pause between two ticks plus twice the tolerance: the first may be early and the second delayed.
    """
    if cadence.cron is None:
        return None
    ticks = [each.astimezone(UTC) for each in islice(CronSim(cadence.cron, _ANY), _TICKS)]
    return max(after - before for before, after in pairwise(ticks)) + 2 * cadence.tolerance


def is_finer(cadence: Cadence, ends: Sequence[datetime]) -> bool:
    """Return whether the cron has more ticks than there are partitions. If so, the cron is a schedule of events.

    `ends` are the ends of consecutive partitions. One extra tick is allowed: if clocks change, a day of one zone may
    have two ticks of another zone's daily cron.
    """
    if cadence.cron is None:
        return False
    tick, count = tick_after(cadence.cron, cadence.timezone, ends[0]), 0
    while tick and tick <= ends[-1] and count <= len(ends):
        tick, count = tick_after(cadence.cron, cadence.timezone, tick), count + 1
    return count > len(ends)


def tick_after(cron: str, timezone: str, moment: datetime) -> datetime | None:
    """Return the first tick (UTC) after a moment. Return None if there is no tick in fifty years."""
    zone = ZoneInfo(zone_of(timezone))
    if _is_of_the_clock(cron):
        return _clock_tick_after(cron, zone, moment)
    # In a repeated hour CronSim returns the first of two equal clock times, even if the search starts between them.
    ticks = CronSim(cron, moment.astimezone(zone))
    return next((tick for tick in (each.astimezone(UTC) for each in ticks) if tick > moment), None)


def _is_of_the_clock(cron: str) -> bool:
    """Return whether the cron ticks in both parts of a repeated hour.

    As in Debian's cron, this is the case if the field of minutes or of hours begins with `*`.
    """
    minute, hour, *_ = cron.split()
    return minute.startswith("*") or hour.startswith("*")


def _clock_tick_after(cron: str, zone: ZoneInfo, moment: datetime) -> datetime | None:
    """Return the first tick after a moment. CronSim gets local times without a zone.

    With a zone it fails if the zone's clocks change by half an hour.
    """
    local = moment.astimezone(zone)
    first, second = (local.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    later = _shown_after(cron, zone, local.replace(tzinfo=None), moment)
    if local.fold or first <= second:
        return later
    # The clock is about to be set back, so it will show earlier times again.
    again = _shown_after(cron, zone, local.replace(tzinfo=None) - (first - second) - _INSTANT, moment)
    return min(filter(None, (later, again)), default=None)


def _shown_after(cron: str, zone: ZoneInfo, local: datetime, moment: datetime) -> datetime | None:
    """Return the first moment after `moment` at which the clock shows a cron time later than `local`."""
    for clock_time in CronSim(cron, local):
        both = (clock_time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        real = [
            each for each in both if each > moment and each.astimezone(zone).replace(tzinfo=None, fold=0) == clock_time
        ]
        if real:
            return min(real)
    return None


def tick_upto(cron: str, timezone: str, moment: datetime) -> datetime:
    """Return the last tick (UTC) at or before a moment. Such a tick exists for every valid cron."""
    back = CronSim(cron, (moment + _INSTANT).astimezone(ZoneInfo(zone_of(timezone))), reverse=True)
    last_tick = next(tick for tick in (each.astimezone(UTC) for each in back) if tick <= moment)
    while (
        tick := tick_after(cron, timezone, last_tick)
    ) and tick <= moment:  # In reverse, CronSim skips ticks in a repeated hour.
        last_tick = tick
    return last_tick
