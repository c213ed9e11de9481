"""The phases of a build, each made from the one before: pinned, claimed, staged, audited, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.plans import RunSpec
from feed_assets.core.positions import Pin
from feed_assets.core.slices import Slice
from feed_assets.core.spans import Span
from feed_assets.runs.maker import Audit, Output
from feed_assets.runs.outcomes import CheckResult


@dataclass(frozen=True)
class Pinned:
    """What is read, to the very update: by input, updates of feeds, slices of event tables, spans of state tables."""

    updates: Mapping[str, Sequence[Update]]
    slices: Mapping[str, Sequence[Slice]]
    spans: Mapping[str, Span | None]
    """Of state tables the time that is read; None of one that is optional and not complete."""
    pins: tuple[Pin, ...]
    """The same, as it is recorded in the lineage."""
    run_spec: RunSpec
    """What the function is told: the plan, and the slices as they are read."""
    without: tuple[str, ...] = ()
    """What it needs and goes without, as so many are enough."""
    base: tuple[Update, Pin] | None = None
    """The dataset's own update that an increment is added to; None where everything is loaded."""
    batch: Partition | None = None
    """Of an appendable dataset the batch that is written."""


@dataclass(frozen=True)
class Claimed:
    """Each output has an update id of its own, on the blackboard and in the ledger."""

    pinned: Pinned
    ids: tuple[tuple[Partition, str], ...]


@dataclass(frozen=True)
class Staged:
    """The parts of every output are on the blackboard, and their statistics in the ledger."""

    pinned: Pinned
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Checked:
    """What was written has been read back and checked."""

    staged: Staged
    audit: Audit


@dataclass(frozen=True)
class Published:
    """The partition has a new update (the last of `outputs`; before it its rejects)."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]
    preview: str
    """The first rows as Markdown."""
    chart: str | None
    """What the recipe's `chart` made of the rows."""
    without: tuple[str, ...] = ()
    """What it needs and went without."""
    base: Pin | None = None
    """The update that it was added to."""


@dataclass(frozen=True)
class Refused:
    """A blocking check failed: nothing is published, and readers keep the previous valid update."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]

    @property
    def reason(self) -> str:
        """Every check that blocks, in words."""
        return "; ".join(result.message for result in self.checks if result.blocks)


@dataclass(frozen=True)
class Unchanged:
    """The published update was built from these very inputs: nothing was done."""

    output: Partition
    update_id: str
    pins: tuple[Pin, ...]


Outcome = Published | Refused | Unchanged
