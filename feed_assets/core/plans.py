"""Plans for runs of datasets that are built by events: whether a run processes only new data, and with which settings.

A plan is chosen before its run starts, because the plan may decide which compute is used.

Source: "Data Orchestration via Events" (2024), "What if we have different trigger types?".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from feed_assets.core.argument_types import NotNegative
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Partition
from feed_assets.core.slices import Slice
from feed_assets.core.typed import typed

Kind = Literal["reload", "incremental"]


@typed
@dataclass(frozen=True)
class Plan:
    """Instructions for a run by events.

    Args:
        kind: `incremental` processes new data. `reload` processes everything: the function's argument `previous` is
            None, and each slice begins at the beginning of its table. The slice of a table without new data ends where
            the table was last read. A dataset that adds increments also reloads if it has no valid update that an
            increment can extend.
        config: Configuration for the function, as JSON values. The function reads it from `run_spec.plan.config`.
        tags: Tags of the run, such as `feed_assets/spark_profile` for a run that needs more resources.

    Raises:
        InvalidDefinition: A value is of a wrong type.
    """

    kind: Kind = "incremental"
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


@typed
@dataclass(frozen=True)
class Rule:
    """Condition for a plan. An argument that is not given holds for every slice.

    Args:
        plan: The plan.
        tables: The rule holds if a slice is of one of these tables.
        operations: The rule holds if a slice has an event with one of these operations.
        at_least: The rule holds if the slices that fulfil the other conditions have this many bytes in all. Events
            report their bytes in their context.

    Raises:
        InvalidDefinition: A value is of a wrong type, or `at_least` is below 0.
    """

    plan: Plan
    tables: frozenset[str] = frozenset()
    operations: frozenset[Operation] = frozenset()
    at_least: NotNegative = 0

    def holds(self, slices: Iterable[Slice]) -> bool:
        """Return whether this rule's plan applies to a run that reads these slices (new rows of event tables)."""
        matching = [each for each in slices if not self.tables or str(each.partition.feed) in self.tables]
        matching = [each for each in matching if not self.operations or each.operations & self.operations]
        return bool(matching) and sum(each.bytes for each in matching) >= self.at_least


def choose(rules: Sequence[Rule], slices: Sequence[Slice], *, reloads: bool = False) -> Plan:
    """Return the plan of the first rule that holds. If no rule holds, return an incremental plan.

    Tables without new data are ignored if another table has new data. `reloads` is True if there is no update to add an
    increment to. Then return the first plan that reloads, even if its rule does not hold.
    """
    if reloads:
        return next((rule.plan for rule in rules if rule.plan.kind == "reload"), Plan("reload"))
    new = [each for each in slices if not each.interval.is_empty] or slices
    return next((rule.plan for rule in rules if rule.holds(new)), Plan())


@dataclass(frozen=True)
class RunSpec:
    """Specification of a run by events.

    Attributes:
        slices: The slices of the run, by the partition of an event table. If the plan reloads, they are whole tables.
        plan: How the run processes the slices. An `incremental` plan becomes `reload` if no update can be extended.
        consumes: True if the run consumes the events. A manual run does not consume them: a later run reads them again.
    """

    slices: Mapping[Partition, Slice] = field(default_factory=dict[Partition, Slice])
    plan: Plan = field(default_factory=Plan)
    consumes: bool = False

    def slice(self, table: str, key: str = "") -> Slice | None:
        """Return the slice of a table's partition: the rows that this run reads.

        Return None if the partition has nothing new.
        """
        return next((s for p, s in self.slices.items() if (str(p.feed), p.key) == (table, key)), None)


BY_HAND = RunSpec(plan=Plan("reload"))
"""The default specification: everything up to the last marker is read."""
