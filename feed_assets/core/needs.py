"""Needs of an output: what it requires of its inputs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

from feed_assets.core.completeness import WindowState
from feed_assets.core.facts import Facts
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.inputs import Input, SetInput, TableInput, UpdateInput, WindowInput
from feed_assets.core.late_policy import Late, Periods, counted_upto
from feed_assets.core.pins import InputSource, Pin
from feed_assets.core.propagation import Consumer
from feed_assets.core.update_choice import Choice
from feed_assets.core.waits import Waits
from feed_assets.core.windows import address_of

Reprocess = Literal["if_data_changed", "always", "never"]
"""The reaction of a dataset to a backfilled input."""


@dataclass(frozen=True)
class Need:
    """An output partition, and all input partitions that it needs."""

    output: Partition
    inputs: tuple[Input, ...]
    late: Late = field(default_factory=Late)
    consumer: Consumer | None = None
    """The consumer, if the dataset is built by events. Propagations then decide which updates it reads, and when."""
    made_with: str | None = None
    """Digest of the recipe and the Spark configuration. Attempts with another digest do not count."""
    waits: Waits = field(default_factory=Waits)
    reprocess: Reprocess = "if_data_changed"
    late_of: Mapping[Feed, Late] = field(default_factory=dict[Feed, Late])
    """Policies for late data of inputs that declare their own."""
    periods: Periods = field(default_factory=Periods)
    adds: bool = False
    """True if a run adds an increment, as new rows or as a batch, to the last published update."""

    def policy_of(self, feed: Feed) -> Late:
        """Return the policy for late data of an input."""
        return self.late_of.get(feed, self.late)

    @property
    def weighs_cost(self) -> bool:
        """Return whether late data must be worth the cost of a run."""
        return any(each.value_per_gb is not None for each in (self.late, *self.late_of.values()))

    def counts_upto(self, feed: Feed, now: datetime) -> str | None:
        """Return the greatest update id of an input that the policy for late data takes into account at `now`.

        Later updates are weighed at a later check, or never if they arrive after the cut-off. None means no limit.
        """
        policy = self.policy_of(feed)
        if policy.cron is None and (policy.cut_off is None or not self.periods.ends):
            return None
        return update_id(counted_upto(policy, self.periods, now))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Return the input partitions that exist, including partitions of event tables. Windows are not included."""
        return tuple(each.partition for each in self.inputs if isinstance(each, UpdateInput))

    @property
    def windows(self) -> tuple[WindowInput, ...]:
        """Return the inputs for which windows of time must be complete."""
        return tuple(each for each in self.inputs if isinstance(each, WindowInput))

    def partitions_of(self, feed: Feed) -> list[Partition]:
        """Return the needed partitions of one input feed."""
        return [each for each in self.partitions if each.feed == feed]

    def windows_of(self, feed: Feed) -> list[WindowInput]:
        """Return the inputs for which windows of one feed must be complete."""
        return [each for each in self.windows if each.span.dataset == feed]

    @property
    def optional(self) -> frozenset[Partition]:
        """Return the optional partitions: they are read only if they have a valid update."""
        update_inputs = (
            each for each in self.inputs if isinstance(each, UpdateInput) and not isinstance(each, TableInput)
        )
        return frozenset(each.partition for each in update_inputs if not each.is_required)

    @property
    def tables(self) -> frozenset[Feed]:
        """Return the inputs that are event tables."""
        return frozenset(each.partition.feed for each in self.inputs if isinstance(each, TableInput))

    @property
    def needed(self) -> frozenset[Partition]:
        """Return what counts for `at_least`: required partitions, and windows of tables."""
        return frozenset(part for each in self.inputs for part in each.needed)

    def lacking(self, facts: Facts, choice: Choice) -> frozenset[Partition]:
        """Return the members of `needed` that are missing."""
        return frozenset(part for each in self.inputs for part in each.lacking(facts, choice))

    def source_of(self, partition: Partition) -> InputSource:
        """Return the source that a partition, batch or window is part of. Growth is measured for a source as a whole.

        A partition that is no longer an input is its own source.
        """
        if window := address_of(partition):
            return InputSource(partition.feed, f"{window.grain}@/{window.sub_partition}")
        source = self._sources.get(partition) or (partition.parent and self._sources.get(partition.parent))
        return source or InputSource(partition.feed, partition.key)

    @cached_property
    def _sources(self) -> dict[Partition, InputSource]:
        update_inputs = [each for each in self.inputs if isinstance(each, UpdateInput)]
        return {
            each.partition: InputSource(each.partition.feed, each.keys, isinstance(each, SetInput))
            for each in update_inputs
        }

    def backfilled(self, facts: Facts, since: int, consumed: Iterable[Pin] = ()) -> frozenset[Partition]:
        """Return the windows that were backfilled since they were read.

        `consumed` are the pins of the windows that were read. A window without a pin is returned if it was backfilled
        after the log change with the number `since`.
        """
        read = {pin.partition: int(pin.update_id) for pin in consumed if pin.partition in facts.windows}
        recorded = {at: facts.windows[at] for each in self.windows for at in each.windows if at in facts.windows}
        states = {at: each.changed for at, each in recorded.items() if each.state is WindowState.BACKFILLED}
        return frozenset(at for at, changed in states.items() if changed > read.get(at, since))
