"""Ledger facts about outputs and their inputs. A decision uses nothing else."""

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.update_choice import Choice


@dataclass(frozen=True)
class Attempt:
    """A build that did not publish. `pins` is the digest of the pins that the build read.

    `pins` is None if the build failed before it pinned its inputs.
    """

    pins: str | None
    refused: bool
    reason: str
    ended: datetime
    made_with: str | None = None
    """Digest of the recipe and the Spark configuration. None for an attempt from before ledger schema 0004."""


@dataclass(frozen=True)
class Built:
    """Ledger facts about an output, which may not be built yet."""

    published: str | None = None
    """Its newest published update."""
    consumed: tuple[Pin, ...] = ()
    """The pins that this update was built from."""
    late_since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """When the first data arrived that this update was not built from (UTC), by input partition, batch or window."""
    attempts: tuple[Attempt, ...] = ()
    """Builds that did not publish, since this update was published."""
    changed: int = 0
    """The log number of the publication."""
    lost: str | None = None
    """The reason why no increment can be added to this update.

    None if an increment can be added, or for outputs without increments.
    """


@dataclass(frozen=True)
class KnownWindow:
    """Ledger facts about a window.

    Attributes:
        state: The state.
        why: The reason for the state.
        records: The number of ingested records.
        changed: The log number of the last transition.
        held: True if all data are there, and the window is open only because a smaller window in it is bad.
        stale: Why a check failed on the window's earlier data, before the data were made again. None if none failed.
        data: A digest of the counts that were reported up to the last transition.
        failed: Why a check fails, even if data are still missing.
    """

    state: WindowState = WindowState.OPEN
    why: str = "nothing is reported of it yet"
    records: int = 0
    changed: int = 0
    held: bool = False
    stale: str | None = None
    data: int = 0
    failed: str | None = None

    @property
    def is_suspect(self) -> bool:
        """Return whether a check failed, even if data are still missing."""
        return self.failed is not None or self.stale is not None

    @property
    def is_bad(self) -> bool:
        """Return whether consumers wait because of the window's quality."""
        is_issue = self.state in (WindowState.COMPLETE_WITH_ISSUE, WindowState.INVALID)
        return is_issue or self.held or (self.state in DONE and self.stale is not None)

    @property
    def phrase(self) -> str:
        """Return the window's state as part of a sentence."""
        return f"is {self.state.value.replace('_', ' ')}: {self.why}"

    def pin(self, window: Partition) -> Pin | None:
        """Return the pin with which a run records that it read this window in its present state.

        Return None if the window cannot be read. A window with bad data can be read.
        """
        position = f"{self.changed:020d}"
        version = f"{self.data:016x}" if self.data else position
        return Pin(window, position, version, self.records) if self.is_bad or self.state in DONE else None


def is_waived(problem: str, waived: str | None) -> bool:
    """Return whether a waiver covers a problem: every part of it (between `,` or `;`) must be in the waived problem."""
    return waived is not None and {*_PARTS.split(problem)} <= {*_PARTS.split(waived)}


_PARTS = re.compile("[;,] ")


@dataclass(frozen=True)
class Facts:
    """Facts for decisions about some outputs, all read from the same state of the ledger.

    A partition without facts has no entry.
    """

    now: datetime
    outputs: Mapping[Partition, Built] = field(default_factory=dict[Partition, Built])
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """The newest valid update of each input partition that holds updates, and of each batch."""
    batches: Mapping[Partition, tuple[Partition, ...]] = field(default_factory=dict[Partition, tuple[Partition, ...]])
    """The batches of each partition of an appendable input, valid or not."""
    counted: Mapping[tuple[Partition, str], Pin] = field(default_factory=dict[tuple[Partition, str], Pin])
    """The newest valid update of an input partition whose id is not greater than the id in the key.

    There are entries only for inputs whose newest update arrived too late for the last check, or after the cut-off.
    """
    pruned: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The last pruned update of each input partition."""
    failed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Input and output partitions with a failed check, each with the reason."""
    checks: Mapping[tuple[Partition, str], str] = field(default_factory=dict[tuple[Partition, str], str])
    """Results of the checks that inputs name, by partition and check: why the check blocks, or '' if it passed.

    No entry means that the check has no result.
    """
    waived: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Waived problems of partitions and windows, which no longer block consumers."""
    closed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Closed outputs: who closed them, when and why."""
    choices: Mapping[Partition, Choice] = field(default_factory=dict[Partition, Choice])
    """For each output that is built by events: the events that its next run consumes, and the updates that it reads."""
    paused: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    """Paused consumers, each with the reason."""
    windows: Mapping[Partition, KnownWindow] = field(default_factory=dict[Partition, KnownWindow])
    """Known windows, by their partition in the log."""
    uncounted: Set[Partition] = frozenset()
    """Input partitions whose newest updates are not counted in windows yet."""
    counted_by_nobody: Set[Partition] = frozenset()
    """Partitions whose newest update no run has counted yet, of feeds whose records are counted by their readers."""
    counting: Set[Partition] = frozenset()
    """Due outputs whose next runs count the records that they read.

    Outputs that wait for a person, or skip late data, are not included: their runs may never begin.
    """
    reporting: Set[Feed] = frozenset()
    """Feeds whose producers report the ingested records."""
    reached: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """The time that the data of an input have reached, for inputs that must reach a time."""
    costs: Mapping[Feed, float] = field(default_factory=dict[Feed, float])
    """Cost per byte that a run reads, for datasets that have run and weigh late data by cost."""
    max_attempts: int = 3
