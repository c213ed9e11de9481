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
    """A build that did not publish. `pins` is the digest of what it read, None if it failed before pinning."""

    pins: str | None
    refused: bool
    reason: str
    ended: datetime
    made_with: str | None = None
    """Digest of the recipe and the Spark configuration of the attempt; None for attempts before schema 0004."""


@dataclass(frozen=True)
class Built:
    """Ledger facts about an output, which may not be built yet."""

    published: str | None = None
    """Its newest published update."""
    consumed: tuple[Pin, ...] = ()
    """The pins that this update was built from."""
    late_since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """Arrival time of the first update that it was not built from, by input partition (batch, window)."""
    attempts: tuple[Attempt, ...] = ()
    """Builds since its publication that did not publish."""
    changed: int = 0
    """The number of its publication in the log."""
    lost: str | None = None
    """The reason why no increment can be added to it. None for outputs without increments."""


@dataclass(frozen=True)
class KnownWindow:
    """The state of a window, its reason, its records, and the number of its last transition.

    `held`: all its data are there, and it is open only because a part is bad. `stale`: why a check failed before the
    window was made again. `failed`: why a check fails, even if data are still missing. `data`: a digest of the counts
    that were reported until the last transition.
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
        """Return the state as part of a sentence."""
        return f"is {self.state.value.replace('_', ' ')}: {self.why}"

    def pin(self, window: Partition) -> Pin | None:
        """Return the pin for a read of the window; None if it is not readable. Windows with bad data are readable."""
        position = f"{self.changed:020d}"
        version = f"{self.data:016x}" if self.data else position
        return Pin(window, position, version, self.records) if self.is_bad or self.state in DONE else None


def is_waived(problem: str, waived: str | None) -> bool:
    """Return whether a waiver covers a problem: it was given for this problem, or for one with more parts."""
    return waived is not None and {*_PARTS.split(problem)} <= {*_PARTS.split(waived)}


_PARTS = re.compile("[;,] ")


@dataclass(frozen=True)
class Facts:
    """Facts about some needs, read from one state of the ledger. Partitions without an entry have no facts."""

    now: datetime
    outputs: Mapping[Partition, Built] = field(default_factory=dict[Partition, Built])
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """The newest valid update of each input partition that holds updates, and of each batch."""
    batches: Mapping[Partition, tuple[Partition, ...]] = field(default_factory=dict[Partition, tuple[Partition, ...]])
    """The batches of each partition of an appendable input, valid or not."""
    counted: Mapping[tuple[Partition, str], Pin] = field(default_factory=dict[tuple[Partition, str], Pin])
    """The newest valid update up to an update id, for input partitions whose newest update is not weighed yet."""
    pruned: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The last pruned update of each input partition."""
    failed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Input and output partitions with a failed check, each with the reason."""
    checks: Mapping[tuple[Partition, str], str] = field(default_factory=dict[tuple[Partition, str], str])
    """Results of the checks that needs name: why the check blocks, '' if it passed. Unknown checks are missing."""
    waived: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Waived problems of partitions and windows, which no longer block consumers."""
    closed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Closed outputs: who closed them, when and why."""
    choices: Mapping[Partition, Choice] = field(default_factory=dict[Partition, Choice])
    """Events and updates that each output built by events consumes and reads next."""
    paused: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    """Paused consumers, each with the reason."""
    windows: Mapping[Partition, KnownWindow] = field(default_factory=dict[Partition, KnownWindow])
    """Known windows, by their partition in the log."""
    uncounted: Set[Partition] = frozenset()
    """Input partitions whose newest updates are not counted in windows yet."""
    counted_by_nobody: Set[Partition] = frozenset()
    """Partitions of feeds that their readers count, whose newest updates no run has counted."""
    counting: Set[Partition] = frozenset()
    """Due outputs whose next runs count what they read. Outputs that wait for a person are not included."""
    reporting: Set[Feed] = frozenset()
    """Feeds whose producers report the ingested records."""
    reached: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """The time that the data of an input have reached, for inputs that must reach a time."""
    costs: Mapping[Feed, float] = field(default_factory=dict[Feed, float])
    """Cost of a run for each byte read, for datasets that weigh cost and have run."""
    max_attempts: int = 3
