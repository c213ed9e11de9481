"""Waits of a partition beside its inputs: a time, how many of its inputs are enough, and when it is due."""

import re
from collections.abc import Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator

from feed_assets.core.argument_types import Age
from feed_assets.core.cadence import check_cron, tick_after
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.typed import typed

LONGEST = timedelta(days=3660)
"""The longest duration: with it all moments of partitions are in the calendar."""

_SHARE = re.compile(r"([0-9]{1,6}) of ([0-9]{1,6})")
_INSTANT = timedelta(microseconds=1)


def parse_least(text: str) -> tuple[int, int]:
    """Parse how many of how many are enough: `23 of 24`. Raise ValueError if the text has another form."""
    match = _SHARE.fullmatch(text)
    least, total = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= least <= total:
        raise ValueError("so many of all, such as '23 of 24'")
    return least, total


def _check_least(text: str) -> str:
    parse_least(text)
    return text


Least = Annotated[str, AfterValidator(_check_least)]


@typed
@dataclass(frozen=True)
class Wait:
    """Waits of each partition of a dataset beside its inputs. All times count from the partition's end.

    After "Data Dependency Driven Orchestration": a cron is only the earliest time at which a flow can be launched.

    Args:
        earliest: A cron, such as `0 6 * * *`: a partition is not built before its first tick at or after the end.
        tz: The zone of the cron, such as `Europe/Berlin`, or whole hours, such as `+08:00`.
        delay: A partition is not built before this time has passed; the cron's tick is the first one after that.
        deadline: A partition that is not built after this time raises an alert.
        warn: It raises one before that, too, if it is not built after this time.
        at_least: How many of the partitions (of tables: windows) that it needs are enough, such as `23 of 24`; with
            `after`. Data that arrive later are late data.
        after: From then on it is built with what is there, if that is enough and something of each input.

    Raises:
        InvalidDefinition: A value is of a wrong type, the cron or zone is invalid, or one is given without the other
            that it needs.
    """

    earliest: str | None = None
    tz: str = "UTC"
    delay: Age | None = None
    deadline: Age | None = None
    warn: Age | None = None
    at_least: Least | None = None
    after: Age | None = None

    def __post_init__(self) -> None:
        check_cron("Wait", self.earliest or "0 0 * * *", self.tz)
        for name in ("delay", "deadline", "warn", "after"):
            if (getattr(self, name) or LONGEST) > LONGEST:
                raise InvalidDefinition(f"Wait: {name} is {getattr(self, name)}, expected at most {LONGEST.days} days.")
        if (self.at_least is None) != (self.after is None):
            lacking = "no after" if self.after is None else "no at_least"
            raise InvalidDefinition(f"Wait: {lacking}, expected at_least with after, from which on so many are enough.")
        if self.warn is not None and (self.deadline is None or self.warn >= self.deadline):
            raise InvalidDefinition(
                f"Wait: warn is {self.warn} and deadline {self.deadline or 'not given'}, expected a deadline later "
                "than warn."
            )


@dataclass(frozen=True)
class Waits:
    """The moments (UTC) of one partition, and how many of what it needs are enough from `after` on."""

    earliest: datetime | None = None
    after: datetime | None = None
    least: int = 0
    total: int = 0
    warn: datetime | None = None
    deadline: datetime | None = None
    clock_changes: bool = False
    """True if its zone's clock changes within it: then it may need other than `total`, and as many may be missing."""

    @property
    def phrase(self) -> str:
        """Return what is enough, in words."""
        return f"{self.least} of {self.total}"

    def refuse(self, output: Partition, needed: int) -> None:
        """Raise InvalidDefinition if an output needs another number of partitions than is declared."""
        if self.after and not self.clock_changes and needed != self.total:
            raise InvalidDefinition(
                f"{output} needs {needed} partitions of its inputs, and at_least says '{self.phrase}': expected so "
                f"many 'of {needed}'. Correct it in the declaration; where partitions need different numbers, as "
                "months of days do, remove at_least and after."
            )

    def may_lack(self, needed: Set[Partition], lacking: Set[Partition]) -> bool:
        """Return whether what is there is enough, once it is time: enough partitions, and something of each input."""
        is_enough = len(lacking) <= self.total - self.least and not self.nothing_of(needed, lacking)
        return self.after is not None and is_enough

    @staticmethod
    def nothing_of(needed: Set[Partition], lacking: Set[Partition]) -> Set[Feed]:
        """Return the inputs of which nothing at all is there."""
        return {each.feed for each in lacking} - {each.feed for each in needed - lacking}

    def goes_without(self, needed: Set[Partition], lacking: Set[Partition], now: datetime) -> bool:
        """Return whether it is built now without some of what it needs."""
        return self.after is not None and now >= self.after and self.may_lack(needed, lacking)


def waits_of(wait: Wait, start: datetime, end: datetime, zone: str) -> Waits:
    """Return the moments of a partition of `[start, end)`, whose clock is that of a zone."""
    least, total = parse_least(wait.at_least) if wait.at_least else (0, 0)
    offsets = {moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in (start, end)}
    return Waits(
        _earliest(wait, end),
        _later(end, wait.after),
        least,
        total,
        _later(end, wait.warn),
        _later(end, wait.deadline),
        clock_changes=len(offsets) > 1,
    )


def _earliest(wait: Wait, end: datetime) -> datetime | None:
    """Return the cron's first tick at or after the end and the delay; without a cron the end of the delay, or None."""
    begins = end + (wait.delay or timedelta())
    if wait.earliest:
        return tick_after(wait.earliest, wait.tz, begins - _INSTANT)
    return begins.astimezone(UTC) if wait.delay is not None else None


def _later(end: datetime, age: timedelta | None) -> datetime | None:
    return (end + age).astimezone(UTC) if age is not None else None
