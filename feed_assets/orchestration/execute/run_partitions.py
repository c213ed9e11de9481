"""The partitions that a Dagster run builds. They decide which compute target the run gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import dagster as dg

from feed_assets.core.data_centers import EVERYWHERE, Home
from feed_assets.core.feeds import Partition
from feed_assets.core.resources import Resources
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.home_choice import home_of_run, is_chosen
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.request_budget import is_history
from feed_assets.orchestration.decide.resource_requests import resources_of
from feed_assets.runs.run_turn import Patience, has_its_turn, wait_for_turn
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings


@dataclass(frozen=True)
class RunPartitions:
    """The partitions of one dataset that a run builds."""

    graph: Graph
    node: Node
    context: dg.AssetExecutionContext
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """The updates that the run's configuration names, by the path of the input's partition."""

    @property
    def id(self) -> str:
        """Return the id of the run's step. Steps of one run may work at the same time, each with its own resources."""
        return f"run {self.context.run.run_id} {self.context.op_execution_context.op_handle}"

    @property
    def name(self) -> str:
        """Return the path of the first partition.

        It names this run in messages to runs that wait for the same resources.
        """
        return self.outputs[0].path if self.outputs else self.id

    @cached_property
    def outputs(self) -> list[Partition]:
        """Return the partitions. Return [] if the run names no partition. Such a run fails later."""
        if self.node.partitions_def is None:
            return [self.node.partition(None)]
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            is_named = self.context.has_partition_key or self.context.has_partition_key_range
            return [self.node.partition(key) for key in self.context.partition_keys] if is_named else []

    def are_history(self, now: datetime) -> bool:
        """Return whether all partitions count as history. Such a run comes after runs of new partitions."""
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            return bool(self.outputs) and all(is_history(self.graph, output, now) for output in self.outputs)

    def resources(self, ledger: Ledger) -> Resources:
        """Return the resources that the run needs. Call this only if the run got no resources when it was requested."""
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            return resources_of(self.graph, ledger, self.node, self.outputs, utc_now())

    def home(self, ledger: Ledger, *, is_patient: bool = True) -> Home:
        """Return the targets that the run may have, in places that have its inputs, or what it waits for.

        Unless `is_patient`, it does not wait for a preferred place while another one has its inputs.
        """
        if not is_chosen(self.graph, [self.node.feed]):
            return EVERYWHERE
        named = {Partition.parse(path): update_id for path, update_id in self.named.items()}
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            return home_of_run(self.graph, ledger, self.outputs, named, utc_now(), is_patient=is_patient)

    def wait_for_turn(self, patience: Patience) -> None:
        """Wait until at least one of the partitions is not being built by another run.

        This run can begin with that one.
        """
        wait_for_turn(self._services, self.outputs, patience)

    def has_its_turn(self, patience: Patience) -> bool:
        """Return whether the run can begin with one of its partitions."""
        return has_its_turn(self._services, self.outputs, patience)

    @cached_property
    def _services(self) -> Services:
        return Services.of(settings(), elsewhere=self.graph.elsewhere)
