"""A code location: datasets, with the sensors and the automation that run them."""

from collections.abc import Sequence
from functools import reduce
from operator import sub
from typing import Any

import dagster as dg
from dagster import _record

from feed_assets.core.launching import PRIORITY
from feed_assets.core.typed import typed
from feed_assets.orchestration.catch_up_job import catch_up_jobs, catch_up_sensors
from feed_assets.orchestration.declare.agreement import agreed
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    blackboard_of,
    declarations_of,
    refuse_others_places,
    specs_of,
)
from feed_assets.orchestration.declare.on_change import subscriptions_of
from feed_assets.orchestration.declare.versions import with_versions
from feed_assets.orchestration.prune_jobs import prune_jobs, prune_ledger_job
from feed_assets.orchestration.ticks.sensors import sensors_of
from feed_assets.orchestration.ticks.watch_checks import watch_checks
from feed_assets.settings import has_data_centers, settings

_records: Any = _record  # it has no types

LATE_DATA = "late_data"

NOTHING_LATE = "No late data are worth a re-run now. `feed-assets late ls` shows the decisions and their reasons."

ENTITIES = 500
"""Greatest number of assets and checks whose conditions Dagster lets one sensor evaluate in the code server."""


class LateDataSensor(dg.AutomationConditionSensorDefinition):
    """Dagster's sensor for conditions, but with one run for neighbouring partitions instead of a run for each.

    Dagster itself would start a backfill for several partitions. A backfill needs another daemon, and waits for the
    next tick of that daemon. If Dagster copies the sensor to change its metadata, the copy has Dagster's class. Then
    each partition gets its own run.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> Any:
        """Evaluate the conditions as Dagster does, but with our own skip message.

        Drop a log line that Dagster would otherwise write every five seconds.
        """
        context.log.addFilter(lambda record: "prefetching asset records" not in record.getMessage().lower())
        result = super().evaluate_tick(context)
        return result if result.run_requests else _records.copy(result, skip_message=NOTHING_LATE)

    def resolve_run_requests(
        self,
        run_requests: Sequence[dg.RunRequest],
        context: dg.SensorEvaluationContext,
        asset_selection: dg.AssetSelection | None,
        dynamic_partitions_requests: Sequence[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest],
    ) -> Sequence[dg.RunRequest]:
        """Return Dagster's run requests of a tick, with neighbouring partitions joined into one request.

        This does not change how the UI shows the evaluations of conditions.
        """
        if context.repository_def and run_requests:
            from feed_assets.ledger.database import open_ledger  # Declaring needs no ledger.
            from feed_assets.orchestration.decide.graph import Graph
            from feed_assets.orchestration.decide.requests import joined
            from feed_assets.runs.services import utc_now

            graph = Graph(context.repository_def.asset_graph)
            with dg.partition_loading_context(dynamic_partitions_store=context.instance):
                run_requests = joined(graph, open_ledger(settings().ledger), run_requests, utc_now())
        return super().resolve_run_requests(run_requests, context, asset_selection, dynamic_partitions_requests)


@typed
def with_automation(definitions: dg.Definitions) -> dg.Definitions:
    """Add automation for datasets: sensors, late re-runs, and an in-process executor by default.

    Also add the job `prune_ledger`, and these jobs if they are needed: `prune` (a feed has a retention), `catch_up`
    (there is a Kafka topic), and `compact` (a dataset has this option). If there are subscriptions, add their sensor
    and jobs. If the settings have data centers, add the sensor and the job `replicate`.

    Args:
        definitions: The datasets and feeds of a code location, and its other definitions.

    Returns:
        The definitions with automation.

    Raises:
        InvalidDefinition: The argument has a wrong type, or declarations contradict each other: an asset is declared
            differently or in two roles, there is a cycle, or a table with events is not declared.
    """
    executor = None if definitions.executor else dg.in_process_executor
    assets = with_versions(agreed(definitions))
    declared = declarations_of(assets)
    refuse_others_places(declared)
    sensors = [*sensors_of(declared), *catch_up_sensors(declared), *_late_data_sensors(assets)]
    checks, jobs = watch_checks(specs_of(assets)), [*prune_jobs(declared), prune_ledger_job(), *catch_up_jobs(declared)]
    if any(isinstance(each, Dataset) and each.compact for each in declared):  # Import the module only if needed.
        from feed_assets.orchestration.compact_job import compact_job, compact_sensor

        sensors, jobs = [*sensors, compact_sensor(declared)], [*jobs, compact_job(declared)]
    if subscriptions := subscriptions_of(assets):  # Import the module only if needed.
        from feed_assets.orchestration.delivery_job import delivery_jobs, delivery_sensor

        sensors, jobs = [*sensors, delivery_sensor(subscriptions)], [*jobs, *delivery_jobs(subscriptions)]
    if has_data_centers():  # Import the module only if needed.
        from feed_assets.orchestration.replicate_job import replicate_job, replicate_sensor

        elsewhere = {each.feed: name for each in declared if (name := blackboard_of(each))}
        sensors, jobs = [*sensors, replicate_sensor(elsewhere)], [*jobs, replicate_job(elsewhere)]
    own = dg.Definitions(asset_checks=checks, sensors=sensors, jobs=jobs, executor=executor)
    return dg.Definitions.merge(assets, own)


def _late_data_sensors(definitions: dg.Definitions) -> list[dg.SensorDefinition]:
    """Return the sensor `late_data`, and `late_data_2` and so on if there are more assets than one sensor may evaluate.

    The first sensor has all assets that no other sensor has. So it also has assets that are added to the definitions
    later.
    """
    further = [dg.AssetSelection.assets(*keys) for keys in _beyond_the_first(definitions)]
    first = reduce(sub, further, dg.AssetSelection.all())
    return [_late_data_sensor(number, target) for number, target in enumerate([first, *further], 1)]


def _late_data_sensor(number: int, target: dg.AssetSelection) -> dg.SensorDefinition:
    with without_dagsters_notes():
        return LateDataSensor(
            LATE_DATA if number == 1 else f"{LATE_DATA}_{number}",
            target=target,
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=1,  # the daemon ticks every five seconds, sometimes slightly early
            use_user_code_server=True,
            emit_backfills=False,
            run_tags=PRIORITY,
            description="Requests re-runs of partitions whose inputs have changed since they were built.",
        )


def _beyond_the_first(definitions: dg.Definitions) -> list[list[dg.AssetKey]]:
    """Return the sorted assets with a condition, grouped by sensor. The group of the first sensor is left out.

    A dataset and its rejects stay together, because one run builds both.
    """
    sensors: list[list[dg.AssetKey]] = [[]]
    for keys in sorted(each for asset in definitions.assets or () if (each := _with_condition(asset))):
        if len(sensors[-1]) + len(keys) > ENTITIES:
            sensors.append([])
        sensors[-1] += keys
    return sensors[1:]


def _with_condition(asset: object) -> list[dg.AssetKey]:
    specs = asset.specs if isinstance(asset, dg.AssetsDefinition) else ()
    return sorted(spec.key for spec in specs if getattr(spec, "automation_condition", None))
