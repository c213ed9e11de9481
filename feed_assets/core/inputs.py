"""What an output needs: one kind of input for each way of reading, which says what it pins and what it misses."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from feed_assets.core.choosing import Choice
from feed_assets.core.facts import Facts, KnownWindow, is_waived
from feed_assets.core.feeds import Partition
from feed_assets.core.positions import Pin
from feed_assets.core.spans import Span
from feed_assets.core.windows import WindowAddress
from feed_assets.core.words import some

NAMED = 3
"""Windows that a reason names; of the others it says how many there are."""


@dataclass(frozen=True)
class Beyond:
    """How far the data of an input have to go: `upto` (UTC), by the watermark of a sub-partition if it has windows."""

    upto: datetime
    sub_partition: str = ""
    grain: str | None = None


@dataclass(frozen=True)
class UpdateInput:
    """A partition of which one update is read: the newest valid one, or by events the one that is chosen."""

    partition: Partition
    is_required: bool = True
    """Whether it is waited for; else it is read if it has a valid update."""
    ignores_quality: bool = False
    beyond: Beyond | None = None
    checks: tuple[str, ...] = ()
    """The checks that alone are heeded, and have to be known; by default each that fails is."""
    made_checks: frozenset[str] = frozenset()
    """Those of them that the run makes which publishes it: they passed, unless somebody says something else."""
    keys: str = ""
    """Its keys besides the time: late data of what has the same ones are measured as one."""

    def members(self, facts: Facts) -> tuple[Partition, ...]:  # noqa: ARG002
        """The partitions whose updates are read."""
        return (self.partition,)

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:
        """What is read now."""
        found = [choice.pins.get(each, facts.newest.get(each)) for each in self.members(facts)]
        return tuple(pin for pin in found if pin)

    def missing(self, facts: Facts, choice: Choice) -> str | None:
        """What is waited for, if there is nothing to read."""
        return str(self.partition) if self.is_required and not self.pins(facts, choice) else None

    def behind(self, facts: Facts, choice: Choice) -> str | None:
        """What its data lack, if they are there."""
        reached = facts.reached.get(self.partition)
        if self.beyond is None or self.missing(facts, choice) or (reached and reached >= self.beyond.upto):
            return None
        known = f"go up to {reached:%Y-%m-%d %H:%M:%S} UTC" if reached else "do not say up to when they go"
        return f"the data of {self.partition} {known}, expected {self.beyond.upto:%Y-%m-%d %H:%M:%S} UTC or later"

    def has_come(self, facts: Facts, choice: Choice) -> bool:
        """Whether something of it is there, if only on its way through a pipeline."""
        return any(each in choice.pins or each in facts.newest for each in self.members(facts))

    @property
    def needed(self) -> tuple[Partition, ...]:
        """What is counted where so many are enough: itself, if it is waited for."""
        return (self.partition,) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """What of that is not there."""
        return self.needed if self.missing(facts, choice) or self.behind(facts, choice) else ()

    def problem(self, facts: Facts) -> str | None:
        """Why its quality keeps it from being read."""
        if self.ignores_quality:
            return None
        if self.checks:
            return of_checks(facts, self.partition, self.checks, self.made_checks)
        problem = facts.failed.get(self.partition)
        return problem if problem and not is_waived(problem, facts.waived.get(self.partition)) else None


@dataclass(frozen=True)
class SetInput(UpdateInput):
    """A partition of an appendable feed: the newest valid update of each of its batches is read."""

    def members(self, facts: Facts) -> tuple[Partition, ...]:
        """The batches, valid or not."""
        return facts.batches.get(self.partition, ())


@dataclass(frozen=True)
class TableInput(UpdateInput):
    """A partition of an event table, of which the slice that is due is read: nothing, if it never had an event."""

    is_required: bool = False


@dataclass(frozen=True)
class AbsentInput:
    """A partition that is needed and does not exist (yet)."""

    partition: Partition
    is_required: bool = True

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Nothing."""
        return ()

    def missing(self, facts: Facts, choice: Choice) -> str:  # noqa: ARG002
        """Its name."""
        return str(self.partition)

    def behind(self, facts: Facts, choice: Choice) -> None:
        """Nothing more than that."""

    def has_come(self, facts: Facts, choice: Choice) -> bool:  # noqa: ARG002
        """Never."""
        return False

    @property
    def needed(self) -> tuple[Partition, ...]:
        """Itself."""
        return (self.partition,)

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:  # noqa: ARG002
        """Itself."""
        return (self.partition,)

    def problem(self, facts: Facts) -> None:
        """Nothing: it is waited for."""


@dataclass(frozen=True)
class WindowInput:
    """Windows of an input that have to be complete, all of them: of a state table the rows are read, of a feed also.

    `counted` are the partitions of a feed whose newest updates have to be counted in them. `counts_itself`: the runs
    of the dataset count the feed, so that it waits for windows only once somebody else reports them. `counters`: the
    outputs of another dataset whose runs do. What nobody has counted is not waited for if none of these is due.
    `is_partial`: so many of the windows are enough, and each that is complete is read. `checks`: as of an update, but
    that those of a feed, which its partitions have, need not be known of windows, too.
    """

    span: Span
    is_required: bool = True
    ignores_quality: bool = False
    counted: tuple[Partition, ...] = ()
    counts_itself: bool = False
    counters: tuple[Partition, ...] = ()
    is_partial: bool = False
    checks: tuple[str, ...] = ()

    @cached_property
    def windows(self) -> tuple[Partition, ...]:
        """The windows as partitions of the log."""
        span = self.span
        return tuple(
            WindowAddress(span.dataset, span.sub_partition, each.grain, each.key).partition for each in span.windows
        )

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Every window of a table, if all of them are complete; none of a feed, whose updates are what is read.

        There a window that opens and is complete again, as a source tells another count, changes no row.
        """
        if self.counted:
            return ()
        pins = [pin for each in self.windows if (pin := _known(facts, each).pin(each))]
        return tuple(pins) if self.is_partial or len(pins) == len(self.windows) else ()

    def missing(self, facts: Facts, choice: Choice) -> None:
        """Nothing: what it lacks is said in its own words."""

    def behind(self, facts: Facts, choice: Choice) -> str | None:  # noqa: ARG002
        """The windows that are not complete, and why."""
        if not self.is_required or self._is_skipped(facts):
            return None
        if uncounted := [str(each) for each in self.counted if each in facts.uncounted]:
            return f"the newest update of {some(uncounted, NAMED)} is not counted yet"
        lacking = [
            each
            for each in zip(self.span.windows, self.windows, strict=True)
            if not _known(facts, each[1]).pin(each[1])
        ]
        named = [f"{each.grain} {each.key} of {self._whose} {_known(facts, at).said}" for each, at in lacking[:NAMED]]
        more = f"; and {len(lacking) - NAMED} more of {len(self.windows)} windows" if len(lacking) > NAMED else ""
        return "; ".join(named) + more if named else None

    @property
    def needed(self) -> tuple[Partition, ...]:
        """What is counted where so many are enough: of a table the windows, of a feed the partitions."""
        return (self.counted or self.windows) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """What of that is not complete."""
        if not self.behind(facts, choice):
            return ()
        return self.counted or tuple(each for each in self.windows if not _known(facts, each).pin(each))

    def problem(self, facts: Facts) -> str | None:
        """What is wrong with windows that are read."""
        if self.ignores_quality:
            return None
        there = [
            (each, at) for each, at in zip(self.span.windows, self.windows, strict=True) if self._is_read(facts, at)
        ]
        said = "of {}:" if self.checks else "of {}"
        named = [
            f"{each.grain} {each.key} {said.format(self._whose)} {why}"
            for each, at in there
            if (why := self._wrong(facts, at))
        ]
        return "; ".join(named[:NAMED]) or None

    def _is_read(self, facts: Facts, window: Partition) -> bool:
        return not self.is_partial or _known(facts, window).pin(window) is not None

    def _wrong(self, facts: Facts, window: Partition) -> str | None:
        known = _known(facts, window)
        if self.checks:
            return of_checks(facts, window, self.checks, frozenset(self.checks if self.counted else ()))
        return known.said if known.is_bad and not is_waived(known.why, facts.waived.get(window)) else None

    def has_come(self, facts: Facts, choice: Choice) -> bool:  # noqa: ARG002
        """Whether all of them are complete."""
        return all(_known(facts, each).pin(each) for each in self.windows)

    def _is_skipped(self, facts: Facts) -> bool:
        if self.span.dataset in facts.reporting:
            return False
        is_left = self.counters and facts.counting.isdisjoint(self.counters)
        return self.counts_itself or bool(is_left and self._counted_by_nobody(facts))

    def _counted_by_nobody(self, facts: Facts) -> list[Partition]:
        return [each for each in self.counted if each in facts.counted_by_nobody]

    def caveat(self, facts: Facts) -> str | None:
        """What is read before its windows are known, if something is."""
        if not self._is_skipped(facts) or not (mine := self._counted_by_nobody(facts)):
            return None
        return (
            f"the newest update of {some([*map(str, mine)], NAMED)} is not counted yet, the run that reads it does so"
        )

    @property
    def _whose(self) -> str:
        return f"{self.span.dataset}{f' {self.span.sub_partition}' if self.span.sub_partition else ''}"


def of_checks(
    facts: Facts, partition: Partition, checks: tuple[str, ...], made: frozenset[str] = frozenset()
) -> str | None:
    """What keeps a partition from being read by whoever heeds some checks alone: no result is not a pass.

    A waiver holds for all that had failed when it was given: it ends when a check fails anew.
    """
    found = [(name, facts.checks.get((partition, name), "" if name in made else None)) for name in checks]
    unknown = [name for name, why in found if why is None]
    said = [f"nobody has said yet what check {some(unknown, NAMED)} finds"] if unknown else []
    failed = [f"check {name}: {why}" for name, why in found if why and partition not in facts.waived]
    return "; ".join([*said, *failed]) or None


_NOTHING = KnownWindow()


def _known(facts: Facts, window: Partition) -> KnownWindow:
    return facts.windows.get(window, _NOTHING)


Input = UpdateInput | SetInput | TableInput | AbsentInput | WindowInput
