"""The interface between a build and the engine that makes its rows.

A build pins, claims and publishes. A maker transforms, writes, reads back and checks. Production uses Spark
(`spark_maker`); `feed_assets.testing` has a maker without an engine.
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
    """The work of a maker: build one partition by its recipe, from exactly these inputs.

    The keys of each mapping are names of inputs. `updates` has the pinned updates of a feed. `slices` has the slices of
    an event table. `spans` has the span of time to read of a state table, or None if the input is optional and not
    complete.
    """

    recipe: Recipe
    output: Partition
    updates: Mapping[str, Sequence[Update]]
    slices: Mapping[str, Sequence[Slice]]
    run_spec: RunSpec
    uncounted: Mapping[str, Sequence[Update]] = field(default_factory=dict[str, Sequence[Update]])
    """The pinned updates whose records this run counts, by input."""
    spans: Mapping[str, Span | None] = field(default_factory=dict[str, Span | None])
    baseline: Sequence[Measures] = ()
    """The profiles of other partitions, with which the profile of this partition is compared."""
    is_suspect: bool = False
    """True if a deep check failed the last time. Then all deep checks run again, whatever the profile shows."""
    boards: Mapping[str, Blackboard] = field(default_factory=dict[str, Blackboard])
    """The blackboards of the inputs, by input. An input that is left out is on the blackboard of the output."""
    previous: Update | None = None
    """The dataset's own update to which an increment is added."""
    claims: Sequence[tuple[Partition, str]] = ()
    """The claimed update of each output, the dataset last. A remote maker writes all of them before it answers."""

    place: str | None = None
    """The data center whose blackboard has the copies of the inputs. None means that they are read from our own."""

    def with_reader(self, reader: SliceReader | None) -> "Task":
        """Return a copy of the task whose slices (ranges of a table's rows) read their rows through `reader`."""
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
    """Results for a dataset's written rows: its checks, the first rows and the recipe's chart as Markdown.

    `measures` has the values of its profile, if it has one. `figures` has its key figures, without those that are NULL.
    """

    checks: tuple[CheckResult, ...]
    preview: str
    chart: str | None
    measures: Measures | None = None
    figures: Measures = field(default_factory=dict[str, float])

    @property
    def passed(self) -> bool:
        """Return whether the data may be published: no blocking check failed."""
        return not any(result.blocks for result in self.checks)


class MadeRows(Protocol):
    """The rows of a task, available while its context is open."""

    def write(self, partition: Partition, update_id: str) -> Written:
        """Write one output's parts under its claimed, empty update, without the manifest.

        The dataset must be written before its rejects, because this write shows whether there are any.
        """
        ...

    def counted(self) -> Sequence[tuple[Update, Counts]]:
        """Return record counts by window of the updates in `Task.uncounted`, which no earlier run has counted.

        Records that do not parse are counted if they have a time.
        """
        ...

    def audit(self, outputs: Sequence[Output]) -> Audit:
        """Read the written rows back from the blackboard, and run the checks on them."""
        ...


class Maker(Protocol):
    """An engine that makes rows, writes them, and reads them back."""

    def make(self, task: Task, board: Blackboard) -> AbstractContextManager[MadeRows]:
        """Read the inputs and run the recipe's function."""
        ...

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:
        """Return the number of rows of an update that this maker wrote, and their data version."""
        ...
