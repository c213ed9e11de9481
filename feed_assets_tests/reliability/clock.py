"""The time of a process of the world: the schedule decides where it begins, and each look moves it on."""

import time
from datetime import UTC, datetime, tzinfo
from itertools import count

from feed_assets.runs import services
from feed_assets.warehouse import duck, loader_tables

LOOK = 0.01
"""Seconds by which each look moves the time on."""


def start_at(moment: datetime) -> None:
    """Let the product and Dagster see this time from now on, and the same times whenever the process is repeated."""
    ticks = count(1)
    time.time = lambda: moment.timestamp() + next(ticks) * LOOK
    services.utc_now.__code__ = _told.__code__  # Other modules have the function itself.
    services.__dict__["time_of_the_world"] = time
    for module in (duck, loader_tables):
        module.datetime = _Datetime  # type: ignore[assignment,misc]


class _Datetime(datetime):
    """The clock of DuckDB's lease, which is a process's own."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        """Return the time of the world."""
        return datetime.fromtimestamp(time.time(), tz)


def _told() -> datetime:
    return datetime.fromtimestamp(time_of_the_world.time(), UTC)  # type: ignore[name-defined]  # noqa: F821
