"""Decisions about partitions: whether to build a partition now, or what it waits for."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.facts import Facts
from feed_assets.core.feeds import Partition
from feed_assets.core.gates import GATES, NAMED, Answer, Case, State, is_reprocessed
from feed_assets.core.late_weighing import Arrivals, Outcome, Weighed, weigh
from feed_assets.core.message_words import shortened
from feed_assets.core.needs import Need
from feed_assets.core.pins import Pin, pins_digest
from feed_assets.core.propagation import Due
from feed_assets.core.windows import address_of

WAITING = frozenset(State) - {State.BUILD, State.REBUILD, State.CURRENT, State.CLOSED}
"""States of partitions that wait: they are on the due list, but start no run. Skipped late data are included."""


@dataclass(frozen=True)
class Verdict:
    """The decision about one output: state, reason and input pins.

    At `look_again` (UTC) the decision may change without any new event.
    """

    output: Partition
    state: State
    reason: str
    pins: tuple[Pin, ...] = ()
    published: str | None = None
    attempt: int = 0
    look_again: datetime | None = None
    due: Due | None = None
    """The events that its run consumes, for an output that is built by events."""
    weighed: Weighed | None = None
    """The decision about late data, if no gate stopped the output."""
    is_good_again: bool = False
    """True if the output is current although its last audit failed. That audit was of a build from other inputs, so it
    no longer blocks consumers."""
    reloads: bool = False
    """True if the output is made of increments, but has no valid update to add one to."""

    @property
    def bytes(self) -> int:
        """Return the bytes that a run would read. A slice of an event table counts 0, because its size is unknown."""
        return sum(pin.size for pin in self.pins)


def decide(needs: Iterable[Need], facts: Facts) -> tuple[Verdict, ...]:
    """Return one verdict for each need, in the order of the needs."""
    return tuple(_decide(Case(need, facts)) for need in needs)


def _decide(case: Case) -> Verdict:
    output, built = case.need.output, case.built
    stopped = next((answer for gate in GATES if (answer := gate(case))), None)
    state, reason, look_again, weighed = stopped or _go(case)
    is_refused = [attempt.pins == pins_digest(case.pins) for attempt in built.attempts if attempt.refused]
    is_good_again = state is State.CURRENT and output in case.facts.failed and bool(is_refused) and not any(is_refused)
    return Verdict(
        output,
        state,
        reason,
        pins=case.pins,
        published=built.published,
        attempt=len(built.attempts),
        look_again=look_again,
        due=case.choice.due if case.choice.due != Due() else None,
        weighed=weighed,
        is_good_again=is_good_again,
        reloads=case.need.adds and bool(built.lost or not built.published),
    )


def _go(case: Case) -> Answer:
    """Decide about a partition that no gate stopped: build it, or build it again if its late data are worth it."""
    built = case.built
    if built.published is None:
        caveats = [caveat for each in case.need.windows if (caveat := each.caveat(case.facts))]
        return Answer(State.BUILD, "; ".join([f"it has no valid update, and {_inputs_in_words(case)}", *caveats]))
    if built.lost:
        return Answer(State.REBUILD, f"nothing can be added to {built.published}: {built.lost}; all is loaded again")
    if case.is_told_again and not case.changes:
        return Answer(
            State.REBUILD,
            f"events since {built.published} report changes of data that were read before: these data are read again",
        )
    if not built.consumed:
        return Answer(State.REBUILD, f"it is not known what update {built.published} was built from")
    if is_reprocessed(case):
        back = shortened([*map(str, sorted(case.backfilled))], NAMED)
        return Answer(
            State.REBUILD, f"{back} was backfilled since {built.published}: such inputs are always read again"
        )
    weighed = weigh(_arrivals(case), case.need.periods, case.facts.now)
    return Answer(_LATE[weighed.outcome], weighed.reason, weighed.look_again, weighed)


_LATE = {
    Outcome.RERUN: State.REBUILD,
    Outcome.WAIT: State.WAITS_FOR_LATE_DATA,
    Outcome.SKIP: State.SKIPS_LATE_DATA,
}


def _arrivals(case: Case) -> tuple[Arrivals, ...]:
    """Return, for each input feed, the changes since the last build and the costs of a re-run."""
    need, per_byte = case.need, case.facts.costs.get(case.need.output.feed)
    read = sum(pin.size for pin in case.pins if not address_of(pin.partition))
    return tuple(
        Arrivals(
            need.policy_of(feed),
            [each for each in case.changes if each.partition.feed == feed],
            [each for each in case.counted if each.partition.feed == feed],
            case.built.late_since,
            None if per_byte is None else read * per_byte,
        )
        for feed in dict.fromkeys(each.partition.feed for each in case.changes)
    )


def _inputs_in_words(case: Case) -> str:
    if not case.without:
        return "every input is there"
    return f"{case.need.waits.phrase} are enough: without {shortened([*map(str, sorted(case.without))], NAMED)}"
