"""The one decision: which partitions can be built now, and what each of the others waits for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.lateness import Late, weigh
from feed_assets.core.positions import Change, Pin, changed, pins_digest
from feed_assets.core.propagation import Consumer, Due
from feed_assets.core.words import some

NAMED = 5
"""Partitions that a reason names; of the others it says how many there are."""


@dataclass(frozen=True)
class Need:
    """One partition of a consumer and every partition of its inputs that it needs.

    `unknown` names needed input partitions that are no partitions of the input (yet): they count as missing.
    """

    output: Partition
    inputs: tuple[Partition, ...]
    unknown: tuple[str, ...] = ()
    late: Late = field(default_factory=Late)
    ignore_quality_of: frozenset[Feed] = frozenset()
    consumer: Consumer | None = None
    """Set of a dataset that is built by events: when it reads which update follows from their propagation."""
    tables: frozenset[Feed] = frozenset()
    """Inputs that are event tables: slices of them are read, and no updates."""
    appendable: frozenset[Feed] = frozenset()
    """Inputs whose partitions hold batches: of each partition the newest valid update of every batch is read."""
    optional: frozenset[Partition] = frozenset()
    """Those of `inputs` that are read if they have a valid update, and not waited for."""


@dataclass(frozen=True)
class Attempt:
    """A build that did not publish; `pins` is the digest of what it read, None if it did not get that far."""

    pins: str | None
    refused: bool
    reason: str


@dataclass(frozen=True)
class Facts:
    """What the ledger knows about some needs. Partitions without an entry have none."""

    now: datetime
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """The newest valid update of each input partition that holds updates, and of each batch."""
    batches: Mapping[Partition, tuple[Partition, ...]] = field(default_factory=dict[Partition, tuple[Partition, ...]])
    """The batches of each partition of an appendable input, valid or not."""
    held: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Partitions, of inputs and outputs, whose last audit failed, and why."""
    published: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The newest published update of each output that was built."""
    consumed: Mapping[Partition, tuple[Pin, ...]] = field(default_factory=dict[Partition, tuple[Pin, ...]])
    """What that update was built from."""
    late_since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """When the first update came that it was not built from, if an input has one."""
    attempts: Mapping[Partition, tuple[Attempt, ...]] = field(default_factory=dict[Partition, tuple[Attempt, ...]])
    """Builds of each output since then that did not publish."""
    pruned: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The last update of each input partition that was valid once and has been pruned."""
    due: Mapping[Partition, Due] = field(default_factory=dict[Partition, Due])
    """What is due of each output that is built by events, if it has not consumed all of them."""
    chosen: Mapping[tuple[Partition, Partition], Pin | None] = field(
        default_factory=dict[tuple[Partition, Partition], Pin | None]
    )
    """By output and input what it reads in place of the newest update; None: nothing complete has come yet."""
    paused: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    """Consumers that somebody has paused, in words."""
    max_attempts: int = 3


class State(StrEnum):
    """Where a partition stands: exactly one of these."""

    BUILD = "build"
    REBUILD = "rebuild"
    CURRENT = "current"
    WAITS_FOR_INPUT = "waits for input"
    WAITS_FOR_PROPAGATION = "waits for propagation"
    WAITS_FOR_QUALITY = "waits for quality"
    WAITS_FOR_LATE_DATA = "waits for late data"
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
    """Current, although its last audit failed: that was on other inputs than those of now, and holds nobody more."""


def decide(needs: Iterable[Need], facts: Facts) -> tuple[Verdict, ...]:
    """One verdict for each need, from facts alone, in their order."""
    return tuple(_decide(need, facts) for need in needs)


def _decide(need: Need, facts: Facts) -> Verdict:
    pins = tuple(pin for partition in need.inputs for pin in _pins(need, partition, facts))
    published = facts.published.get(need.output)
    attempts = facts.attempts.get(need.output, ())
    state, reason, look_again = _state(need, pins, attempts, facts)
    refused_as_is = any(attempt.refused and attempt.pins == pins_digest(pins) for attempt in attempts)
    refused = any(attempt.refused for attempt in attempts) and not refused_as_is
    is_good_again = state is State.CURRENT and need.output in facts.held and refused
    due = facts.due.get(need.output)
    return Verdict(need.output, state, reason, pins, published, len(attempts), look_again, due, is_good_again)


def _pins(need: Need, partition: Partition, facts: Facts) -> list[Pin]:
    """What is read of an input's partition: one update, or one of each batch that has a valid one."""
    members = facts.batches.get(partition, (partition,))
    found = [facts.chosen.get((need.output, member), facts.newest.get(member)) for member in members]
    return [pin for pin in found if pin]


def _state(
    need: Need, pins: tuple[Pin, ...], attempts: tuple[Attempt, ...], facts: Facts
) -> tuple[State, str, datetime | None]:
    published = facts.published.get(need.output)
    if missing := _missing(need, pins, facts):
        return *missing, None
    changes = changed(pins, facts.consumed.get(need.output, ()), need.appendable)
    if published and not changes:
        waits = None if _takes(need, facts) else _waits(need, facts)
        current = State.CURRENT, f"update {published} was built from the newest inputs", None
        return (State.WAITS_FOR_PROPAGATION, waits, None) if waits else current
    if blocked := _blocked(need, pins, attempts, facts):
        return *blocked, None
    if published and (short := _pruned_below(changes, facts)):
        return State.WAITS_FOR_A_PERSON, short, None
    if published is None:
        return State.BUILD, "it has no valid update, and every input is there", None
    if not facts.consumed.get(need.output):
        return State.REBUILD, f"it is not known what update {published} was built from", None
    weighed = weigh(changes, need.late, facts.now, facts.late_since.get(need.output))
    state = State.REBUILD if weighed.rerun else State.WAITS_FOR_LATE_DATA
    return state, weighed.reason, weighed.look_again


def _missing(need: Need, pins: tuple[Pin, ...], facts: Facts) -> tuple[State, str] | None:
    """Whether there is something to read of every input; what is on its way through a pipeline has not come yet.

    Event tables are waited for as `wait_for` says: of one that never had an event nothing is read.
    """
    required = [each for each in need.inputs if each not in need.optional and each.feed not in need.tables]
    missing = [str(partition) for partition in required if not _pins(need, partition, facts)] + [*need.unknown]
    if not missing and pins:
        return None
    waits = _waits(need, facts)
    if waits and all(_is_on_its_way(need, partition, facts) for partition in required):
        return State.WAITS_FOR_PROPAGATION, waits
    published = facts.published.get(need.output)
    served = f"; {published}, which was built before, goes on being served" if published else ""
    return State.WAITS_FOR_INPUT, f"no valid update of {some(missing, NAMED) or 'any input'}{served}"


def _waits(need: Need, facts: Facts) -> str | None:
    due = facts.due.get(need.output)
    return due.waits if due else None


def _takes(need: Need, facts: Facts) -> bool:
    """Whether events are due: if they leave the output as it is, they are consumed without a run before it waits."""
    due = facts.due.get(need.output)
    return bool(due and due.slices)


def _is_on_its_way(need: Need, partition: Partition, facts: Facts) -> bool:
    """Whether something of an input's partition has come, complete or not."""
    members = facts.batches.get(partition, (partition,))
    return any((need.output, member) in facts.chosen or member in facts.newest for member in members)


def _pruned_below(changes: Iterable[Change], facts: Facts) -> str | None:
    """An input that fell back to an update from before what was pruned: a re-run would lose what the first run saw."""
    for change in changes:
        pruned, newest = facts.pruned.get(change.partition, ""), change.new.update_id if change.new else ""
        if pruned > newest:
            left = f"only the older {newest} is left" if newest else "none is left"
            return f"{change.partition} lost its newest updates, {pruned} before them was pruned, and {left}"
    return None


def _blocked(
    need: Need, pins: tuple[Pin, ...], attempts: tuple[Attempt, ...], facts: Facts
) -> tuple[State, str] | None:
    if need.output.feed in facts.paused:
        return State.WAITS_FOR_A_PERSON, facts.paused[need.output.feed]
    held = [
        f"{partition} ({facts.held[partition]})"
        for partition in need.inputs
        if partition in facts.held and partition.feed not in need.ignore_quality_of
    ]
    if held:
        return State.WAITS_FOR_QUALITY, f"the last audit failed of {some(held, NAMED)}"
    tried = [attempt for attempt in attempts if attempt.pins in (pins_digest(pins), None)]
    refused = [attempt.reason for attempt in tried if attempt.refused]
    if refused:
        return State.WAITS_FOR_QUALITY, f"its own audit failed on these inputs: {refused[-1]}"
    if len(tried) >= facts.max_attempts:
        last = tried[-1].reason
        return State.WAITS_FOR_A_PERSON, f"{len(tried)} runs failed on these inputs, the last with: {last}"
    return None
