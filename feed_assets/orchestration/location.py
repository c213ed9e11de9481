"""A code location: datasets, plus the sensor and the automation that run them."""

import dagster as dg

from feed_assets.orchestration.metadata import (
    APPENDABLE,
    FEED,
    FOREIGN,
    FORMAT,
    KEEP,
    OLDER_THAN,
    ROLE,
    SCHEMA,
    SOURCE,
    TABLE,
    TABLE_NAME,
)
from feed_assets.orchestration.orphans import orphans_sensor
from feed_assets.orchestration.requests import PRIORITY
from feed_assets.orchestration.retention import prune_jobs
from feed_assets.orchestration.sensors import sensors_of, specs_of
from feed_assets.orchestration.watch import watch_checks

LATE_DATA = "late_data"


def with_automation(definitions: dg.Definitions) -> dg.Definitions:
    """Add what makes datasets run by themselves: sensors, late re-runs, an in-process executor by default.

    And the job `prune`, if any of them has a retention.
    """
    late_data = dg.AutomationConditionSensorDefinition(
        LATE_DATA,
        target=dg.AssetSelection.all(),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=5,
        use_user_code_server=True,
        emit_backfills=False,
        run_tags=PRIORITY,
        description="Requests again the partitions whose inputs have changed since they were built.",
    )
    executor = None if definitions.executor else dg.in_process_executor
    assets = _without_repeats(definitions)
    sensors = [*sensors_of(assets), late_data, orphans_sensor]
    checks = watch_checks(specs_of(assets))
    own = dg.Definitions(asset_checks=checks, sensors=sensors, jobs=prune_jobs(assets), executor=executor)
    return dg.Definitions.merge(assets, own)


def _without_repeats(definitions: dg.Definitions) -> dg.Definitions:
    """Keep one of equal declarations of a foreign feed: a YAML file and every consumer in Python may each have it.

    Declarations that differ stay, and Dagster refuses them by name.
    """
    assets = list(definitions.assets or ())
    identities = [_identity(asset) for asset in assets]
    kept = [asset for at, asset in enumerate(assets) if identities[at] is None or identities[at] not in identities[:at]]
    if len(kept) == len(assets):
        return definitions
    return dg.Definitions(
        assets=kept,
        asset_checks=definitions.asset_checks,
        schedules=definitions.schedules,
        sensors=definitions.sensors,
        jobs=definitions.jobs,
        resources=definitions.resources,
        executor=definitions.executor,
        loggers=definitions.loggers,
        metadata=definitions.metadata,
    )


def _identity(asset: object) -> object:
    """What makes two declarations of a foreign feed or an event table equal; None for anything else."""
    if not isinstance(asset, dg.AssetSpec) or asset.metadata.get(ROLE) not in (FOREIGN, TABLE):
        return None
    told = (FEED, FORMAT, SCHEMA, APPENDABLE, KEEP, OLDER_THAN, SOURCE, TABLE_NAME)
    return asset.key, asset.partitions_def, [asset.metadata.get(name) for name in told]
