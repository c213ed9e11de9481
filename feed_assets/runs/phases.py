"""The phases of a build, each made from the phase before: pinned, claimed, staged, checked, and the outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.core.plans import RunSpec
from feed_assets.core.slices import Slice
from feed_assets.core.spans import Span
from feed_assets.runs.maker import Audit, Output
from feed_assets.runs.outcomes import CheckResult


@dataclass(frozen=True)
class Pinned:
    """The exact data to read, by input: updates of feeds, slices of event tables, spans of state tables."""

    updates: Mapping[str, Sequence[Update]]
    slices: Mapping[str, Sequence[Slice]]
    spans: Mapping[str, Span | None]
    """The span of time to read of each state table. It is None for an optional table that is not complete."""
    pins: tuple[Pin, ...]
    """The same data, as recorded in the lineage."""
    run_spec: RunSpec
    """The run spec for the function: the plan, and the slices that are actually read."""
    without: tuple[str, ...] = ()
    """Needed partitions that are missing. The run proceeds because enough other partitions exist."""
    base: tuple[Update, Pin] | None = None
    """The dataset's own update to which an increment is added; None if the run loads all rows."""
    batch: Partition | None = None
    """The batch to write, for an appendable dataset."""


@dataclass(frozen=True)
class Claimed:
    """The phase after claiming: each output has its own reserved update id, on the blackboard and in the ledger."""

    pinned: Pinned
    ids: tuple[tuple[Partition, str], ...]


@dataclass(frozen=True)
class Staged:
    """The phase after writing: the parts of every output are on the blackboard, and their statistics in the ledger."""

    pinned: Pinned
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Checked:
    """The phase after the audit: the written rows have been read back, and the checks were run on them."""

    staged: Staged
    audit: Audit


@dataclass(frozen=True)
class Published:
    """The partition has a new update, which is the last of `outputs`. Earlier outputs are its rejects."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]
    preview: str
    """The first rows as Markdown."""
    chart: str | None
    """The Markdown that the recipe's `chart` made of the rows."""
    without: tuple[str, ...] = ()
    """Needed partitions that were missing."""
    base: Pin | None = None
    """The update to which the increment was added."""


@dataclass(frozen=True)
class Refused:
    """A blocking check failed: nothing is published, and readers keep the previous valid update."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]

    @property
    def reason(self) -> str:
        """Return the messages of all blocking checks."""
        return "; ".join(result.message for result in self.checks if result.blocks)


@dataclass(frozen=True)
class Unchanged:
    """The published update was built from the same inputs: nothing was done."""

    output: Partition
    update_id: str
    pins: tuple[Pin, ...]


Outcome = Published | Refused | Unchanged
