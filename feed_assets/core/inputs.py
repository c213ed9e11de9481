"""Inputs that an output needs: one kind for each way of reading, with what it pins and what it misses."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from feed_assets.core.facts import Facts, KnownWindow, is_waived
from feed_assets.core.feeds import Partition
from feed_assets.core.message_words import shortened
from feed_assets.core.pins import Pin
from feed_assets.core.spans import Span
from feed_assets.core.update_choice import Choice
from feed_assets.core.windows import WindowAddress

NAMED = 3
"""Windows that a reason names; the others are only counted."""


@dataclass(frozen=True)
class Beyond:
    """The time that an input's data must reach: `upto` (UTC), by the watermark of a sub-partition if it has windows."""

    upto: datetime
    sub_partition: str = ""
    grain: str | None = None


@dataclass(frozen=True)
class UpdateInput:
    """A partition of which one update is read: the newest valid one, or by events the one that is chosen."""

    partition: Partition
    is_required: bool = True
    """True if it is waited for; else it is read if it has a valid update."""
    ignores_quality: bool = False
    beyond: Beyond | None = None
    checks: tuple[str, ...] = ()
    """The only checks that count, and have to be known; by default each that fails counts."""
    made_checks: frozenset[str] = frozenset()
    """The checks among them that the publishing run makes: they passed, unless another result is reported."""
    keys: str = ""
    """Its keys besides the time: late data of partitions with the same ones are measured as one."""

    def members(self, facts: Facts) -> tuple[Partition, ...]:  # noqa: ARG002
        """Return the partitions whose updates are read."""
        return (self.partition,)

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:
        """Return what is read now."""
        candidates = [choice.pins.get(each, facts.newest.get(each)) for each in self.members(facts)]
        return tuple(pin for pin in candidates if pin)

    def missing(self, facts: Facts, choice: Choice) -> str | None:
        """Return what is waited for, if there is nothing to read."""
        return str(self.partition) if self.is_required and not self.pins(facts, choice) else None

    def behind(self, facts: Facts, choice: Choice) -> str | None:
        """Return what its data lack, if they are there."""
        reached = facts.reached.get(self.partition)
        if self.beyond is None or self.missing(facts, choice) or (reached and reached >= self.beyond.upto):
            return None
        reached_text = f"go up to {reached:%Y-%m-%d %H:%M:%S} UTC" if reached else "do not say up to when they go"
        return (
            f"the data of {self.partition} {reached_text}, expected {self.beyond.upto:%Y-%m-%d %H:%M:%S} UTC or later"
        )

    def has_come(self, facts: Facts, choice: Choice) -> bool:
        """Return whether something of it is there, if only on its way through a pipeline."""
        return any(each in choice.pins or each in facts.newest for each in self.members(facts))

    @property
    def needed(self) -> tuple[Partition, ...]:
        """Return what is counted for `at_least`: the partition itself, if it is waited for."""
        return (self.partition,) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """Return which of `needed` are not there."""
        return self.needed if self.missing(facts, choice) or self.behind(facts, choice) else ()

    def problem(self, facts: Facts) -> str | None:
        """Return why its quality keeps it from being read."""
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
        """Return the batches, valid or not."""
        return facts.batches.get(self.partition, ())


@dataclass(frozen=True)
class TableInput(UpdateInput):
    """A partition of an event table whose due slice is read: nothing, if it never had an event."""

    is_required: bool = False


@dataclass(frozen=True)
class AbsentInput:
    """A partition that is needed and does not exist (yet)."""

    partition: Partition
    is_required: bool = True

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Return no pins."""
        return ()

    def missing(self, facts: Facts, choice: Choice) -> str:  # noqa: ARG002
        """Return its name."""
        return str(self.partition)

    def behind(self, facts: Facts, choice: Choice) -> None:
        """Return None: `missing` names it already."""

    def has_come(self, facts: Facts, choice: Choice) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    @property
    def needed(self) -> tuple[Partition, ...]:
        """Return the partition itself."""
        return (self.partition,)

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:  # noqa: ARG002
        """Return the partition itself."""
        return (self.partition,)

    def problem(self, facts: Facts) -> None:
        """Return None: it is waited for."""


@dataclass(frozen=True)
class WindowInput:
    """Windows of an input that all have to be complete: of a state table, whose rows are read, or of a feed.

    `counted` are the partitions of a feed whose newest updates have to be counted in them. `counts_itself`: the runs
    of the dataset count the feed, so that it waits for windows only once somebody else reports them. `counters`: the
    outputs of another dataset whose runs count it; if none of these is due, uncounted updates are not waited for.
    `is_partial`: a number of the windows is enough, and each complete one is read. `checks`: as for `UpdateInput`, but
    a feed's checks need not be known of windows, because its partitions have them.
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
        """Return the windows as partitions of the log."""
        span = self.span
        return tuple(
            WindowAddress(span.dataset, span.sub_partition, each.grain, each.key).partition for each in span.windows
        )

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Return a table's windows if all are complete, or those that are if partial; none of a feed: it has updates.

        A feed's window that opens and is complete again, because a source reports another count, changes no row.
        """
        if self.counted:
            return ()
        pins = [pin for each in self.windows if (pin := _recorded(facts, each).pin(each))]
        return tuple(pins) if self.is_partial or len(pins) == len(self.windows) else ()

    def missing(self, facts: Facts, choice: Choice) -> None:
        """Return None: `behind` describes what it lacks."""

    def behind(self, facts: Facts, choice: Choice) -> str | None:  # noqa: ARG002
        """Return the windows that are not complete, and why."""
        if not self.is_required or self._is_skipped(facts):
            return None
        if uncounted := [str(each) for each in self.counted if each in facts.uncounted]:
            return f"the newest update of {shortened(uncounted, NAMED)} is not counted yet"
        lacking = [
            each
            for each in zip(self.span.windows, self.windows, strict=True)
            if not _recorded(facts, each[1]).pin(each[1])
        ]
        named = [
            f"{each.grain} {each.key} of {self._whose} {_recorded(facts, at).phrase}" for each, at in lacking[:NAMED]
        ]
        suffix = f"; and {len(lacking) - NAMED} more of {len(self.windows)} windows" if len(lacking) > NAMED else ""
        return "; ".join(named) + suffix if named else None

    @property
    def needed(self) -> tuple[Partition, ...]:
        """Return what is counted for `at_least`: the windows of a table, the partitions of a feed."""
        return (self.counted or self.windows) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """Return which of `needed` are not complete."""
        if not self.behind(facts, choice):
            return ()
        return self.counted or tuple(each for each in self.windows if not _recorded(facts, each).pin(each))

    def problem(self, facts: Facts) -> str | None:
        """Return what is wrong with windows that are read."""
        if self.ignores_quality:
            return None
        read_windows = [
            (each, at) for each, at in zip(self.span.windows, self.windows, strict=True) if self._is_read(facts, at)
        ]
        template = "of {}:" if self.checks else "of {}"
        named = [
            f"{each.grain} {each.key} {template.format(self._whose)} {why}"
            for each, at in read_windows
            if (why := self._wrong(facts, at))
        ]
        return "; ".join(named[:NAMED]) or None

    def _is_read(self, facts: Facts, window: Partition) -> bool:
        return not self.is_partial or _recorded(facts, window).pin(window) is not None

    def _wrong(self, facts: Facts, window: Partition) -> str | None:
        recorded = _recorded(facts, window)
        if self.checks:
            return of_checks(facts, window, self.checks, frozenset(self.checks if self.counted else ()))
        return recorded.phrase if recorded.is_bad and not is_waived(recorded.why, facts.waived.get(window)) else None

    def has_come(self, facts: Facts, choice: Choice) -> bool:  # noqa: ARG002
        """Return whether all of them are complete."""
        return all(_recorded(facts, each).pin(each) for each in self.windows)

    def _is_skipped(self, facts: Facts) -> bool:
        if self.span.dataset in facts.reporting:
            return False
        is_left = self.counters and facts.counting.isdisjoint(self.counters)
        return self.counts_itself or bool(is_left and self._counted_by_nobody(facts))

    def _counted_by_nobody(self, facts: Facts) -> list[Partition]:
        return [each for each in self.counted if each in facts.counted_by_nobody]

    def caveat(self, facts: Facts) -> str | None:
        """Return what is read before its windows are known, if something is."""
        if not self._is_skipped(facts) or not (uncounted := self._counted_by_nobody(facts)):
            return None
        names = shortened([*map(str, uncounted)], NAMED)
        return f"the newest update of {names} is not counted yet, the run that reads it does so"

    @property
    def _whose(self) -> str:
        return f"{self.span.dataset}{f' {self.span.sub_partition}' if self.span.sub_partition else ''}"


def of_checks(
    facts: Facts, partition: Partition, checks: tuple[str, ...], performed: frozenset[str] = frozenset()
) -> str | None:
    """Return why readers that heed only these checks cannot read a partition: a missing result is no pass.

    A waiver holds for all checks that had failed when it was given: it ends when a check fails anew.
    """
    results = [(name, facts.checks.get((partition, name), "" if name in performed else None)) for name in checks]
    unknown = [name for name, why in results if why is None]
    pending = [f"nobody has said yet what check {shortened(unknown, NAMED)} finds"] if unknown else []
    failed = [f"check {name}: {why}" for name, why in results if why and partition not in facts.waived]
    return "; ".join([*pending, *failed]) or None


_NOTHING = KnownWindow()


def _recorded(facts: Facts, window: Partition) -> KnownWindow:
    return facts.windows.get(window, _NOTHING)


Input = UpdateInput | SetInput | TableInput | AbsentInput | WindowInput
