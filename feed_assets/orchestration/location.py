"""A code location: datasets, plus the sensor and the automation that run them."""

from collections.abc import Sequence
from functools import reduce
from operator import sub
from typing import Any

import dagster as dg
from dagster import _record

from feed_assets.core.typed import typed
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.catch_up_job import catch_up_jobs, catch_up_sensors
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.requests import PRIORITY, joined
from feed_assets.orchestration.declare.agreement import agreed
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes
from feed_assets.orchestration.declare.declarations import declarations_of, specs_of
from feed_assets.orchestration.declare.versions import with_versions
from feed_assets.orchestration.prune_jobs import prune_jobs, prune_ledger_job
from feed_assets.orchestration.ticks.orphan_sensor import orphans_sensor
from feed_assets.orchestration.ticks.sensors import sensors_of
from feed_assets.orchestration.ticks.watch import watch_checks
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings

_records: Any = _record  # It has no types.

LATE_DATA = "late_data"

NOTHING_LATE = "No late data are worth a re-run now. `feed-assets late ls` says what was decided, and why."

ENTITIES = 500
"""Assets and checks with a condition that Dagster lets one sensor evaluate in the code server."""


class LateDataSensor(dg.AutomationConditionSensorDefinition):
    """Dagster's sensor of conditions, which requests one run for each partition; here neighbours are one run.

    Dagster's own way to that is a backfill: one more daemon, one more wait. A copy that Dagster makes of the sensor, to
    give it other metadata, is of Dagster's class: then each partition has a run.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> Any:
        """Evaluate a tick of Dagster's, without the lines that it would log every five seconds, with our message."""
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
        """Return what Dagster makes of a tick's requests, joined into fewer; the UI shows conditions as before."""
        if context.repository_def and run_requests:
            graph = Graph(context.repository_def.asset_graph)
            with dg.partition_loading_context(dynamic_partitions_store=context.instance):
                run_requests = joined(graph, open_ledger(settings().ledger), run_requests, utc_now())
        return super().resolve_run_requests(run_requests, context, asset_selection, dynamic_partitions_requests)


@typed
def with_automation(definitions: dg.Definitions) -> dg.Definitions:
    """Add what runs datasets automatically: sensors, late re-runs, and an in-process executor by default.

    The job `prune_ledger` comes with them, the job `prune`, if any feed has a retention, and the job `catch_up`, if
    there is a Kafka topic.

    Args:
        definitions: The datasets and feeds of a code location, with whatever else it has.

    Returns:
        The same definitions with what was added.

    Raises:
        InvalidDefinition: The argument is of a wrong type, or what it holds does not fit together: an asset that is
            declared twice and differs, or in two roles, a cycle, events of a table that is not declared.
    """
    executor = None if definitions.executor else dg.in_process_executor
    assets = with_versions(agreed(definitions))
    declared = declarations_of(assets)
    sensors = [*sensors_of(declared), *catch_up_sensors(declared), *_late_data_sensors(assets), orphans_sensor]
    checks, jobs = watch_checks(specs_of(assets)), [*prune_jobs(declared), prune_ledger_job(), *catch_up_jobs(declared)]
    own = dg.Definitions(asset_checks=checks, sensors=sensors, jobs=jobs, executor=executor)
    return dg.Definitions.merge(assets, own)


def _late_data_sensors(definitions: dg.Definitions) -> list[dg.SensorDefinition]:
    """Return the sensor `late_data`, and `late_data_2` and so on for what is more than one of them may evaluate.

    The first has whatever no other has, so that assets which are added to the definitions later have one, too.
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
            minimum_interval_seconds=1,  # The daemon ticks every five: a moment less would be too early.
            use_user_code_server=True,
            emit_backfills=False,
            run_tags=PRIORITY,
            description="Requests again the partitions whose inputs have changed since they were built.",
        )


def _beyond_the_first(definitions: dg.Definitions) -> list[list[dg.AssetKey]]:
    """Return the assets with a condition by the sensor that evaluates them, sorted, without those of the first sensor.

    A dataset and its rejects stay together: one run makes both.
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
