"""The one decision: which partitions can be built now, and what each of the others waits for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from feed_assets.core.attempts import pause_after
from feed_assets.core.choosing import Choice
from feed_assets.core.facts import Attempt, Built, Facts
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import Input, SetInput, TableInput, UpdateInput, WindowInput
from feed_assets.core.lateness import Late, weigh
from feed_assets.core.positions import InputChange, Pin, changed, pins_digest
from feed_assets.core.propagation import Consumer, Due
from feed_assets.core.words import some

NAMED = 5
"""Partitions that a reason names; of the others it says how many there are."""

COUNTED_WITHIN = timedelta(minutes=1)
"""After that it is looked again whether somebody has counted what an output waits for."""


@dataclass(frozen=True)
class Need:
    """One partition of a consumer and every partition of its inputs that it needs."""

    output: Partition
    inputs: tuple[Input, ...]
    late: Late = field(default_factory=Late)
    consumer: Consumer | None = None
    """Set of a dataset that is built by events: when it reads which update follows from their propagation."""
    made_with: str | None = None
    """Digest of the recipe and the Spark configuration: what was tried with others says nothing of these."""

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of inputs that exist."""
        return tuple(each.partition for each in self.inputs if isinstance(each, UpdateInput))

    @property
    def windows(self) -> tuple[WindowInput, ...]:
        """The windows that it waits for."""
        return tuple(each for each in self.inputs if isinstance(each, WindowInput))

    def partitions_of(self, feed: Feed) -> list[Partition]:
        """Those of one input."""
        return [each for each in self.partitions if each.feed == feed]

    def windows_of(self, feed: Feed) -> list[WindowInput]:
        """Those of one input."""
        return [each for each in self.windows if each.span.dataset == feed]

    @property
    def optional(self) -> frozenset[Partition]:
        """Those that are read if they have a valid update, and not waited for."""
        found = (each for each in self.inputs if isinstance(each, UpdateInput) and not isinstance(each, TableInput))
        return frozenset(each.partition for each in found if not each.is_required)

    @property
    def tables(self) -> frozenset[Feed]:
        """The inputs that are event tables."""
        return frozenset(each.partition.feed for each in self.inputs if isinstance(each, TableInput))


class State(StrEnum):
    """What is to be done about a partition, or what it waits for: exactly one of these."""

    BUILD = "build"
    REBUILD = "rebuild"
    CURRENT = "current"
    WAITS_FOR_INPUT = "waits for input"
    WAITS_FOR_PROPAGATION = "waits for propagation"
    WAITS_FOR_QUALITY = "waits for quality"
    WAITS_FOR_LATE_DATA = "waits for late data"
    WAITS_FOR_ANOTHER_ATTEMPT = "waits for another attempt"
    WAITS_FOR_A_PERSON = "waits for a person"


@dataclass(frozen=True)
class Verdict:
    """What to do about one output, why, and on which input updates; `look_again` (UTC) if time alone changes it."""

    output: Partition
    state: State
    reason: str
    pins: tuple[Pin, ...] = ()
    published: str | None = None
    attempt: int = 0
    look_again: datetime | None = None
    due: Due | None = None
    """By events: what its run consumes."""
    is_good_again: bool = False
    """Current, although its last audit failed: that was on other inputs than those of now, and blocks nobody more."""


@dataclass(frozen=True)
class _Case:
    """A need with the facts about it."""

    need: Need
    facts: Facts

    @cached_property
    def built(self) -> Built:
        return self.facts.outputs.get(self.need.output, Built())

    @cached_property
    def choice(self) -> Choice:
        return self.facts.choices.get(self.need.output, Choice())

    @cached_property
    def pins(self) -> tuple[Pin, ...]:
        return tuple(pin for each in self.need.inputs for pin in each.pins(self.facts, self.choice))

    @cached_property
    def changes(self) -> tuple[InputChange, ...]:
        appendable = {each.partition.feed for each in self.need.inputs if isinstance(each, SetInput)}
        newest = [pin for pin in self.pins if pin.partition not in self._kept]
        consumed = [pin for pin in self.built.consumed if pin.partition not in self._kept]
        return changed(newest, consumed, appendable)

    @cached_property
    def _kept(self) -> frozenset[Partition]:
        """What went far enough when it was read: what has come since makes nothing stale."""
        beyond = (each for each in self.need.inputs if isinstance(each, UpdateInput) and each.beyond)
        settled = {member for each in beyond for member in each.members(self.facts)}
        consumed = {pin.partition: pin.update_id for pin in self.built.consumed if pin.partition in settled}
        newer = {pin.partition for pin in self.pins if pin.update_id >= consumed.get(pin.partition, pin.update_id)}
        return frozenset(consumed.keys() & newer)

    @cached_property
    def tried(self) -> tuple[Attempt, ...]:
        """The attempts on these inputs, with this recipe and Spark configuration, oldest first."""
        same = pins_digest(self.pins), None
        return tuple(
            each for each in self.built.attempts if each.made_with == self.need.made_with and each.pins in same
        )


class _Answer(NamedTuple):
    """What a partition waits for, and when time alone may change that (UTC)."""

    state: State
    reason: str
    look_again: datetime | None = None


def decide(needs: Iterable[Need], facts: Facts) -> tuple[Verdict, ...]:
    """One verdict for each need, from facts alone, in their order."""
    return tuple(_decide(_Case(need, facts)) for need in needs)


def _decide(case: _Case) -> Verdict:
    output, built = case.need.output, case.built
    stopped = next((answer for gate in GATES if (answer := gate(case))), None)
    state, reason, look_again = stopped or _go(case)
    is_refused = [attempt.pins == pins_digest(case.pins) for attempt in built.attempts if attempt.refused]
    is_good_again = state is State.CURRENT and output in case.facts.failed and bool(is_refused) and not any(is_refused)
    due = case.choice.due if case.choice.due != Due() else None
    attempts = len(built.attempts)
    return Verdict(output, state, reason, case.pins, built.published, attempts, look_again, due, is_good_again)


def _inputs(case: _Case) -> _Answer | None:
    """Whether there is something to read of every input; what is on its way through a pipeline has not come yet."""
    missing = [name for each in case.need.inputs if (name := each.missing(case.facts, case.choice))]
    behind = [why for each in case.need.inputs if (why := each.behind(case.facts, case.choice))]
    if not missing and not behind and case.pins:
        return None
    have_come = (each.has_come(case.facts, case.choice) for each in case.need.inputs if each.is_required)
    if case.choice.due.waits and all(have_come):
        return _Answer(State.WAITS_FOR_PROPAGATION, case.choice.due.waits)
    published = case.built.published
    served = f"; {published}, which was built before, goes on being served" if published else ""
    absent = [f"no valid update of {some(missing, NAMED) or 'any input'}"] if missing or not behind else []
    again = _look_again(case)
    return _Answer(State.WAITS_FOR_INPUT, "; ".join([*absent, *behind]) + served, again)


def _look_again(case: _Case) -> datetime | None:
    """When to look again at what nobody has counted: who is going to may be paused before it does, or fail."""
    partitions, facts = case.need.partitions, case.facts
    if any(each in facts.uncounted for each in partitions):
        return facts.now
    return facts.now + COUNTED_WITHIN if any(each in facts.counted_by_nobody for each in partitions) else None


def _news(case: _Case) -> _Answer | None:
    """Whether anything is to be done. Due events that leave the output as it is are consumed before it waits."""
    if not case.built.published or case.changes:
        return None
    due = case.choice.due
    if due.waits and not due.slices:
        return _Answer(State.WAITS_FOR_PROPAGATION, due.waits)
    return _Answer(State.CURRENT, f"update {case.built.published} was built from the newest inputs")


def _quality(case: _Case) -> _Answer | None:
    """Whether the checks of every input have passed, and the output's own on these very inputs."""
    heeded = [each for each in case.need.inputs if isinstance(each, UpdateInput) and not each.ignores_quality]
    failed = [(each.partition, case.facts.failed.get(each.partition)) for each in heeded]
    if reasons := [f"{partition} ({why})" for partition, why in failed if why]:
        return _Answer(State.WAITS_FOR_QUALITY, f"the last audit failed of {some(reasons, NAMED)}")
    if problems := [why for each in case.need.windows if (why := each.problem(case.facts))]:
        return _Answer(State.WAITS_FOR_QUALITY, "; ".join(problems))
    if refused := [each.reason for each in case.tried if each.refused]:
        return _Answer(State.WAITS_FOR_QUALITY, f"its own audit failed on these inputs: {refused[-1]}")
    return None


def _pause(case: _Case) -> _Answer | None:
    why = case.facts.paused.get(case.need.output.feed)
    return _Answer(State.WAITS_FOR_A_PERSON, why) if why else None


def _attempts(case: _Case) -> _Answer | None:
    """Whether runs on these inputs may still be tried, and whether it is time to."""
    tried, most = case.tried, case.facts.max_attempts
    if not tried:
        return None
    if len(tried) >= most:
        why = f"{len(tried)} runs failed on these inputs, the last with: {tried[-1].reason}"
        return _Answer(State.WAITS_FOR_A_PERSON, why)
    again = tried[-1].ended + pause_after(len(tried))
    if again <= case.facts.now:
        return None
    why = f"attempt {len(tried)} of {most} failed, the next comes from {again:%Y-%m-%d %H:%M:%S} UTC on: "
    return _Answer(State.WAITS_FOR_ANOTHER_ATTEMPT, why + tried[-1].reason, again)


def _history(case: _Case) -> _Answer | None:
    """Whether no input fell back to before what was pruned: a re-run would lose what the first run saw."""
    for change in case.changes if case.built.published else ():
        pruned, newest = case.facts.pruned.get(change.partition, ""), change.new.update_id if change.new else ""
        if pruned > newest:
            left = f"only the older {newest} is left" if newest else "none is left"
            why = f"{change.partition} lost its newest updates, {pruned} before them was pruned, and {left}"
            return _Answer(State.WAITS_FOR_A_PERSON, why)
    return None


GATES: tuple[Callable[[_Case], _Answer | None], ...] = (_inputs, _news, _quality, _pause, _attempts, _history)
"""Each lets a partition pass or says what it waits for; the first that stops it is the verdict.

In the order of the global state store's article: time (a partition whose window is not over is not decided about, a
step before), inputs, quality, resources, attempts.
"""


def _go(case: _Case) -> _Answer:
    """What no gate has stopped is built, and built again if its late data are worth it."""
    built = case.built
    if built.published is None:
        caveats = [said for each in case.need.windows if (said := each.caveat(case.facts))]
        return _Answer(State.BUILD, "; ".join(["it has no valid update, and every input is there", *caveats]))
    if not built.consumed:
        return _Answer(State.REBUILD, f"it is not known what update {built.published} was built from")
    weighed = weigh(case.changes, case.need.late, case.facts.now, built.late_since)
    state = State.REBUILD if weighed.rerun else State.WAITS_FOR_LATE_DATA
    return _Answer(state, weighed.reason, weighed.look_again)
