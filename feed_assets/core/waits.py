"""Rules for when a partition is built: earliest time, how many inputs are enough, and deadlines."""

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
"""The longest allowed duration, so that all resulting moments are in the calendar."""

_SHARE = re.compile(r"([0-9]{1,6}) of ([0-9]{1,6})")
_INSTANT = timedelta(microseconds=1)


def parse_least(text: str) -> tuple[int, int]:
    """Parse a text such as `23 of 24` into the number that is enough, and the total. Raise ValueError if malformed."""
    match = _SHARE.fullmatch(text)
    least, total = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= least <= total:
        raise ValueError("how many are enough, such as '23 of 24'")
    return least, total


def _check_least(text: str) -> str:
    parse_least(text)
    return text


Least = Annotated[str, AfterValidator(_check_least)]


@typed
@dataclass(frozen=True)
class Wait:
    """Rules for when partitions of a dataset are built. All times count from the partition's end.

    After "Data Dependency Driven Orchestration": a cron is only the earliest time at which a flow can be launched.

    Args:
        earliest: A cron, such as `0 6 * * *`. A partition is not built before the first tick at or after its end.
        tz: The zone of the cron, such as `Europe/Berlin`, or whole hours, such as `+08:00`.
        delay: A partition is not built before this time has passed. `earliest` then means the first tick after that.
        deadline: If a partition is not built after this time, an alert opens.
        warn: If a partition is not built after this time, an alert opens, before the alert of `deadline`.
        at_least: How many of the needed partitions, or windows of tables, are enough, such as `23 of 24`. It requires
            `after`. Data that arrive after the run are late data.
        after: When this time has passed, a partition is built if enough of its inputs are there. At least one
            partition of each input must be there.

    Raises:
        InvalidDefinition: A value is of a wrong type, the cron or zone is invalid, or an argument is given without
            another argument that it requires.
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
            raise InvalidDefinition(
                f"Wait: {lacking}, expected both: `at_least` inputs are enough once `after` has passed."
            )
        if self.warn is not None and (self.deadline is None or self.warn >= self.deadline):
            raise InvalidDefinition(
                f"Wait: `warn` is {self.warn} and `deadline` {self.deadline or 'not given'}, expected a deadline later "
                "than `warn`."
            )


@dataclass(frozen=True)
class Waits:
    """The rules of a `Wait` for one partition, as moments (UTC).

    From `after` on, `least` of the `total` needed inputs are enough.
    """

    earliest: datetime | None = None
    after: datetime | None = None
    least: int = 0
    total: int = 0
    warn: datetime | None = None
    deadline: datetime | None = None
    clock_changes: bool = False
    """True if the clock changes within the partition. Then it may need more or fewer inputs than `total`."""

    @property
    def phrase(self) -> str:
        """Return how many inputs are enough, as declared: `23 of 24`."""
        return f"{self.least} of {self.total}"

    def refuse(self, output: Partition, needed: int) -> None:
        """Raise InvalidDefinition if an output needs a different number of partitions than `at_least` says."""
        if self.after and not self.clock_changes and needed != self.total:
            raise InvalidDefinition(
                f"{output} needs {needed} partitions of its inputs, but at_least is '{self.phrase}': expected a number "
                f"'of {needed}'. Correct the declaration. If partitions need different numbers of inputs, as a month "
                "needs 28 to 31 days, remove at_least and after."
            )

    def may_lack(self, needed: Set[Partition], lacking: Set[Partition]) -> bool:
        """Return whether a build without the missing partitions is allowed once the wait is over.

        Enough partitions must exist, and at least one of each input.
        """
        is_enough = len(lacking) <= self.total - self.least and not self.nothing_of(needed, lacking)
        return self.after is not None and is_enough

    @staticmethod
    def nothing_of(needed: Set[Partition], lacking: Set[Partition]) -> Set[Feed]:
        """Return the inputs of which no needed partition exists."""
        return {each.feed for each in lacking} - {each.feed for each in needed - lacking}

    def goes_without(self, needed: Set[Partition], lacking: Set[Partition], now: datetime) -> bool:
        """Return whether the wait is over, so that the partition is built without its missing inputs."""
        return self.after is not None and now >= self.after and self.may_lack(needed, lacking)


def waits_of(wait: Wait, start: datetime, end: datetime, zone: str) -> Waits:
    """Return the rules of a dataset's `Wait` as moments for one partition.

    The partition has the time `[start, end)`, and its days are those of the time zone `zone`.
    """
    least, total = parse_least(wait.at_least) if wait.at_least else (0, 0)
    offsets = {moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in (start, end)}
    return Waits(
        _earliest(wait, end),
        _later(end, wait.after),
        least,
        total=total,
        warn=_later(end, wait.warn),
        deadline=_later(end, wait.deadline),
        clock_changes=len(offsets) > 1,
    )


def _earliest(wait: Wait, end: datetime) -> datetime | None:
    """Return the first cron tick at or after the end plus the delay. Without a cron return the end of the delay."""
    begins = end + (wait.delay or timedelta())
    if wait.earliest:
        return tick_after(wait.earliest, wait.tz, begins - _INSTANT)
    return begins.astimezone(UTC) if wait.delay is not None else None


def _later(end: datetime, age: timedelta | None) -> datetime | None:
    return (end + age).astimezone(UTC) if age is not None else None
