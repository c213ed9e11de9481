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

    An update is removed if neither `keep` nor `older_than` keeps it. The newest valid update always stays.

    Args:
        keep: This many of the last valid updates stay. An update and its compaction count as one.
        older_than: An update stays for this long after a newer valid update replaced it.

    Raises:
        InvalidDefinition: A value is of a wrong type or too small, or neither argument is given.
    """

    keep: Positive | None = None
    older_than: Age | None = None

    def __post_init__(self) -> None:
        if self.keep is None and self.older_than is None:
            raise InvalidDefinition(
                "Retention() keeps everything: expected keep=3, older_than=timedelta(days=30), or both."
            )


@dataclass(frozen=True)
class StoredUpdate:
    """One update on the blackboard, and the runs that use it. Times are UTC.

    Attributes:
        id: The update id.
        valid: True if the update is valid.
        written: When one of its objects was last written. This time is read only for invalid updates.
        reader: A run that reads the update.
        writer: A run that writes the update.
        problem: Why the update cannot be listed.
        given_up: True if an earlier prune had begun to remove the update.
        compacted_from: The update with the same rows which this one replaces.
    """

    id: str
    valid: bool
    written: datetime | None = None
    reader: str | None = None
    writer: str | None = None
    problem: str | None = None
    given_up: bool = False
    compacted_from: str | None = None


@dataclass(frozen=True)
class Judgement:
    """Decision whether to remove an update (`goes`), and why.

    `surprising` is True if the update stays although the policy would remove it.
    """

    id: str
    goes: bool
    reason: str
    surprising: bool = False


def judge(
    candidates: Iterable[StoredUpdate], retention: Retention, now: datetime, replaced_by: str | None = None
) -> tuple[Judgement, ...]:
    """Return the decision about each update of one partition, newest first.

    If the partition is a batch, `replaced_by` may be the update of the compacted batch that holds its rows. That update
    counts as a newer one.
    """
    updates = sorted(candidates, key=lambda each: each.id, reverse=True)
    newer: list[str] = [replaced_by] if replaced_by else []
    replaced = {each.compacted_from for each in updates if each.valid}
    judged: list[Judgement] = []
    for each in updates:
        judged.append(_judge(each, newer, retention, now))
        newer += [each.id] if each.valid and each.id not in replaced else []
    return tuple(judged)


def _judge(update: StoredUpdate, newer: Sequence[str], retention: Retention, now: datetime) -> Judgement:
    """Decide whether an update can be removed. `newer` are the valid updates after it, newest first."""
    if reason := _in_its_place(update, newer, retention, now):
        return Judgement(update.id, goes=False, reason=reason)
    if reason := _in_use(update, now):
        return Judgement(update.id, goes=False, reason=reason, surprising=True)
    if update.given_up:
        return Judgement(update.id, goes=True, reason="an earlier prune did not finish with it")
    prefix = "" if update.valid else "it is not valid; "
    replaced = parse_update_id(newer[-1])
    return Judgement(
        update.id,
        goes=True,
        reason=f"{prefix}newer valid updates: {len(newer)}, the first of {replaced:%Y-%m-%d %H:%M} UTC",
    )


def _in_its_place(update: StoredUpdate, newer: Sequence[str], retention: Retention, now: datetime) -> str | None:
    """Return why the policy keeps an update. Return None if it does not.

    An update that an earlier prune began to remove stays only if it is the newest valid one.
    """
    if not newer:
        return "it is the newest valid one" if update.valid else "there is no newer valid one"
    if update.given_up:
        return None
    if retention.keep is not None and len(newer) < retention.keep:
        return f"it is among the last {retention.keep} valid ones"
    replaced = parse_update_id(newer[-1])
    if retention.older_than is not None and replaced and now - replaced < retention.older_than:
        return f"it was replaced at {replaced:%Y-%m-%d %H:%M} UTC, less than {retention.older_than} ago"
    return None


def _in_use(update: StoredUpdate, now: datetime) -> str | None:
    """Return why an update stays although the policy would remove it."""
    if update.reader:
        return f"run {update.reader} reads it"
    if update.writer:
        return f"run {update.writer} writes it, or was killed and is not finished yet"
    if update.problem:
        return f"it cannot be listed: {update.problem}"
    if not update.valid and not update.given_up and not is_old(update.id, now, update.written):
        touched = max((moment for moment in (update.written, parse_update_id(update.id)) if moment), default=now)
        return f"it is not valid and may be unfinished: last touched at {touched:%Y-%m-%d %H:%M} UTC, within 24 hours"
    return None


def kept_from(updates: Iterable[StoredUpdate], going: Iterable[str], replaced_by: str | None = None) -> str | None:
    """Return the oldest valid update that is newer than all removed ones (`going`): history is complete from there on.

    Return None if no valid update is removed.
    """
    valid, gone = sorted(each.id for each in updates if each.valid), set(going)
    valid += [replaced_by] if replaced_by and valid and replaced_by > valid[-1] else []
    last = max((each for each in valid if each in gone), default=None)
    return next((each for each in valid if last and each > last and each not in gone), None)


def parse_age(text: str) -> timedelta:
    """Parse an age such as `30d`: a number of weeks (w), days (d), hours (h) or minutes (m)."""
    match = _AGE.fullmatch(text)
    if not match:
        raise InvalidDefinition(f"{text!r} is not an age: expected a number and a unit, such as 30d, 12h, 6w or 90m.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
