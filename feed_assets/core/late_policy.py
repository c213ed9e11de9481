"""Policies for late data: which data are worth a re-run, and when this is checked. `late_weighing` applies them."""

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
"""Default number of periods to check if `check` is set and `lookback` is not."""

_CRONS = {"hourly": "0 * * * *", "daily": "0 0 * * *"}
_INSTANT = timedelta(microseconds=1)


@typed
@dataclass(frozen=True)
class Late:
    """Policy that decides which late data are worth a re-run, for all inputs of a dataset or for one of them.

    Data are late if they arrive after the consuming run began to read their partition. Without a threshold (growth,
    files, max_age) each change causes a re-run. A restatement (less data, or other data of the same size) and a new
    input need no threshold, but also wait for a check. A withdrawn update is not late data: the output is built again
    at once, from the input's previous update.

    Source: "Handling Late Arriving Data" (IAS, 2021).

    Args:
        growth: The least growth since the input was consumed, as a share of its bytes (for windows: records), such as
            0.05 or `5%`. All hours or batches that a run reads are measured together. Other keys, such as partners, are
            measured separately.
        max_age: How long the first late data must have waited before they cause a re-run.
        files: Least number of additional files; for a state table, of changed windows.
        cut_off: Time after the partition's end. Data that arrive later are counted, but cause no re-run.
        combine: Whether `any` of the thresholds is enough, or `all` have to be met.
        check: When late data are weighed: `hourly`, `daily` or a cron, in the time zone of the partitions. By default
            at once.
        lookback: How many of the last periods are checked, or a list of periods: 0 is the period that ended last. The
            default is all periods, or with `check` the last 7.
        value_per_gb: The worth of 10^9 late bytes. If the thresholds are met, the late bytes have to be worth what the
            run costs (FEED_ASSETS_RUN_COST), unless they have waited for `max_age`. This argument does not apply
            to windows, whose bytes are not known.

    Raises:
        InvalidDefinition: A value is of a wrong type or too small, the growth is not a share, or `check` is not a cron.
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
            raise InvalidDefinition("Late: `lookback` is empty, expected periods such as 7 or [0, 1, 7].")

    @property
    def cron(self) -> str | None:
        """Return the cron by which late data are weighed. None means at once."""
        return _CRONS.get(self.check, self.check) if self.check else None

    @property
    def looked_at(self) -> frozenset[int] | None:
        """Return the periods to check: 0 is the period that ended last. None means all periods."""
        lookback = LOOKBACK if self.lookback is None and self.check else self.lookback
        return frozenset(range(lookback) if isinstance(lookback, int) else lookback) if lookback is not None else None

    @property
    def counts_periods(self) -> bool:
        """Return whether the policy has a setting that only time partitions can have."""
        return self.lookback is not None or self.cut_off is not None


@dataclass(frozen=True)
class Periods:
    """The ends (UTC) of an output's period and of the periods after it, and the time zone of checks.

    Outputs without time have no ends and no lookback.
    """

    ends: tuple[datetime, ...] = ()
    zone: str = "UTC"


def last_check(policy: Late, periods: Periods, now: datetime) -> datetime:
    """Return the moment of the last check: the last tick of the policy's cron, or `now` without a cron."""
    return tick_upto(policy.cron, periods.zone, now) if policy.cron else now


def counted_upto(policy: Late, periods: Periods, now: datetime) -> datetime:
    """Return the moment up to which data must have arrived to count now: the last check, or the cut-off if earlier."""
    limit = cut_off_of(policy, periods)
    check = last_check(policy, periods, now)
    return min(check, limit) if limit else check


def cut_off_of(policy: Late, periods: Periods) -> datetime | None:
    """Return the time after which late data of an output cause no re-run. Return None if the policy sets no limit."""
    return periods.ends[0] + policy.cut_off if policy.cut_off is not None and periods.ends else None


def next_look(policy: Late, periods: Periods, moment: datetime) -> datetime | None:
    """Return the first check of the partition at or after `moment`. Return None if there is no further check."""
    while True:
        look = tick_after(policy.cron, periods.zone, moment - _INSTANT) if policy.cron else moment
        if look is None or policy.looked_at is None or not periods.ends:
            return look
        back = bisect_right(periods.ends, look) - 1  # `back` is -1 while the period itself has not ended.
        if back in policy.looked_at:
            return look
        later = [each for each in policy.looked_at if each > back]
        if not later:
            return None
        moment = periods.ends[min(later)]
