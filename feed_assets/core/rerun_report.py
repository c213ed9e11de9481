"""Effects of a re-run: its inputs and its output before and after, in numbers.

Source: "Once the processing DAG finishes running, the monitoring DAG compares the outputs and notifies several teams of
the results via email" (Integral Ad Science, 2021).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from feed_assets.core.charts import Bar, bars
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.markdown import as_text, table
from feed_assets.core.pins import Pin, changed

BEFORE, AFTER = "#b9b6d3", "#4f43dd"
"""Colours of the chart's bars."""

NUMBERS = frozenset({"records", "bytes", "files"})
"""Names of the numbers that every update has. A key figure cannot have one of these names."""


@dataclass(frozen=True)
class UpdateFigures:
    """The numbers of an update. `figures` are its key figures by name, without NULLs."""

    id: str
    bytes: int
    files: int
    records: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def numbers(self) -> dict[str, float | None]:
        """Return all numbers of the update by name: its key figures first, then records, bytes and files."""
        return {**self.figures, "records": self.records, "bytes": self.bytes, "files": self.files}


@dataclass(frozen=True)
class BeforeAfter:
    """A number of a partition before and after a re-run. None means unknown."""

    label: str
    before: float | None
    after: float | None

    @property
    def change(self) -> str:
        """Describe the relative change, such as `+1.5%`."""
        if self.before is None or self.after is None:
            return "?"
        if self.before == self.after:
            return "="
        return f"{(self.after - self.before) / abs(self.before):+.1%}" if self.before else "new"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Return the texts of a table row: label, number before, number after and change."""
        return self.label, number(self.before), number(self.after), self.change


@dataclass(frozen=True)
class InputComparison:
    """The data that the earlier build and the re-run read from an input, and how many of its partitions changed."""

    feed: Feed
    before: tuple[Pin, ...]
    after: tuple[Pin, ...]
    changed: int

    @property
    def rows(self) -> tuple[BeforeAfter, ...]:
        """Return the compared numbers of an input: its bytes and files.

        For windows, return only the records. For an event table, return ().
        """
        sizes = sum(pin.size for pin in self.before), sum(pin.size for pin in self.after)
        files = sum(pin.files for pin in self.before), sum(pin.files for pin in self.after)
        if not any(files):
            return () if not any(sizes) else (BeforeAfter(f"{self.feed}: records", *sizes),)
        return BeforeAfter(f"{self.feed}: bytes", *sizes), BeforeAfter(f"{self.feed}: files", *files)


@dataclass(frozen=True)
class Effect:
    """A partition's update, the update that it replaced, and the inputs with changed data."""

    partition: Partition
    before: UpdateFigures
    after: UpdateFigures
    inputs: tuple[InputComparison, ...]

    @property
    def rows(self) -> tuple[BeforeAfter, ...]:
        """Return the compared numbers: those of changed inputs, then those of the output."""
        return (*(row for each in self.inputs for row in each.rows), *self.written)

    @property
    def written(self) -> tuple[BeforeAfter, ...]:
        """Return the numbers of the output before and after the re-run.

        Numbers that only the earlier update has are last.
        """
        before, after = self.before.numbers, self.after.numbers
        return tuple(BeforeAfter(name, before.get(name), after.get(name)) for name in {**after, **before})

    def __str__(self) -> str:
        """Return the effect as one line, for a log or a mail."""
        changes = [f"{row.label} {number(row.before)} to {number(row.after)} ({row.change})" for row in self.rows]
        return f"{self.partition}: update {self.after.id} replaces {self.before.id}: {'; '.join(changes)}"


def reads(consumed: Iterable[Pin], before: Iterable[Pin]) -> tuple[InputComparison, ...]:
    """Return the inputs whose data differ between two builds, in the order of their names.

    `consumed` are the pins of the re-run, and `before` those of the build whose update it replaced.
    """
    new, old = _by_feed(consumed), _by_feed(before)
    both = {feed: (old.get(feed, ()), new.get(feed, ())) for feed in sorted(new.keys() | old.keys())}
    comparisons = (InputComparison(feed, was, now, len(changed(now, was))) for feed, (was, now) in both.items())
    return tuple(each for each in comparisons if each.changed)


def _by_feed(pins: Iterable[Pin]) -> dict[Feed, tuple[Pin, ...]]:
    pins_by_feed: dict[Feed, list[Pin]] = {}
    for pin in pins:
        pins_by_feed.setdefault(pin.partition.feed, []).append(pin)
    return {feed: tuple(mine) for feed, mine in pins_by_feed.items()}


def as_markdown(effect: Effect) -> str:
    """Return an effect as a table, with a chart of the output's numbers before and after."""
    rows = ([*map(as_text, row.cells)] for row in effect.rows)
    return f"{table(['', 'before', 'after', 'change'], rows, '---:')}\n\n{_chart(effect)}"


def number(value: float | None) -> str:
    """Return a number as text: a whole number in full, any other number with six significant digits, `?` for None."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.6g}"


def _chart(effect: Effect) -> str:
    """Return a chart of the output's numbers. Each number has two bars, and the longer bar fills the width."""
    return bars("before and after", [bar for row in effect.written for bar in _bars(row)])


def _bars(row: BeforeAfter) -> list[Bar]:
    before, after = abs(row.before or 0), abs(row.after or 0)
    most = max(before, after) or 1
    return [
        Bar(f"{row.label}, before", before / most, number(row.before), BEFORE),
        Bar(f"{row.label}, after", after / most, number(row.after), AFTER),
    ]
