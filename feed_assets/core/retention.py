"""Rules for which updates of a partition are removed, which stay, and why."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from feed_assets.core.argument_types import Age, Positive
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import parse_update_id
from feed_assets.core.orphans import is_old
from feed_assets.core.typed import typed

_AGE = re.compile(r"([0-9]{1,6})([wdhm])")
_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes"}


@typed
@dataclass(frozen=True)
class Retention:
    """Policy for how much of a partition's history is kept.

    An update is removed when neither `keep` nor `older_than` keeps it; the newest valid one always stays.

    Args:
        keep: This many of the last valid updates stay.
        older_than: Updates that were the newest valid one at any moment of this last time stay: an update's age counts
            from when a newer valid one replaced it.

    Raises:
        InvalidDefinition: A value is of a wrong type or below its least, or neither is given.
    """

    keep: Positive | None = None
    older_than: Age | None = None

    def __post_init__(self) -> None:
        if self.keep is None and self.older_than is None:
            raise InvalidDefinition(
                "Retention() keeps everything: expected keep=3, older_than=timedelta(days=30), or both."
            )


@dataclass(frozen=True)
class Found:
    """One update as it was found, and the runs that work on it; times in UTC.

    `written` is the last write of any of its objects; read only for invalid updates. `reader` and `writer` are runs,
    `problem` is why it cannot be listed. `given_up`: an earlier prune had begun to remove it.
    """

    id: str
    valid: bool
    written: datetime | None = None
    reader: str | None = None
    writer: str | None = None
    problem: str | None = None
    given_up: bool = False


@dataclass(frozen=True)
class Judgement:
    """Decision if an update is removed, and why; `surprising`: the policy would remove it, but something keeps it."""

    id: str
    goes: bool
    reason: str
    surprising: bool = False


def judge(
    found: Iterable[Found], retention: Retention, now: datetime, replaced_by: str | None = None
) -> tuple[Judgement, ...]:
    """Return the decision about each update of one partition, newest first.

    `replaced_by`: the update of another batch, which holds the rows of this one: it counts as a newer one.
    """
    updates = sorted(found, key=lambda each: each.id, reverse=True)
    newer: list[str] = [replaced_by] if replaced_by else []
    judged: list[Judgement] = []
    for each in updates:
        judged.append(_judge(each, newer, retention, now))
        newer += [each.id] if each.valid else []
    return tuple(judged)


def _judge(found: Found, newer: Sequence[str], retention: Retention, now: datetime) -> Judgement:
    """Judge one update; `newer` are the valid updates after it, newest first."""
    if reason := _in_its_place(found, newer, retention, now):
        return Judgement(found.id, goes=False, reason=reason)
    if reason := _in_use(found, now):
        return Judgement(found.id, goes=False, reason=reason, surprising=True)
    if found.given_up:
        return Judgement(found.id, goes=True, reason="an earlier prune did not finish with it")
    what = "" if found.valid else "it is not valid; "
    replaced = parse_update_id(newer[-1])
    return Judgement(
        found.id, goes=True, reason=f"{what}{len(newer)} newer valid, the first of {replaced:%Y-%m-%d %H:%M} UTC"
    )


def _in_its_place(found: Found, newer: Sequence[str], retention: Retention, now: datetime) -> str | None:
    """Return why the policy keeps it. One that an earlier prune gave up stays only as the newest valid one again."""
    if not newer:
        return "it is the newest valid one" if found.valid else "there is no newer valid one"
    if found.given_up:
        return None
    if retention.keep is not None and len(newer) < retention.keep:
        return f"it is among the last {retention.keep}"
    replaced = parse_update_id(newer[-1])
    if retention.older_than is not None and replaced and now - replaced < retention.older_than:
        return f"it was replaced at {replaced:%Y-%m-%d %H:%M} UTC, less than {retention.older_than} ago"
    return None


def _in_use(found: Found, now: datetime) -> str | None:
    """Return why it stays although the policy would remove it."""
    if found.reader:
        return f"run {found.reader} reads it"
    if found.writer:
        return f"run {found.writer} writes it, or was killed and is not finished yet"
    if found.problem:
        return f"it cannot be listed: {found.problem}"
    if not found.valid and not found.given_up and not is_old(found.id, now, found.written):
        touched = max((moment for moment in (found.written, parse_update_id(found.id)) if moment), default=now)
        return f"it is not valid and may be unfinished: last touched at {touched:%Y-%m-%d %H:%M} UTC, within 24 hours"
    return None


def kept_from(found: Iterable[Found], going: Iterable[str], replaced_by: str | None = None) -> str | None:
    """Return the valid update from which on no valid one is missing without `going`; None if no valid one goes."""
    valid, gone = sorted(each.id for each in found if each.valid), set(going)
    valid += [replaced_by] if replaced_by and valid and replaced_by > valid[-1] else []
    last = max((each for each in valid if each in gone), default=None)
    return next((each for each in valid if last and each > last and each not in gone), None)


def parse_age(text: str) -> timedelta:
    """Read `30d`: a number of weeks (w), days (d), hours (h) or minutes (m)."""
    found = _AGE.fullmatch(text)
    if not found:
        raise InvalidDefinition(f"{text!r} is no age: expected a number and a unit, such as 30d, 12h, 6w or 90m.")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
