"""The seam between a build and the engine that makes its rows.

A build pins, claims and publishes; a maker transforms, writes, reads back and checks. The product's is Spark's
(`spark_maker`); `feed_assets.testing` has one without an engine.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.plans import RunSpec
from feed_assets.core.profiles import Measures
from feed_assets.core.slices import Slice, SliceReader
from feed_assets.core.spans import Span
from feed_assets.core.write_result import Counts, Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.recipe import Recipe


@dataclass(frozen=True)
class Task:
    """The work of a maker: one partition by its recipe, from exactly these inputs.

    `updates` are, by input, the pinned updates of a feed; `slices` are, by input, those of an event table, and `spans`
    the time that is read of a state table: None if that is optional and not complete.
    """

    recipe: Recipe
    output: Partition
    updates: Mapping[str, Sequence[Update]]
    slices: Mapping[str, Sequence[Slice]]
    run_spec: RunSpec
    uncounted: Mapping[str, Sequence[Update]] = field(default_factory=dict[str, Sequence[Update]])
    """The pinned updates, by input, whose records this run counts."""
    spans: Mapping[str, Span | None] = field(default_factory=dict[str, Span | None])
    baseline: Sequence[Measures] = ()
    """The measures of the partitions that the profile of this one is compared with."""
    is_suspect: bool = False
    """True if a deep check did not pass the last time: then they run again, whatever the profile shows."""
    boards: Mapping[str, Blackboard] = field(default_factory=dict[str, Blackboard])
    """The blackboard of others that an input is on, by input; without one it is on ours."""
    previous: Update | None = None
    """The dataset's own update that an increment is added to."""

    def with_reader(self, reader: SliceReader | None) -> "Task":
        """Return the task with slices that read their rows by a reader."""
        slices = {name: [replace(each, reader=reader) for each in found] for name, found in self.slices.items()}
        of_run = {partition: replace(each, reader=reader) for partition, each in self.run_spec.slices.items()}
        return replace(self, slices=slices, run_spec=replace(self.run_spec, slices=of_run))


@dataclass(frozen=True)
class Output:
    """One update that a run wrote, and its contents."""

    partition: Partition
    id: str
    written: Written

    @property
    def update(self) -> Update:
        """Return the update with the exact files that were written."""
        return Update(self.partition, self.id, self.written.files)


@dataclass(frozen=True)
class Audit:
    """Findings in a dataset's written rows: its checks, the first rows and the recipe's chart as Markdown.

    `measures` are those of its profile, if it has one; `figures` are its key figures, without those that are NULL.
    """

    checks: tuple[CheckResult, ...]
    preview: str
    chart: str | None
    measures: Measures | None = None
    figures: Measures = field(default_factory=dict[str, float])

    @property
    def passed(self) -> bool:
        """Return whether no check keeps the data from being published."""
        return not any(result.blocks for result in self.checks)


class MadeRows(Protocol):
    """The rows of a task, for as long as its context is open."""

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write one output's parts under its claimed update, which holds nothing yet; the manifest is the caller's.

        The dataset is written before its rejects.
        """
        ...

    def counted(self) -> Sequence[tuple[Update, Counts]]:
        """Return the records of the task's uncounted updates by window, also those with a time that do not parse."""
        ...

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Read back what is on the blackboard now, not what was meant to be written, and run the checks on it."""
        ...


class Maker(Protocol):
    """An engine that makes rows, writes them, and reads them back."""

    def make(self, task: Task, board: Blackboard) -> AbstractContextManager[MadeRows]:
        """Read the inputs and run the recipe's function."""
        ...

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Return the number of rows of an update that this maker wrote, and their data version."""
        ...
