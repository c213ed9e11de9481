"""The outcome of a build as Dagster's events.

Order matters: a check yielded before its MaterializeResult is bound to the materialization before, and would hold
everything downstream for ever. So a published update carries its checks inside the result.
"""

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

import dagster as dg

from feed_assets.core.events import in_words
from feed_assets.core.positions import Pin
from feed_assets.orchestration.declare.inputs import asset_key
from feed_assets.runs.maker import Output
from feed_assets.runs.outcomes import CheckResult
from feed_assets.runs.phases import Published, Refused


def materialized(
    published: Published, selected: Set[dg.AssetKey], checks: Set[dg.AssetCheckKey], more: Mapping[str, Any]
) -> Iterator[dg.MaterializeResult[Any]]:
    """One result for each selected output, the dataset's with its checks, its pins, and `more` metadata."""
    main = published.outputs[-1]
    for output in published.outputs:
        key = asset_key(output.partition.feed)
        if key not in selected:
            continue
        extra = {**_dataset_metadata(published), **more} if output is main else {}
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={**_update_metadata(output), **extra},
            data_version=dg.DataVersion(output.written.data_version),
            check_results=[*_check_results(published.checks, key, checks)] if output is main else [],
        )


def failed_checks(refused: Refused, checks: Set[dg.AssetCheckKey]) -> Iterator[dg.AssetCheckResult]:
    """The results of an audit that failed, passed checks too."""
    yield from _check_results(refused.checks, asset_key(refused.outputs[-1].partition.feed), checks)


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
                description=result.message,
                metadata=_check_metadata(result),
            )


def _check_metadata(result: CheckResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"found": result.found, "rule": result.check.description}
    if result.sample:
        rows = json.loads(json.dumps(result.sample, default=str))
        metadata["sample"] = dg.MetadataValue.json({"rows": rows})
    if result.blocks:
        metadata["what to do"] = "Mend the input or the function, then materialize this partition again."
    return metadata


def _update_metadata(output: Output) -> dict[str, Any]:
    written = output.written
    times = {"first event": written.first, "last event": written.last}
    return {
        "update id": output.id,
        "path": f"{output.partition.path}/{output.id}",
        "files": len(written.files),
        "bytes": written.bytes,
        "dagster/row_count": written.records,
        **{name: dg.MetadataValue.timestamp(time) for name, time in times.items() if time},
    }


def _dataset_metadata(published: Published) -> dict[str, Any]:
    chart = {"chart": dg.MetadataValue.md(published.chart)} if published.chart else {}
    return {
        "inputs": dg.MetadataValue.json({pin.partition.path: _position(pin) for pin in published.pins}),
        "preview": dg.MetadataValue.md(published.preview),
        **chart,
        **({"without": dg.MetadataValue.json({"inputs": [*published.without]})} if published.without else {}),
    }


def _position(pin: Pin) -> dict[str, Any]:
    """What was read of an input: an update with its files, or of an event table a slice, which has none."""
    if not pin.files:
        return {"after": in_words(pin.start), "up to": in_words(pin.update_id)}
    return {"update id": pin.update_id, "data version": pin.version, "bytes": pin.size, "files": pin.files}
