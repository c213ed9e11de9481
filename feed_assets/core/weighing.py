"""Whether late data are worth a re-run, by what their input declares.

Growth is measured against what the published update consumed, so that many small updates add up. What is not enough
waits until the time at which its age is, or is knowingly skipped until more comes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.core.lateness import Late, Periods, cut_off_of, last_check, next_look
from feed_assets.core.positions import InputChange, Pin
from feed_assets.core.rules import as_share
from feed_assets.core.windows import address_of
from feed_assets.core.words import some

GB = 10**9
NAMED = 3
"""Partitions that a reason names."""

_INSTANT = timedelta(microseconds=1)


class Outcome(StrEnum):
    """What becomes of late data: they are consumed, wait until a time, or are knowingly skipped until more comes."""

    RERUN = "re-run"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True)
class Weighed:
    """The outcome of `weigh` in words; `look_again` is when waiting ends by itself (UTC).

    With the bytes of what has changed, as they were consumed and as they are now, and how many files are more.
    """

    outcome: Outcome
    reason: str
    look_again: datetime | None = None
    before: int = 0
    after: int = 0
    files: int = 0

    @property
    def rerun(self) -> bool:
        """Whether it is worth a re-run now."""
        return self.outcome is Outcome.RERUN


@dataclass(frozen=True)
class Arrivals:
    """What is other in one input than what was consumed, and the policy by which it is weighed.

    Of this `counted` is what had come by the check, and before the cut-off. `since` is when the first of the late data
    came, by partition: those that follow do not start the waiting anew. `cost` is what a re-run costs, None if no run
    is known yet.
    """

    policy: Late
    changes: Sequence[InputChange]
    counted: Sequence[InputChange]
    since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    cost: float | None = None

    @property
    def said(self) -> str:
        """What has changed, in words."""
        return f"late data of {some(sorted({str(each.partition) for each in self.changes}), NAMED)}"


def weigh(inputs: Sequence[Arrivals], periods: Periods, now: datetime) -> Weighed:
    """Weigh what has changed of some inputs (at least one), each by its own policy: one re-run consumes all of it."""
    found = [_weigh(each, periods, now) for each in inputs]
    units = [unit for each in inputs for unit in _units(each.changes, each.since, now)]
    sizes = sum(each.before for each in units), sum(each.now for each in units), sum(each.files for each in units)
    if again := next((each for each in found if each.rerun), None):
        return Weighed(again.outcome, again.reason, None, *sizes)
    looks = [each.look_again for each in found if each.look_again]
    outcome = Outcome.WAIT if looks else Outcome.SKIP
    return Weighed(outcome, "; ".join(each.reason for each in found), min(looks, default=None), *sizes)


def _weigh(arrivals: Arrivals, periods: Periods, now: datetime) -> Weighed:
    """An input by its policy: what was withdrawn at once, the rest when and as long as it is looked at."""
    if gone := next(filter(_is_withdrawn, arrivals.changes), None):
        return Weighed(Outcome.RERUN, f"{gone.partition}: {_describe(gone)}")
    check = last_check(arrivals.policy, periods, now)
    if next_look(arrivals.policy, periods, check) != check:
        return _at_next_look(arrivals, periods, check)
    limit = cut_off_of(arrivals.policy, periods)
    if not arrivals.counted and limit is not None and limit <= check:
        return Weighed(Outcome.SKIP, f"{arrivals.said} came after the cut-off of {_at(limit)} and are only counted")
    if not arrivals.counted:
        return _at_next_look(arrivals, periods, check)
    found = _counted(arrivals, periods, check, now)
    if found.rerun or (limit is not None and limit <= check) or arrivals.counted == arrivals.changes:
        return found
    more = next_look(arrivals.policy, periods, check + _INSTANT)
    looks = [each for each in (found.look_again, more) if each]
    return Weighed(Outcome.WAIT if looks else Outcome.SKIP, found.reason, min(looks, default=None))


def _at_next_look(arrivals: Arrivals, periods: Periods, check: datetime) -> Weighed:
    """What came after the last check, or is of a period that this one does not look at."""
    policy = arrivals.policy
    if look := next_look(policy, periods, check + _INSTANT):
        return Weighed(Outcome.WAIT, f"{arrivals.said} are weighed at {_at(look)}", look)
    return Weighed(Outcome.SKIP, f"{arrivals.said} are skipped, as only {_looked_at(policy)} are looked at")


def _looked_at(policy: Late) -> str:
    back = sorted(policy.looked_at or ())
    return f"the last {len(back)} periods" if back == [*range(len(back))] else f"the periods {back} back"


@dataclass(frozen=True)
class _Unit:
    """What counts of one input partition, with all its batches; bytes before and now (of windows records)."""

    change: InputChange
    before: int
    now: int
    files: int
    since: datetime

    @property
    def growth(self) -> float:
        return (self.now - self.before) / self.before if self.before else float("inf")


def _counted(arrivals: Arrivals, periods: Periods, check: datetime, now: datetime) -> Weighed:
    """What counts of an input, as of a check at which it is looked at."""
    policy = arrivals.policy
    if restated := next(filter(_is_restated, arrivals.counted), None):
        return Weighed(Outcome.RERUN, f"{restated.partition}: {_describe(restated)}")
    units = _units(arrivals.counted, arrivals.since, now)
    worth, worth_said = _worth(arrivals, units)
    enough = [each for each in units if _is_enough(policy, each)]
    waits = policy.max_age if policy.combine == "all" or not (enough and worth) else None
    if enough and worth and waits is None:
        change = enough[0].change
        return Weighed(Outcome.RERUN, f"{change.partition}: {_describe(change)}{worth_said}")
    said = _not_enough(policy, max(units, key=lambda each: (each.growth, each.files)), bool(enough)) + worth_said
    aging = (enough if worth else []) if policy.combine == "all" else units
    if waits is None or not aging:
        return Weighed(Outcome.SKIP, f"{said}: they are skipped until more comes")
    ripe = min(each.since for each in aging) + waits
    if check >= ripe:
        return Weighed(Outcome.RERUN, f"{said}, but have waited for {waits}")
    if look := next_look(policy, periods, ripe):
        return Weighed(Outcome.WAIT, f"{said}, and are taken at {_at(look)}", look)
    return Weighed(Outcome.SKIP, f"{said}: they are skipped, as only {_looked_at(policy)} are looked at")


def _units(changes: Sequence[InputChange], since: Mapping[Partition, datetime], now: datetime) -> list[_Unit]:
    groups: dict[Partition | None, list[InputChange]] = {}
    for each in changes:
        groups.setdefault(each.partition.parent if each.parent_bytes else each.partition, []).append(each)
    return [_unit(group, since, now) for group in groups.values()]


def _unit(changes: Sequence[InputChange], since: Mapping[Partition, datetime], now: datetime) -> _Unit:
    first = changes[0]
    before, after = first.parent_bytes or (_size(first.old), _size(first.new))
    came = (moment for each in changes for moment in (since.get(each.partition), _arrived(each)) if moment)
    return _Unit(first, before, after, sum(map(_files, changes)), min(came, default=now))


def _is_enough(policy: Late, unit: _Unit) -> bool:
    """Whether the thresholds of sizes are met; with none declared any change is enough, unless its age has to be."""
    met = [unit.growth >= as_share(policy.growth)] if policy.growth is not None else []
    met += [unit.files >= policy.files] if policy.files is not None else []
    if policy.combine == "all":
        return all(met)
    return any(met) if met else policy.max_age is None


def _worth(arrivals: Arrivals, units: Sequence[_Unit]) -> tuple[bool, str]:
    """Whether what is late is worth what a re-run costs, and what is said of that; of windows no bytes are known."""
    price = arrivals.policy.value_per_gb
    if price is None or any(address_of(each.change.partition) for each in units):
        return True, ""
    if arrivals.cost is None:
        return True, "; its cost is not weighed, as no published run of it is known yet"
    value = sum(each.now - each.before for each in units) * price
    said = f"worth {value / GB:.4g}, and a re-run costs {arrivals.cost:.4g}"
    return value >= arrivals.cost * GB, f" ({said})"


def _not_enough(policy: Late, unit: _Unit, is_enough: bool) -> str:
    grown = f"{unit.growth:+.1%}" if unit.before else "what was no byte before"
    files = f" in {unit.files} files" if policy.files is not None else ""
    found = f"late data of {grown}{files}"
    limits = [f"{as_share(policy.growth):.1%}"] if policy.growth is not None else []
    limits += [f"{policy.files} files"] if policy.files is not None else []
    if is_enough or not limits:
        return found
    return f"{found} are below the threshold of {(' and ' if policy.combine == 'all' else ' or ').join(limits)}"


def _is_withdrawn(change: InputChange) -> bool:
    """Whether what was consumed is no longer valid: no data came."""
    old, new = change.old, change.new
    return old is not None and (new is None or new.update_id < old.update_id)


def _is_restated(change: InputChange) -> bool:
    """Whether it is another thing than growth: all of it is new, or it is smaller, or as large with other content."""
    old, new = change.old, change.new
    if old is None or new is None:
        return not change.parent_bytes
    return new.size <= old.size


def _size(pin: Pin | None) -> int:
    return pin.size if pin else 0


def _files(change: InputChange) -> int:
    if address_of(change.partition):
        return 1
    return max((change.new.files if change.new else 0) - (change.old.files if change.old else 0), 0)


def _arrived(change: InputChange) -> datetime | None:
    return parse_update_id(change.new.update_id) if change.new else None


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


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
