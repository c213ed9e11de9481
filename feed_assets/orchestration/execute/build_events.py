"""Dagster events for the outcome of a build.

The result of a published update contains its check results. A check that is yielded before its MaterializeResult would
belong to the previous materialization, and would block everything downstream forever.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, cast

import dagster as dg

from feed_assets.core.markdown import without_links
from feed_assets.ledger import updates
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.run_blocks import PARTITION
from feed_assets.orchestration.execute.metadata import PageOf, columns_of, inputs_of, rejected_of, url_of
from feed_assets.runs.maker import Output
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.phases import Published, Refused

DATA_VERSION_TAG = "dagster/data_version"
"""Dagster's tag with a materialization's data version, which shows whether data have changed."""

UPDATE_ID = "update id"
"""Metadata name for a materialization's update id."""

SAMPLE = "sample"
"""Metadata name for a sample of the rows that break the rule of a failed check."""

NEWEST = 10
"""Number of newest materializations among which a run searches for its own. Other runs may report at the same time."""

Result = dg.MaterializeResult[Any] | dg.AssetCheckResult


def materialized(
    published: Published,
    keys: Sequence[dg.AssetKey],
    selected: Set[dg.AssetKey],
    checks: Set[dg.AssetCheckKey],
    extra_metadata: Mapping[str, Any],
    page_of: PageOf,
    version: str | None = None,
    blackboard: str | None = None,
) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield one result per selected output. The dataset's own result has checks, pins and `extra_metadata`.

    `keys` are the outputs' asset keys, in order. `page_of` returns the path of an input's page. If a batch was written,
    `version` is the data version of all batches together. `blackboard` is the name of the outputs' blackboard.
    """
    main = published.outputs[-1]
    for key, output in zip(keys, published.outputs, strict=True):
        if key not in selected:
            continue
        extra = {**_dataset_metadata(published, page_of), **extra_metadata} if output is main else {}
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={**_update_metadata(output, blackboard), **extra},
            data_version=dg.DataVersion((output is main and version) or output.written.data_version),
            check_results=[*_check_results(published.checks, key, checks)] if output is main else [],
        )


def standing(node: Node, row: updates.UpdateRow, version: str | None = None) -> dg.MaterializeResult[Any]:
    """Return a materialization that reports an update to Dagster again, because a run left it as the newest.

    `version` is the data version of all batches together, if the update is one batch.
    """
    data_version = dg.DataVersion(version or row.data_version)
    return dg.MaterializeResult(asset_key=node.key, metadata=recorded(node, row), data_version=data_version)


def recorded(node: Node, row: updates.UpdateRow) -> dict[str, Any]:
    """Return the ledger's facts about an update of a feed, as metadata."""
    return {
        UPDATE_ID: row.id,
        "path": url_of(row.partition, row.id, node.blackboard),
        "files": row.files or 0,
        "bytes": row.size or 0,
        **({"dagster/row_count": row.records} if row.records is not None else {}),
    }


def log_result(
    context: dg.AssetExecutionContext, key: str, result: Result, made_of: Mapping[dg.AssetKey, Mapping[str, str]]
) -> None:
    """Report one partition of a joint run to Dagster as soon as it is built.

    A yielded result would count for all partitions of the run. Checks refer to the materialization that this run has
    just logged. Without this reference they have no effect.
    """
    log = cast("Callable[[Any], None]", context.log_event)  # its declared type lacks check results
    asset = dg.AssetKey.from_coercible(result.asset_key or ())
    if isinstance(result, dg.MaterializeResult):
        log(_materialization(asset, key, result, made_of[asset]))
    checks = [result] if isinstance(result, dg.AssetCheckResult) else [*(result.check_results or ())]
    target = _told_last(context, asset, key) if checks else None
    blocking = {spec.name for spec in context.assets_def.check_specs if spec.blocking}
    for check in checks:
        log(_evaluation(asset, key, check, target, (check.check_name or "") in blocking))


def _materialization(asset: dg.AssetKey, key: str, result: Any, made_of: Mapping[str, str]) -> dg.AssetMaterialization:
    by_dimension = key.keys_by_dimension if isinstance(key, dg.MultiPartitionKey) else dict[str, str]()
    of_key = {f"{PARTITION}/{name}": part for name, part in by_dimension.items()}
    tags = {**made_of, DATA_VERSION_TAG: result.data_version.value, **of_key}
    return dg.AssetMaterialization(asset, metadata=result.metadata, partition=key, tags=tags)


def _evaluation(
    asset: dg.AssetKey, key: str, result: dg.AssetCheckResult, target: Any, is_blocking: bool
) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=result.check_name or "",
        passed=result.passed,
        metadata=result.metadata,
        target_materialization_data=target,
        severity=result.severity,
        description=result.description,
        blocking=is_blocking,
        partition=key,
    )


def _told_last(context: dg.AssetExecutionContext, asset: dg.AssetKey, key: str) -> Any:
    """Return a reference to this run's last materialization, for checks. Return None if the run has logged none.

    Dagster does not export the class of this reference, but accepts its name in JSON.
    """
    record_filter = dg.AssetRecordsFilter(asset, asset_partitions=[key])
    records = context.instance.fetch_materializations(record_filter, limit=NEWEST).records
    for record in (each for each in records if each.run_id == context.run.run_id):
        fields = {"storage_id": record.storage_id, "run_id": record.run_id, "timestamp": record.timestamp}
        return dg.deserialize_value(
            json.dumps({"__class__": "AssetCheckEvaluationTargetMaterializationData", **fields})
        )
    return None


def failed_checks(refused: Refused, key: dg.AssetKey, checks: Set[dg.AssetCheckKey]) -> Iterator[dg.AssetCheckResult]:
    """Yield the check results of a failed audit, including passed checks."""
    yield from _check_results(refused.checks, key, checks)


def _check_results(
    results: tuple[CheckResult, ...], key: dg.AssetKey, selected: Set[dg.AssetCheckKey]
) -> Iterator[dg.AssetCheckResult]:
    for result in results:
        if dg.AssetCheckKey(key, result.check.name) in selected:
            yield dg.AssetCheckResult(
                asset_key=key,
                check_name=result.check.name,
                passed=result.passed,
                severity=dg.AssetCheckSeverity(result.severity),
                description=without_links(result.message),
                metadata=_check_metadata(result),
            )


def offending_rows(instance: dg.DagsterInstance, run_id: str, partition: str | None) -> Iterator[dict[str, Any]]:
    """Yield the sample rows of a run's failed checks for one Dagster partition, each with the name of its check."""
    events = instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
    for event in events:
        logged = event.event_log_entry.dagster_event
        check = logged.asset_check_evaluation_data if logged else None
        if check and not check.passed and check.partition == partition and SAMPLE in check.metadata:
            sample = cast("dict[str, Any]", check.metadata[SAMPLE].value)
            yield from ({"check": check.check_name, **row} for row in sample["rows"])


def _check_metadata(result: CheckResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"found": result.number, "rule": result.check.description}
    if result.rejected:
        metadata["rejected"] = result.rejected
    if result.sample:
        rows = json.loads(json.dumps(result.sample, default=str))
        metadata[SAMPLE] = dg.MetadataValue.json({"rows": rows})
    if result.blocks:
        metadata["what to do"] = "Correct the input or the function, then materialize this partition again."
    return metadata


def _update_metadata(output: Output, blackboard: str | None) -> dict[str, Any]:
    written = output.written
    times = {"first event": written.first, "last event": written.last}
    return {
        UPDATE_ID: output.id,
        "path": url_of(output.partition, output.id, blackboard),
        "files": len(written.files),
        "bytes": written.bytes,
        "dagster/row_count": written.records,
        **{name: dg.MetadataValue.timestamp(time) for name, time in times.items() if time},
        **columns_of(output),
    }


def _dataset_metadata(published: Published, page_of: PageOf) -> dict[str, Any]:
    chart = {"chart": dg.MetadataValue.md(published.chart)} if published.chart else {}
    return {
        "inputs": inputs_of(published.pins, page_of),
        **rejected_of(published.outputs),
        **({"added to": published.base.update_id} if published.base else {}),
        "preview": dg.MetadataValue.md(published.preview),
        **chart,
        **({"without": dg.MetadataValue.json({"inputs": [*published.without]})} if published.without else {}),
    }
