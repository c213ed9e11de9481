"""The gates: rules that let a partition pass, or return why it must wait."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from feed_assets.core.attempts import MOST_DEATHS, is_death, is_of_code, needs_a_change, pause_after
from feed_assets.core.batch_names import held_by, same_rows
from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Partition, parse_update_id, update_id
from feed_assets.core.inputs import UpdateInput
from feed_assets.core.late_weighing import Weighed
from feed_assets.core.message_words import shortened
from feed_assets.core.needs import Need
from feed_assets.core.pins import InputChange, Pin, changed, pins_digest
from feed_assets.core.update_choice import Choice
from feed_assets.core.windows import address_of

NAMED = 5
"""Maximum number of partitions that a reason names. For further partitions the reason gives only their number."""

COUNTED_WITHIN = timedelta(minutes=1)
"""Time until uncounted inputs are checked again."""


class State(StrEnum):
    """The decision about a partition: an action, or what it waits for."""

    BUILD = "build"
    REBUILD = "rebuild"
    CURRENT = "current"
    CLOSED = "closed"
    WAITS_FOR_TIME = "waits for time"
    WAITS_FOR_INPUT = "waits for input"
    WAITS_FOR_PROPAGATION = "waits for propagation"
    WAITS_FOR_QUALITY = "waits for quality"
    WAITS_FOR_LATE_DATA = "waits for late data"
    SKIPS_LATE_DATA = "skips late data"
    WAITS_FOR_ANOTHER_ATTEMPT = "waits for another attempt"
    WAITS_FOR_A_PERSON = "waits for a person"
    WAITS_FOR_RESOURCES = "waits for resources"


@dataclass(frozen=True)
class Case:
    """An output about which the gates decide: the inputs that it needs, and the ledger facts."""

    need: Need
    facts: Facts

    @cached_property
    def built(self) -> Built:
        """Return the ledger's facts about the output, such as its newest update."""
        return self.facts.outputs.get(self.need.output, Built())

    @cached_property
    def choice(self) -> Choice:
        """Return the events and updates that the output consumes and reads next, if it is built by events."""
        return self.facts.choices.get(self.need.output, Choice())

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        """Return the pins of the updates and slices that the output would read now."""
        return tuple(pin for each in self.need.inputs for pin in each.pins(self.facts, self.choice))

    @cached_property
    def changes(self) -> tuple[InputChange, ...]:
        """Return the inputs whose data differ from those that the output was built from, and thus make it stale."""
        return self._other_than_consumed(self.pins)

    @cached_property
    def counted(self) -> tuple[InputChange, ...]:
        """Return the changes that the policy for late data takes into account now.

        Their data arrived before the last check and before the cut-off. Data that arrived after the last check, but
        before the cut-off, are weighed at the next check.
        """
        return self._other_than_consumed([pin for each in self.pins if (pin := self._as_counted(each))])

    def _other_than_consumed(self, pins: Iterable[Pin]) -> tuple[InputChange, ...]:
        newest = [pin for pin in pins if pin.partition not in self._kept]
        consumed = [pin for pin in self.built.consumed if pin.partition not in self._kept]
        unchanged = same_rows(newest, consumed)
        newest, consumed = (
            [pin for pin in each if pin.partition.parent not in unchanged] for each in (newest, consumed)
        )
        return changed(newest, consumed, self.need.source_of)

    def _as_counted(self, pin: Pin) -> Pin | None:
        """Return the newest pin of the same partition whose data arrived in time to be weighed now.

        If the output was already built from these or newer data, or there are none, return the pin that it was built
        from, or None. A window arrived when it became complete for the first time after the output read it.
        """
        upto, at = self.need.counts_upto(pin.partition.feed, self.facts.now), pin.partition
        came = self.built.late_since.get(at) if address_of(at) else parse_update_id(pin.update_id)
        if upto is None or came is None or update_id(came) <= upto:
            return pin
        consumed = next((each for each in self.built.consumed if each.partition == at), None)
        counted = self.facts.counted.get((at, upto))
        return counted if counted and (not consumed or counted.update_id > consumed.update_id) else consumed

    @cached_property
    def backfilled(self) -> frozenset[Partition]:
        """Return the windows that were backfilled since the output was built."""
        if not self.built.published:
            return frozenset()
        return self.need.backfilled(self.facts, self.built.changed, self.built.consumed)

    @cached_property
    def is_told_again(self) -> bool:
        """Return whether the next run consumes events that report rows of an input table. It must read them (again)."""
        due = (each for each in self.choice.due.slices if each.partition.feed in self.need.tables)
        return any(not each.interval.is_empty for each in due)

    @cached_property
    def lacking(self) -> frozenset[Partition]:
        """Return the input partitions that the output needs and that are missing."""
        return self.need.lacking(self.facts, self.choice)

    @cached_property
    def without(self) -> frozenset[Partition]:
        """Return the missing inputs for which the output no longer waits, because enough other inputs are there."""
        goes = self.need.waits.goes_without(self.need.needed, self.lacking, self.facts.now)
        return self.lacking if goes else frozenset()

    @cached_property
    def _kept(self) -> frozenset[Partition]:
        """Return the inputs whose changes do not make the output stale."""
        return self._settled | self._not_reprocessed

    @cached_property
    def _not_reprocessed(self) -> frozenset[Partition]:
        """Return the inputs whose backfill does not rebuild the output, because its dataset ignores backfills.

        These are the backfilled windows, and the partitions that are counted in them.
        """
        if self.need.reprocess != "never":
            return frozenset()
        back = [each for each in self.need.windows if not self.backfilled.isdisjoint(each.windows)]
        return self.backfilled | {at for each in back for at in each.counted}

    @cached_property
    def _settled(self) -> frozenset[Partition]:
        """Return the inputs that only had to reach a time (`beyond`) and were read.

        Their later updates do not make the output stale.
        """
        beyond = (each for each in self.need.inputs if isinstance(each, UpdateInput) and each.beyond)
        settled = {member for each in beyond for member in each.members(self.facts)}
        consumed = {pin.partition: pin.update_id for pin in self.built.consumed if pin.partition in settled}
        newer = {pin.partition for pin in self.pins if pin.update_id >= consumed.get(pin.partition, pin.update_id)}
        return frozenset(consumed.keys() & newer)

    @cached_property
    def tried(self) -> tuple[Attempt, ...]:
        """Return the attempts on the current inputs with the current recipe and Spark configuration, oldest first."""
        digests = pins_digest(self.pins), None
        return tuple(
            each for each in self.built.attempts if each.made_with == self.need.made_with and each.pins in digests
        )


class Answer(NamedTuple):
    """The state of a partition and the reason. At `look_again` (UTC) the state may change without any new event."""

    state: State
    reason: str
    look_again: datetime | None = None
    weighed: Weighed | None = None


def _closed(case: Case) -> Answer | None:
    """Stop a partition that somebody has closed as final."""
    why = case.facts.closed.get(case.need.output)
    return Answer(State.CLOSED, why) if why else None


def _time(case: Case) -> Answer | None:
    """Stop a partition before the earliest time at which it may be built."""
    earliest = case.need.waits.earliest
    if earliest is None or earliest <= case.facts.now:
        return None
    return Answer(State.WAITS_FOR_TIME, f"it is not built before {earliest:%Y-%m-%d %H:%M:%S} UTC", earliest)


def _inputs(case: Case) -> Answer | None:
    """Stop a partition unless it has all required inputs, or enough of them.

    Updates of incomplete propagations, which have not reached every required table, do not count.
    """
    missing = [name for each in case.need.inputs if (name := each.missing(case.facts, case.choice))]
    behind = [why for each in case.need.inputs if (why := each.behind(case.facts, case.choice))]
    if case.pins and (case.without or (not missing and not behind)):
        return None
    have_come = (each.has_come(case.facts, case.choice) for each in case.need.inputs if each.is_required)
    if case.choice.due.waits and all(have_come):
        return Answer(State.WAITS_FOR_PROPAGATION, case.choice.due.waits)
    published = case.built.published
    served = f"; {published}, which was built before, is still served" if published else ""
    absent = [f"no valid update of {shortened(missing, NAMED) or 'any input'}"] if missing or not behind else []
    again, enough = _enough(case)
    again = min((each for each in (again, _look_again(case)) if each), default=None)
    return Answer(State.WAITS_FOR_INPUT, "; ".join([*absent, *behind, *enough]) + served, again)


def _enough(case: Case) -> tuple[datetime | None, list[str]]:
    """Return when the output is built without its missing inputs (None if too few are there), and an explanation."""
    waits, needed = case.need.waits, case.need.needed
    if waits.after is None or not waits.may_lack(needed, case.lacking):
        nothing_of = shortened(sorted(map(str, waits.nothing_of(needed, case.lacking))), NAMED)
        explanation = f"{waits.phrase} are enough, {len(needed - case.lacking)} are there"
        suffix = f", and no partition of {nothing_of} is there: at least one is needed" if nothing_of else ""
        return None, [f"{explanation}{suffix}"] * bool(waits.after)
    return waits.after, [
        f"from {waits.after:%Y-%m-%d %H:%M:%S} UTC on it is built without them, because {waits.phrase} are enough"
    ]


def _look_again(case: Case) -> datetime | None:
    """Return when to check again whether inputs are counted.

    Without this time the partition might wait forever: the run that counts its inputs may be paused, or may fail.
    """
    partitions, facts = case.need.partitions, case.facts
    if any(each in facts.uncounted for each in partitions):
        return facts.now
    return facts.now + COUNTED_WITHIN if any(each in facts.counted_by_nobody for each in partitions) else None


def _news(case: Case) -> Answer | None:
    """Answer that the output is current if nothing has changed since its last build. Otherwise return None.

    With this answer, events that change nothing are consumed. If there are none, the output waits for the propagations
    that are not complete yet.
    """
    if not case.built.published or case.changes or is_reprocessed(case) or case.built.lost or case.is_told_again:
        return None
    due = case.choice.due
    if due.waits and not due.slices:
        return Answer(State.WAITS_FOR_PROPAGATION, due.waits)
    suffix = f", without {shortened([*map(str, sorted(case.without))], NAMED)}" if case.without else ""
    return Answer(State.CURRENT, f"update {case.built.published} was built from the newest inputs{suffix}")


def is_reprocessed(case: Case) -> bool:
    """Return whether the output is built again because of a backfilled input, even if this input has the same data."""
    return case.need.reprocess == "always" and bool(case.backfilled)


def _quality(case: Case) -> Answer | None:
    """Stop an output if a check of an input failed or is awaited, or if the output's audit failed on these inputs."""
    read = [each for each in case.need.inputs if isinstance(each, UpdateInput) and each.partition not in case.without]
    failed = [f"{each.partition} ({why})" for each in read if (why := each.problem(case.facts))]
    if failed:
        waits_for_checks = any(each.checks and each.problem(case.facts) for each in read)
        problem = "the awaited checks" if waits_for_checks else "the failed audit"
        return Answer(State.WAITS_FOR_QUALITY, f"{problem} of {shortened(failed, NAMED)}")
    if problems := [why for each in case.need.windows if (why := each.problem(case.facts))]:
        return Answer(State.WAITS_FOR_QUALITY, "; ".join(problems))
    if refused := [each.reason for each in case.tried if each.refused]:
        return Answer(State.WAITS_FOR_QUALITY, f"its own audit failed on these inputs: {refused[-1]}")
    return None


def _pause(case: Case) -> Answer | None:
    why = case.facts.paused.get(case.need.output.feed)
    return Answer(State.WAITS_FOR_A_PERSON, why) if why else None


def _if_elsewhere(case: Case, reason: str) -> str:
    """Return a hint for a fix in another module. The ledger notices only changes of the function itself."""
    if not is_of_code(reason):
        return ""
    return f" (after a change in another module run `feed-assets build {case.need.output.feed} --failed`)"


def _attempts(case: Case) -> Answer | None:
    """Stop a partition if another attempt on the same inputs is not allowed, or must wait for a pause to end."""
    tried, most = case.tried, case.facts.max_attempts
    if not tried:
        return None
    if needs_a_change(tried[-1].reason):
        why = f"failed: needs a change{_if_elsewhere(case, tried[-1].reason)}: {tried[-1].reason}"
        return Answer(State.WAITS_FOR_A_PERSON, why)
    if sum(is_death(each.reason) for each in tried) >= MOST_DEATHS:
        return Answer(State.WAITS_FOR_A_PERSON, f"Spark died {MOST_DEATHS} times on these inputs: {tried[-1].reason}")
    if len(tried) >= most:
        why = f"{len(tried)} run{'s' * (len(tried) > 1)} failed on these inputs, the last with: {tried[-1].reason}"
        return Answer(State.WAITS_FOR_A_PERSON, why)
    again = tried[-1].ended + pause_after(len(tried))
    if again <= case.facts.now:
        return None
    why = f"attempt {len(tried)} of {most} failed, the next may start from {again:%Y-%m-%d %H:%M:%S} UTC on: "
    return Answer(State.WAITS_FOR_ANOTHER_ATTEMPT, why + tried[-1].reason, again)


def _history(case: Case) -> Answer | None:
    """Stop a partition if retention has pruned an update of an input that was newer than every remaining update.

    A re-run would read the older update and lose rows. A batch is not lost if a compacted batch has its rows.
    """
    pinned = {pin.partition for pin in case.pins}
    for change in case.changes if case.built.published else ():
        if change.new is None and held_by(change.partition, pinned):
            continue
        pruned, newest = case.facts.pruned.get(change.partition, ""), change.new.update_id if change.new else ""
        if pruned > newest:
            remainder = f"only the older {newest} is left" if newest else "none is left"
            why = (
                f"the newest updates of {change.partition} are no longer valid, {pruned} before them was pruned, and "
                f"{remainder}"
            )
            return Answer(State.WAITS_FOR_A_PERSON, why)
    return None


GATES: tuple[Callable[[Case], Answer | None], ...] = (
    _closed,
    _time,
    _inputs,
    _news,
    _quality,
    _pause,
    _attempts,
    _history,
)
"""The gates in order. The first gate that stops a partition decides its verdict.

The order follows the article "Data Dependency Driven Orchestration": time, inputs, quality, attempts. Resources come
after all gates, when a run is requested (`orchestration/decide/resource_requests.py`). The gate for closed partitions
is first, because no other gate matters for them. No gate sees an output before its window has ended.
"""
