"""What an output needs: one kind of input for each way of reading, which says what it pins and what it misses."""

from dataclasses import dataclass

from feed_assets.core.choosing import Choice
from feed_assets.core.facts import Facts
from feed_assets.core.feeds import Partition
from feed_assets.core.positions import Pin


@dataclass(frozen=True)
class UpdateInput:
    """A partition of which one update is read: the newest valid one, or by events the one that is chosen."""

    partition: Partition
    is_required: bool = True
    """Whether it is waited for; else it is read if it has a valid update."""
    ignores_quality: bool = False

    def members(self, facts: Facts) -> tuple[Partition, ...]:  # noqa: ARG002
        """The partitions whose updates are read."""
        return (self.partition,)

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:
        """What is read now."""
        found = [choice.pins.get(each, facts.newest.get(each)) for each in self.members(facts)]
        return tuple(pin for pin in found if pin)

    def missing(self, facts: Facts, choice: Choice) -> str | None:
        """What is waited for, if there is nothing to read."""
        return str(self.partition) if self.is_required and not self.pins(facts, choice) else None

    def has_come(self, facts: Facts, choice: Choice) -> bool:
        """Whether something of it is there, if only on its way through a pipeline."""
        return any(each in choice.pins or each in facts.newest for each in self.members(facts))


@dataclass(frozen=True)
class SetInput(UpdateInput):
    """A partition of an appendable feed: the newest valid update of each of its batches is read."""

    def members(self, facts: Facts) -> tuple[Partition, ...]:
        """The batches, valid or not."""
        return facts.batches.get(self.partition, ())


@dataclass(frozen=True)
class TableInput(UpdateInput):
    """A partition of an event table, of which the slice that is due is read: nothing, if it never had an event."""

    is_required: bool = False


@dataclass(frozen=True)
class AbsentInput:
    """A partition that is needed and does not exist (yet)."""

    name: str
    is_required: bool = True

    def pins(self, facts: Facts, choice: Choice) -> tuple[Pin, ...]:  # noqa: ARG002
        """Nothing."""
        return ()

    def missing(self, facts: Facts, choice: Choice) -> str:  # noqa: ARG002
        """Its name."""
        return self.name

    def has_come(self, facts: Facts, choice: Choice) -> bool:  # noqa: ARG002
        """Never."""
        return False


Input = UpdateInput | SetInput | TableInput | AbsentInput
