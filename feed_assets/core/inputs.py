"""Inputs that an output needs. Each class is one way of reading. It returns the pins to read, and the missing data."""

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
"""Maximum number of windows that a reason names. For further windows the reason gives only their number."""


@dataclass(frozen=True)
class Beyond:
    """The time that an input's data must reach: `upto` (UTC).

    If the input has windows, its watermark (the end of the complete windows) must reach this time. `grain` is the
    length of these windows.
    """

    upto: datetime
    sub_partition: str = ""
    grain: str | None = None


@dataclass(frozen=True)
class UpdateInput:
    """A partition with one update to read: the newest valid update, or the update that events select."""

    partition: Partition
    is_required: bool = True
    """True if the output waits for the partition. If False, the partition is read only if it has a valid update."""
    ignores_quality: bool = False
    beyond: Beyond | None = None
    checks: tuple[str, ...] = ()
    """The only checks that count. Each must have a result. If empty, every failed check counts."""
    made_checks: frozenset[str] = frozenset()
    """The members of `checks` that the publishing run performs. They count as passed unless a result is reported."""
    keys: str = ""
    """The keys of the partition without its time. Late data of partitions with the same keys are measured together."""

    def members(self, facts: Facts) -> tuple[Partition, ...]:  # noqa: ARG002
        """Return the partitions whose updates a run reads: this partition alone."""
        return (self.partition,)

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:
        """Return the pins (one per update) that the next run reads of this input."""
        candidates = [choice.pins.get(each, facts.newest.get(each)) for each in self.members(facts)]
        return tuple(pin for pin in candidates if pin)

    def missing(self, facts: Facts, choice: Choice) -> str | None:
        """Return the name of the input if it has no update to read, otherwise None."""
        return str(self.partition) if self.is_required and not self.pins(facts, choice) else None

    def behind(self, facts: Facts, choice: Choice) -> str | None:
        """Return why the existing data are not enough. Return None if they are enough."""
        reached = facts.reached.get(self.partition)
        if self.beyond is None or self.missing(facts, choice) or (reached and reached >= self.beyond.upto):
            return None
        reached_text = f"reach {reached:%Y-%m-%d %H:%M:%S} UTC" if reached else "do not show which time they reach"
        return (
            f"the data of {self.partition} {reached_text}, expected {self.beyond.upto:%Y-%m-%d %H:%M:%S} UTC or later"
        )

    def has_come(self, facts: Facts, choice: Choice) -> bool:
        """Return whether any update of the input has arrived, even one of an incomplete propagation."""
        return any(each in choice.pins or each in facts.newest for each in self.members(facts))

    @property
    def needed(self) -> tuple[Partition, ...]:
        """Return the partitions that count for `at_least`: this partition if it is required, otherwise none."""
        return (self.partition,) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """Return the partitions of this input that are missing and needed."""
        return self.needed if self.missing(facts, choice) or self.behind(facts, choice) else ()

    def problem(self, facts: Facts) -> str | None:
        """Return why the quality of the input blocks its readers. Return None if it does not block them."""
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
        """Return all batches of the partition, including those without a valid update."""
        return facts.batches.get(self.partition, ())


@dataclass(frozen=True)
class TableInput(UpdateInput):
    """A partition of an event table. A run reads its due slice, or nothing if the partition has had no event."""

    is_required: bool = False


@dataclass(frozen=True)
class AbsentInput:
    """A needed partition that does not exist (yet)."""

    partition: Partition
    is_required: bool = True

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Return no pins: the partition does not exist, so nothing can be read."""
        return ()

    def missing(self, facts: Facts, choice: Choice) -> str:  # noqa: ARG002
        """Return the name of the partition."""
        return str(self.partition)

    def behind(self, facts: Facts, choice: Choice) -> None:
        """Return None, because `missing` already names the partition."""

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
        """Return None, because a missing partition has no quality."""


@dataclass(frozen=True)
class WindowInput:
    """An input whose windows must be complete before a run. It is a state table, whose rows are read, or a feed.

    Attributes:
        counted: The partitions of a feed whose newest updates must be counted in the windows.
        counts_itself: True if the runs of this dataset count the records of the feed. Then the output does not wait for
            the windows, unless the feed's producer reports counts, too.
        counters: The outputs of another dataset whose runs count the feed. If none of these outputs is due, this
            output does not wait for uncounted updates.
        is_partial: True if some of the windows are enough. Then each complete window is read.
        checks: As for `UpdateInput`. In windows of a feed a check needs no result, because the feed's partitions have
            the results.
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
        """Return the input's windows, each in the form of a partition, as the log names them."""
        span = self.span
        return tuple(
            WindowAddress(span.dataset, span.sub_partition, each.grain, each.key).partition for each in span.windows
        )

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Return the pins of a state table's windows if all are complete. If `is_partial`, pin the complete windows.

        Return no pins for a feed, because its updates are pinned instead. The windows of a feed may open and complete
        again without a changed row.
        """
        if self.counted:
            return ()
        pins = [pin for each in self.windows if (pin := _recorded(facts, each).pin(each))]
        return tuple(pins) if self.is_partial or len(pins) == len(self.windows) else ()

    def missing(self, facts: Facts, choice: Choice) -> None:
        """Return None, because `behind` describes what is missing."""

    def behind(self, facts: Facts, choice: Choice) -> str | None:  # noqa: ARG002
        """Describe the windows of the input that are not complete. Return None if all are complete."""
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
        """Return what counts for `at_least`: the windows of a table, or the partitions of a feed."""
        return (self.counted or self.windows) if self.is_required else ()

    def lacking(self, facts: Facts, choice: Choice) -> tuple[Partition, ...]:
        """Return the members of `needed` that are incomplete."""
        if not self.behind(facts, choice):
            return ()
        return self.counted or tuple(each for each in self.windows if not _recorded(facts, each).pin(each))

    def problem(self, facts: Facts) -> str | None:
        """Describe the problems of the windows that a run reads. Return None if these windows have no problems."""
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
        """Return whether all windows that the output needs are complete."""
        return all(_recorded(facts, each).pin(each) for each in self.windows)

    def _is_skipped(self, facts: Facts) -> bool:
        if self.span.dataset in facts.reporting:
            return False
        is_left = self.counters and facts.counting.isdisjoint(self.counters)
        return self.counts_itself or bool(is_left and self._counted_by_nobody(facts))

    def _counted_by_nobody(self, facts: Facts) -> list[Partition]:
        return [each for each in self.counted if each in facts.counted_by_nobody]

    def caveat(self, facts: Facts) -> str | None:
        """Return a note if updates are read before they are counted in windows, otherwise None."""
        if not self._is_skipped(facts) or not (uncounted := self._counted_by_nobody(facts)):
            return None
        names = shortened([*map(str, uncounted)], NAMED)
        return f"the newest update of {names} is not counted yet: the run that reads it counts it"

    @property
    def _whose(self) -> str:
        return f"{self.span.dataset}{f' {self.span.sub_partition}' if self.span.sub_partition else ''}"


def of_checks(
    facts: Facts, partition: Partition, checks: tuple[str, ...], performed: frozenset[str] = frozenset()
) -> str | None:
    """Return why these checks block a partition, otherwise None.

    A check without a result blocks, too, unless it is in `performed`. A waiver covers all checks that had failed when
    it was given. The waiver ends when a check fails again.
    """
    results = [(name, facts.checks.get((partition, name), "" if name in performed else None)) for name in checks]
    unknown = [name for name, why in results if why is None]
    pending = [f"check {shortened(unknown, NAMED)} has no result yet"] if unknown else []
    failed = [f"check {name}: {why}" for name, why in results if why and partition not in facts.waived]
    return "; ".join([*pending, *failed]) or None


_NOTHING = KnownWindow()


def _recorded(facts: Facts, window: Partition) -> KnownWindow:
    return facts.windows.get(window, _NOTHING)


Input = UpdateInput | SetInput | TableInput | AbsentInput | WindowInput
