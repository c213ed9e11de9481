"""Policies for late data: which are worth a re-run, as a dataset declares it, and when that is checked."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from feed_assets.core.argument_types import Age, NotNegative, Positive, Price, Share
from feed_assets.core.cadence import check_cron, tick_after, tick_upto
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.typed import typed

LOOKBACK = 7
"""Periods that are checked if a check is declared and no lookback."""

_CRONS = {"hourly": "0 * * * *", "daily": "0 0 * * *"}
_INSTANT = timedelta(microseconds=1)


@typed
@dataclass(frozen=True)
class Late:
    """Policy for which late data are worth a re-run: of every input of a dataset, or of the one that declares it.

    Data are late if they arrived after the run that consumed the partition had begun to read. Without a threshold
    (growth, files, max_age) each change re-runs. A restatement (smaller, or other content of the same size) and an
    input that was not there re-run without being weighed; both are subject to the times. An update that is withdrawn
    is no late data: the partition is built again at once, from the update before it.

    After "Handling Late Arriving Data" (IAS, 2021).

    Args:
        growth: A share of the input's bytes, 0.05 or `5%`, that was not consumed; for windows of their records. All
            hours or batches that are read grow as one; keys that are no time (partners) each by itself.
        max_age: The first of the late data has waited this long.
        files: This many more files than were consumed; for a state table, windows.
        cut_off: Data that arrive later than this after the partition's end are counted, and no reason to re-run.
        combine: Whether `any` of the thresholds is enough, or `all` have to be met.
        check: When data that have arrived by then are weighed: `hourly`, `daily` or a cron, in the zone of the
            partitions. By default at once.
        lookback: How many of the last periods are checked, or which: 0 is the one that ended last. By default all,
            with `check` the last 7.
        value_per_gb: The worth of 10^9 late bytes. If the thresholds are met, the late bytes have to be worth what the
            run costs (FEED_ASSETS_RUN_COST), unless they have waited for `max_age`. It does not apply to windows,
            whose bytes are not known.

    Raises:
        InvalidDefinition: A value is of a wrong type or below its least, the growth is no share, or the check no cron.
    """

    growth: Share | None = None
    max_age: Age | None = None
    files: Positive | None = None
    cut_off: Age | None = None
    combine: Literal["any", "all"] = "any"
    check: str | None = None
    lookback: Positive | Sequence[NotNegative] | None = None
    value_per_gb: Price | None = None

    def __post_init__(self) -> None:
        if self.cron:
            check_cron("Late", self.cron, "UTC")
        if self.lookback is not None and not self.looked_at:
            raise InvalidDefinition("Late: lookback is empty, expected periods such as 7 or [0, 1, 7].")

    @property
    def cron(self) -> str | None:
        """Return the cron by which late data are weighed; None: at once."""
        return _CRONS.get(self.check, self.check) if self.check else None

    @property
    def looked_at(self) -> frozenset[int] | None:
        """Return the periods that are checked, 0 the one that ended last; None: all."""
        lookback = LOOKBACK if self.lookback is None and self.check else self.lookback
        return frozenset(range(lookback) if isinstance(lookback, int) else lookback) if lookback is not None else None

    @property
    def counts_periods(self) -> bool:
        """Return whether it has a setting that only partitions of time can have."""
        return self.lookback is not None or self.cut_off is not None


@dataclass(frozen=True)
class Periods:
    """The time of an output: the ends of its own period and of those after it (UTC), and the zone of checks.

    Without time there are no ends, and no lookback.
    """

    ends: tuple[datetime, ...] = ()
    zone: str = "UTC"


def last_check(policy: Late, periods: Periods, now: datetime) -> datetime:
    """Return the moment as of which late data are weighed at `now`: the last tick of the check, or now."""
    return tick_upto(policy.cron, periods.zone, now) if policy.cron else now


def counted_upto(policy: Late, periods: Periods, now: datetime) -> datetime:
    """Return the moment by which data must have arrived to be weighed at `now`."""
    limit = cut_off_of(policy, periods)
    check = last_check(policy, periods, now)
    return min(check, limit) if limit else check


def cut_off_of(policy: Late, periods: Periods) -> datetime | None:
    """Return the moment from which on arriving data are only counted; None if there is none."""
    return periods.ends[0] + policy.cut_off if policy.cut_off is not None and periods.ends else None


def next_look(policy: Late, periods: Periods, moment: datetime) -> datetime | None:
    """Return the first moment from `moment` on at which the partition is checked; None if it never is again."""
    while True:
        look = tick_after(policy.cron, periods.zone, moment - _INSTANT) if policy.cron else moment
        if look is None or policy.looked_at is None or not periods.ends:
            return look
        back = bisect_right(periods.ends, look) - 1  # -1 while it runs.
        if back in policy.looked_at:
            return look
        later = [each for each in policy.looked_at if each > back]
        if not later:
            return None
        moment = periods.ends[min(later)]
