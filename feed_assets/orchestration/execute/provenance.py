"""Provenance tags for partitions of a joint run.

Dagster itself adds these tags to yielded results, but not to logged results.
"""

from collections.abc import Mapping

import dagster as dg

from feed_assets.orchestration.execute.build_events import DATA_VERSION_TAG

Tags = Mapping[str, str]
MadeOf = Mapping[dg.AssetKey, Tags]

CODE_VERSION_TAG, IS_OURS_TAG = "dagster/code_version", "dagster/data_version_is_user_provided"
INPUT_VERSION_TAG, INPUT_EVENT_TAG = "dagster/input_data_version", "dagster/input_event_pointer"
NO_VERSION, NO_EVENT = "INITIAL", "NULL"
"""Dagster's values for the version and the event of an input without a materialization."""


def provenance(context: dg.AssetExecutionContext) -> MadeOf:
    """Return, per selected asset, the tags from which Dagster decides staleness: code version and newest input events.

    Call this before a partition pins its inputs, so that an input that is reported later makes the partition stale.
    """
    specs = [spec for spec in context.assets_def.specs if spec.key in context.selected_asset_keys]
    inputs = sorted({dep.asset_key for spec in specs for dep in spec.deps})
    entries = [record.asset_entry for record in context.instance.get_asset_records(inputs)]
    positions = {entry.asset_key: _input(entry.last_materialization_record) for entry in entries}
    return {spec.key: {**_own(spec, context.run.run_id), **_of_inputs(spec, positions)} for spec in specs}


def _own(spec: dg.AssetSpec, run_id: str) -> Tags:
    return {CODE_VERSION_TAG: spec.code_version or run_id, IS_OURS_TAG: "true"}


def _input(record: dg.EventLogRecord | None) -> tuple[str, str]:
    """Return the event number and data version of an input's newest materialization, whatever its partition."""
    materialization = record.asset_materialization if record else None
    if record is None or materialization is None:
        return NO_EVENT, NO_VERSION
    return str(record.storage_id), (materialization.tags or {}).get(DATA_VERSION_TAG, NO_VERSION)


def _of_inputs(spec: dg.AssetSpec, positions: Mapping[dg.AssetKey, tuple[str, str]]) -> Tags:
    tags = dict[str, str]()
    for name in sorted(dep.asset_key for dep in spec.deps):
        event, version = positions.get(name, (NO_EVENT, NO_VERSION))
        tags |= {f"{INPUT_EVENT_TAG}/{name.to_user_string()}": event}
        tags |= {f"{INPUT_VERSION_TAG}/{name.to_user_string()}": version}
    return tags
