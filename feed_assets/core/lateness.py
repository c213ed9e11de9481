"""Whether late data are worth a re-run.

Growth is measured against what the published update consumed, so that many small updates add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import parse_update_id
from feed_assets.core.positions import InputChange, Pin
from feed_assets.core.rules import Age, Share, as_share
from feed_assets.core.typed import typed
from feed_assets.core.windows import address_of


@typed
@dataclass(frozen=True)
class Late:
    """A dataset's late policy: re-run at this growth of one input, or when late data have waited this long.

    A restatement (smaller, other content of the same size, or an older update because the newer one was invalidated)
    always re-runs. An appendable input grows as a whole: a new batch is growth of its partition, and one that is gone a
    restatement.

    Args:
        growth: A share of the input's bytes, 0.05 or `5%`; the default 0 re-runs for every change.
        max_age: Re-run when late data below the threshold have waited this long; without it they wait for more.

    Raises:
        InvalidDefinition: A value is of a wrong type, the growth no share, or the age below 0.
    """

    growth: Share = 0.0
    max_age: Age | None = None


@dataclass(frozen=True)
class Weighed:
    """The outcome of `weigh`: re-run now, or wait; `look_again` is when waiting ends by itself (UTC)."""

    rerun: bool
    reason: str
    look_again: datetime | None = None


def weigh(changes: Sequence[InputChange], policy: Late, now: datetime, since: datetime | None = None) -> Weighed:
    """Weigh changed inputs (at least one) against a late policy; times are timezone-aware.

    `since` is when the first of the late data came, if others have followed: those must not start the waiting anew.
    """
    threshold = as_share(policy.growth)
    for change in changes:
        if _is_restated(change) or _growth(change) >= threshold:
            return Weighed(rerun=True, reason=f"{change.partition}: {_describe(change)}")
    oldest = min((moment for moment in (since, *map(_arrived, changes)) if moment), default=now)
    most = max(_growth(change) for change in changes)
    below = f"late data of {most:+.1%} are below the threshold of {threshold:.1%}"
    if policy.max_age is None:
        return Weighed(rerun=False, reason=below)
    ripe = oldest + policy.max_age
    if now >= ripe:
        return Weighed(rerun=True, reason=f"{below}, but have waited for {policy.max_age}")
    return Weighed(rerun=False, reason=f"{below}, and are taken at {ripe:%Y-%m-%d %H:%M} UTC", look_again=ripe)


def _is_restated(change: InputChange) -> bool:
    old, new = change.old, change.new
    if old is None and change.parent_bytes:
        return False
    return old is None or new is None or new.size <= old.size or new.update_id < old.update_id


def _growth(change: InputChange) -> float:
    old, new = change.parent_bytes or (_size(change.old), _size(change.new))
    return (new - old) / old if old else float("inf")


def _size(pin: Pin | None) -> int:
    return pin.size if pin else 0


def _arrived(change: InputChange) -> datetime | None:
    return parse_update_id(change.new.update_id) if change.new else None


def _describe(change: InputChange) -> str:
    old, new = change.old, change.new
    if old is None:
        grown = f" (with it {change.parent_bytes[0]} to {change.parent_bytes[1]} bytes)" if change.parent_bytes else ""
        return f"was not there before{grown}"
    if new is None:
        return "is no longer valid" if change.parent_bytes else "is no longer valid, or no longer an input"
    if address_of(change.partition):
        return f"its windows have changed since they were read ({old.size:,} to {new.size:,} records)"
    if new.update_id < old.update_id:
        return f"update {old.update_id} was consumed and is no longer valid, the newest is {new.update_id} again"
    grown = f"{old.size} to {new.size} bytes"
    return f"update {old.update_id} was consumed, the newest is {new.update_id} ({grown})"
