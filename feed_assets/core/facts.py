"""Ledger facts about some outputs and their inputs: all that a decision is made from."""

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
    """A build that did not publish; `pins` is the digest of what it read, None if it did not get that far."""

    pins: str | None
    refused: bool
    reason: str
    ended: datetime
    made_with: str | None = None
    """Digest of the recipe and the Spark configuration that it was tried with; None if it was not kept yet."""


@dataclass(frozen=True)
class Built:
    """Facts about an output, built or not."""

    published: str | None = None
    """Its newest published update."""
    consumed: tuple[Pin, ...] = ()
    """The pins that this update was built from."""
    late_since: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """The time of the first update that it was not built from, by input partition (batch, window) that has one."""
    attempts: tuple[Attempt, ...] = ()
    """Builds since then that did not publish."""
    changed: int = 0
    """The number of its publication in the log."""
    lost: str | None = None
    """The reason why no increment can be added to it, for an output that adds them."""


@dataclass(frozen=True)
class KnownWindow:
    """The state of a window, the reason in words, its records, and the number of its last transition.

    `held`: it is open only because a part is bad, so all its data are there. `stale`: why a check failed before it was
    made again; `failed`: why one fails, which is no issue before the data are there. `data` is a digest of what was
    reported of it until its state changed: no check changes it.
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
        """Return True if a check failed, also while data are missing."""
        return self.failed is not None or self.stale is not None

    @property
    def is_bad(self) -> bool:
        """Return whether a consumer waits for its quality."""
        is_issue = self.state in (WindowState.COMPLETE_WITH_ISSUE, WindowState.INVALID)
        return is_issue or self.held or (self.state in DONE and self.stale is not None)

    @property
    def phrase(self) -> str:
        """Return its state as a part of a sentence."""
        return f"is {self.state.value.replace('_', ' ')}: {self.why}"

    def pin(self, window: Partition) -> Pin | None:
        """Return the pin that records a read of it; None if it is not readable. Readers may ignore that it is bad."""
        position = f"{self.changed:020d}"
        version = f"{self.data:016x}" if self.data else position
        return Pin(window, position, version, self.records) if self.is_bad or self.state in DONE else None


def is_waived(problem: str, waived: str | None) -> bool:
    """Return whether somebody has waived a problem, or one with more parts: some may be mended since."""
    return waived is not None and {*_PARTS.split(problem)} <= {*_PARTS.split(waived)}


_PARTS = re.compile("[;,] ")


@dataclass(frozen=True)
class Facts:
    """The facts about some needs, as of one state of the ledger. Partitions without an entry have none."""

    now: datetime
    outputs: Mapping[Partition, Built] = field(default_factory=dict[Partition, Built])
    newest: Mapping[Partition, Pin] = field(default_factory=dict[Partition, Pin])
    """The newest valid update of each input partition that holds updates, and of each batch."""
    batches: Mapping[Partition, tuple[Partition, ...]] = field(default_factory=dict[Partition, tuple[Partition, ...]])
    """The batches of each partition of an appendable input, valid or not."""
    counted: Mapping[tuple[Partition, str], Pin] = field(default_factory=dict[tuple[Partition, str], Pin])
    """The newest valid update up to an id, of each input partition whose newest one is later than what is weighed."""
    pruned: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The last update of each input partition that was valid once and has been pruned."""
    failed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """Partitions of inputs and outputs with a failed check, and why."""
    checks: Mapping[tuple[Partition, str], str] = field(default_factory=dict[tuple[Partition, str], str])
    """The known states of checks that are waited for by name: why the check blocks, '' if it does not."""
    waived: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The problems of partitions and windows that somebody waived, so that consumers proceed."""
    closed: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    """The outputs that are final: who closed them, when and why."""
    choices: Mapping[Partition, Choice] = field(default_factory=dict[Partition, Choice])
    """The choice of what each output that is built by events consumes and reads."""
    paused: Mapping[Feed, str] = field(default_factory=dict[Feed, str])
    """Consumers that somebody has paused, in words."""
    windows: Mapping[Partition, KnownWindow] = field(default_factory=dict[Partition, KnownWindow])
    """The known windows, as partitions of the log."""
    uncounted: Set[Partition] = frozenset()
    """Input partitions whose newest updates are in no window's count yet."""
    counted_by_nobody: Set[Partition] = frozenset()
    """Partitions that readers count, but no run has counted the records of their newest updates."""
    counting: Set[Partition] = frozenset()
    """Outputs whose runs are going to count what they read: they are due, and wait for no person."""
    reporting: Set[Feed] = frozenset()
    """The feeds whose producers report what was ingested."""
    reached: Mapping[Partition, datetime] = field(default_factory=dict[Partition, datetime])
    """The time up to which an input has data, for inputs that must reach a time."""
    costs: Mapping[Feed, float] = field(default_factory=dict[Feed, float])
    """The cost of a byte that is read, for datasets that weigh cost and have run."""
    max_attempts: int = 3
