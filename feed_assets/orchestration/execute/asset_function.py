"""The run of a dataset: build each partition that the run names, and report it to Dagster."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Event
from typing import Any

import dagster as dg

from feed_assets.core.batch_names import set_version
from feed_assets.core.errors import InvalidName, NoValidUpdate
from feed_assets.core.feeds import Partition
from feed_assets.core.inputs import AbsentInput
from feed_assets.core.needs import Need
from feed_assets.core.targets import EmrServerless
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger import batch_sets, compacted, due
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.runs import Launch
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.overlapping_windows import windows_within
from feed_assets.orchestration.decide.requests import WHY
from feed_assets.orchestration.decide.run_config import RunConfig, named_in, parameters_of, run_spec_in
from feed_assets.orchestration.declare.baselines import baseline_of
from feed_assets.orchestration.declare.input_specs import Input, page_of
from feed_assets.orchestration.declare.partitions import extent_of
from feed_assets.orchestration.execute.build_events import Result, failed_checks, materialized, standing
from feed_assets.orchestration.execute.duration_chart import durations_metadata
from feed_assets.orchestration.execute.joint_run import Many
from feed_assets.orchestration.execute.makers import DRIVER, SPARK_PROFILE, cluster_of, maker_of, uses_spark
from feed_assets.orchestration.execute.patience import patience_of
from feed_assets.orchestration.execute.rerun_metadata import effect_metadata
from feed_assets.orchestration.execute.run_partitions import RunPartitions
from feed_assets.orchestration.execute.run_target import RunTarget, run_target
from feed_assets.runs import slice_inputs
from feed_assets.runs.build import build
from feed_assets.runs.maker import Maker
from feed_assets.runs.phases import Outcome, Published, Refused, Unchanged
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.run_turn import Patience
from feed_assets.runs.services import Services
from feed_assets.settings import Settings, settings

ASKED_BY = "feed_assets/asked_by"
"""The tag with the person who requested a run by hand."""

BACKFILL = "dagster/backfill"
"""Dagster's tag with the id of a run's backfill."""

AUTOMATIC = {"dagster/sensor_name", "dagster/from_automation_condition", "dagster/schedule_name"}
"""Tags of runs that nobody requested by hand."""


def run_dataset(
    recipe: Recipe,
    read: Mapping[str, Input],
    specs: Sequence[dg.AssetSpec],
    *,
    context: dg.AssetExecutionContext,
    config: RunConfig,
) -> Iterator[Any]:
    """Build the partitions that a run of a dataset names, and yield Dagster's results."""
    other_assets = [given.feed for given in read.values() if given.declaration.feed != recipe.feed]
    own = {spec.key: spec for spec in context.assets_def.specs}  # A test may have changed the specs.
    assets = [*(own.get(spec.key, spec) for spec in specs), *other_assets]
    graph, interrupted = Graph(dg.Definitions(assets=assets).resolve_asset_graph()), Event()
    patience, node = patience_of(context, interrupted), graph.node(recipe.feed)
    with run_target(RunPartitions(graph, node, context, config.updates), patience) as target:
        body = _Body(recipe, graph, context, interrupted, patience=patience, target=target)
        if node.partitions_def is not None and context.has_partition_key_range:
            yield from body.build_many(config)
        else:
            yield from body.build_one(config)


@dataclass(frozen=True)
class _Body:
    """One Dagster run of a dataset's assets, or of some of them."""

    recipe: Recipe
    graph: Graph
    context: dg.AssetExecutionContext
    interrupted: Event
    patience: Patience
    target: RunTarget | None

    @cached_property
    def node(self) -> Node:
        return self.graph.node(self.recipe.feed)

    def build_one(self, config: RunConfig) -> Iterator[Any]:
        """Build the run's partition.

        Raise dg.Failure if the audit refuses it, and InvalidName if the run names no partition.
        """
        if self.node.partitions_def is not None and not self.context.has_partition_key:
            raise InvalidName(
                f"{self.recipe.feed} is partitioned, but this run names no partition: expected a partition. Choose one."
            )
        key = self.context.partition_key if self.context.has_partition_key else None
        outcome = self.build(config, key, waits=True)
        yield from self.results(outcome)
        if isinstance(outcome, Refused):
            raise dg.Failure(
                f"The audit failed and nothing is published: {outcome.reason}. Readers keep the previous update. "
                "Correct the input: then the partition is built again. Or correct the function and materialize the "
                "partition.",
                allow_retries=False,
            )

    def build_many(self, config: RunConfig) -> Iterator[Any]:
        """Build all partitions that the run names.

        If one partition may be an input of another, build them one by one, in order. On EMR Serverless and with a Spark
        profile, build them one by one, too, because a profile applies to the whole Spark session.
        """
        reads_itself = any(source.feed == self.recipe.feed for source in self.recipe.sources)
        one_by_one = reads_itself or SPARK_PROFILE in self.context.run.tags or self._emr is not None
        at_a_time = 1 if one_by_one else settings().partitions_at_a_time
        of_run = self.context, partial(self._build_of_many, config), self.results, self.standing
        many = Many(*of_run, in_order=reads_itself, tells_unchanged=self._is_of_backfill)
        return many.run(at_a_time, self.interrupted)

    def _build_of_many(self, config: RunConfig, key: str, waits: bool) -> Outcome:
        return self.build(config, key, waits=waits)

    @property
    def _is_of_backfill(self) -> bool:
        """Return whether the run belongs to a backfill.

        Such a run also reports unchanged partitions: a backfill counts a partition as failed if the backfill's own run
        reports no materialization of it.
        """
        return BACKFILL in self.context.run.tags

    def build(self, config: RunConfig, key: str | None, *, waits: bool) -> Outcome:
        """Build the partition with a Dagster key. With `waits`, first wait until no other run is building it."""
        need, windows = self._place(key)
        inputs = {source.name: need.partitions_of(source.feed) for source in self.recipe.sources}
        launch, run_spec = self._launch(config, need), run_spec_in(config)
        tables = {source.name: inputs[source.name] for source in self.recipe.sources if source.is_table}
        slice_inputs.refuse_strange(open_ledger(settings().ledger), run_spec, tables)
        return build(
            self.recipe,
            need.output,
            inputs,
            services=self._services(need.output),
            named=named_in(config, inputs),
            run_spec=run_spec,
            windows={source.name: need.windows_of(source.feed) for source in self.recipe.sources},
            launch=launch,
            optional=need.optional,
            waits=need.waits,
            absent=[each.partition for each in need.inputs if isinstance(each, AbsentInput)],
            reprocess=need.reprocess,
            baseline=baseline_of(self.node.partitions_def, self.recipe.profile, need.output),
            made_again=windows if launch.asked_by else (),
            patience=self.patience if waits else None,
        )

    def _place(self, key: str | None) -> tuple[Need, list[WindowAddress]]:
        """Return the needs of a partition, and the windows that it fills.

        Raise NoValidUpdate if an input's partition does not exist yet.
        """
        with dg.partition_loading_context(dynamic_partitions_store=self.context.instance):
            output = self.node.partition(key)
            extent = extent_of(self.node.partitions_def, output.key)
            need = need_of(self.graph, replace(output, start=extent.start, end=extent.end))
            windows = windows_within(self.node, output)
        absent = [str(each.partition) for each in need.inputs if isinstance(each, AbsentInput)]
        if absent and need.waits.after is None:
            raise NoValidUpdate(f"{output} needs {', '.join(absent)}: no such partition exists yet. Wait for it.")
        return need, windows

    def _launch(self, config: RunConfig, need: Need) -> Launch:
        run = self.context.run
        cluster = cluster_of(run, self.context.instance, self._settings)
        by_hand, why = asked_by(run), run.tags.get(WHY)
        if by_hand is None and why is None:  # use the stored verdict's reason
            with open_ledger(settings().ledger).read() as connection:
                why = due.reason_of(connection, need.output)
        return Launch(
            run.run_id,
            by_hand,
            need.made_with,
            cluster=cluster,
            parameters=parameters_of(config),
            why=why,
            placed=self.target and self.target.placed,
            cores=self.target and self.target.resources.cores,
        )

    @property
    def _settings(self) -> Settings:
        """Return the settings of the run: those of its compute target, if it has one."""
        return self.target.settings if self.target else settings()

    def _services(self, output: Partition) -> Services:
        """Return the services for building an output. They report each step of the build to `_on_step`."""
        services = Services.of(settings(), self._maker, elsewhere=self.graph.elsewhere)
        return replace(services, on_step=partial(self._on_step, output), place=self.target and self.target.center)

    @property
    def _emr(self) -> EmrServerless | None:
        """Return the application of EMR Serverless that makes the rows. Return None if the rows are made elsewhere."""
        target = self.target.target if self.target and uses_spark(self.context.instance) else None
        return target if isinstance(target, EmrServerless) else None

    @property
    def _maker(self) -> Callable[[], Maker]:
        target, application, run = self.target, self._emr, self.context.run
        if target is None or application is None:
            return maker_of(run, self.context.instance, self._settings, target.watch if target else None)
        from feed_assets.orchestration.execute.emr_maker import EmrMaker  # boto3 takes 0.3 s to load

        conf = {key: value for key, value in target.conf.items() if key != "spark.master"}
        profile = run.tags.get(SPARK_PROFILE)
        return partial(EmrMaker, self.context, application, target.watch, conf=conf, profile=profile)

    def _on_step(self, output: Partition, step: str) -> None:
        """Write the step that a build has reached to the run's output.

        Raise KeyboardInterrupt if the run was stopped. Write nothing if the run is in the user's process, because then
        the output is the user's terminal.
        """
        if self.interrupted.is_set():
            raise KeyboardInterrupt("the run that builds it was stopped")
        if DRIVER not in self.context.run.tags:
            sys.stdout.write(f"{output}: {step}\n")

    def results(self, outcome: Outcome) -> Iterator[Result]:
        """Yield Dagster's results for the outcome of a partition."""
        context = self.context
        match outcome:
            case Unchanged():
                text = f"{outcome.output}: update {outcome.update_id} was built from the same inputs"
                context.log.info(f"{text}: there is nothing to do.")
                if self._is_of_backfill:
                    yield from self.standing(self.node.key_of(outcome.output))
            case Refused():
                yield from failed_checks(outcome, self.node.key, context.selected_asset_check_keys)
            case Published():
                tables = [source.feed for source in self.recipe.sources] if self.recipe.is_by_events else []
                ledger = open_ledger(settings().ledger)
                metadata = durations_metadata(ledger, tables, self.recipe.feed) | effect_metadata(ledger, outcome)
                selection = self.node.outputs, context.selected_asset_keys, context.selected_asset_check_keys
                metadata |= self.target.metadata if self.target else {}
                version, of_all = self._as_a_set(outcome)
                metadata, name = metadata | of_all, self.node.blackboard
                yield from materialized(outcome, *selection, metadata, self._page_of, version, blackboard=name)

    def _page_of(self, read: Partition) -> str:
        """Return Dagster's page of an input's partition.

        For windows and for assets without partitions, return the asset's page.
        """
        at = self.graph.parent_partition(read)
        node = self.graph.node(at.feed)
        return page_of(node.key, node.key_of(at) if node.partitions_def and not address_of(at) else None)

    def _as_a_set(self, published: Published) -> tuple[str | None, dict[str, Any]]:
        """Return a partition's data version and metadata after a batch was added. Both describe all its batches."""
        main = published.outputs[-1]
        if not self.recipe.is_appendable or main.partition.parent is None:
            return None, {}
        with open_ledger(settings().ledger).read() as connection:
            pins = batch_sets.pins_of(connection, [main.partition.parent])[main.partition.parent]
            rows = compacted.records(connection, pins)
        of_batch = {"batch": main.partition.name, "rows of the batch": main.written.records, "batches": len(pins)}
        return set_version(pins), of_batch | ({"dagster/row_count": rows} if rows is not None else {})

    def standing(self, key: str | None) -> Iterator[Result]:
        """Yield Dagster's results for an unchanged partition.

        The results report the partition's newest update, no matter which run made it.
        """
        nodes = [self.graph.by_key[asset] for asset in sorted(self.context.selected_asset_keys)]
        outputs = {node.partition(key): node for node in nodes}
        with open_ledger(settings().ledger).read() as connection:
            newest = batch_sets.newest(connection, outputs)
            of_batches = batch_sets.pins_of(connection, [at for at, row in newest.items() if row.partition != at])
        versions = {output: set_version(pins) for output, pins in of_batches.items()}
        for output, node in outputs.items():
            if output in newest:
                yield standing(node, newest[output], versions.get(output))


def asked_by(run: dg.DagsterRun) -> str | None:
    """Return who requested a run by hand. Return None if a sensor, a condition or a schedule requested it."""
    by_hand = run.tags.get(ASKED_BY) or run.tags.get("user") or "somebody in Dagster"
    return None if AUTOMATIC & run.tags.keys() else by_hand
